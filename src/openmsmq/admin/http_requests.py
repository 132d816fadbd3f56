"""Client of the HTTP API of a daemon, with a token or with a name and a password.

The server may be hostile, slow or not a daemon. Each request has a time limit from its first byte to the last byte of
the response, and responses have a maximum size. Redirects are not followed, so that the token is sent only to the
specified server. Every member of a response is checked.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from openmsmq import __version__
from openmsmq.admin.checked_json import parsed
from openmsmq.admin.deadlines import TimedSocket
from openmsmq.model.text import reason_of

SECONDS: Final = 70.0  # per request; the server's limit is 60
_CONNECT_SECONDS: Final = 10.0
#: Maximum bytes of a request: a message of 4 MiB in base64, and its properties.
MOST_BYTES: Final = 6 << 20
_LARGEST: Final = 128 << 20  # maximum bytes of a response: definitions of some 350,000 queues
_LONGEST_DETAIL: Final = 500  # maximum characters of an error text
_PREFIX: Final = "/api/v1"
_END: Final = "-----END CERTIFICATE-----"
MOST_PAGES: Final = 2000
_DONE: Final = (200, 201, 202, 207)


class ApiError(Exception):
    """The request failed; the message names the URL and the remedy. `problem` is the problem document of the
    response."""

    problem: Mapping[str, Any] = MappingProxyType({})


class ApiRefused(ApiError):
    """The token or password is not accepted, or its rights are not sufficient."""


class ApiNotFound(ApiError):
    """The named object does not exist, or is not visible to this user."""


class ApiUnreachable(ApiError):
    """The API could not be reached: no listener, TLS failure, or another service answers."""


class ApiTimeout(ApiError):
    """The response did not arrive in time."""


@dataclass(frozen=True, slots=True)
class HttpCredentials:
    """Credentials of a request: a header, and the remedy if they do not suffice."""

    header: str = field(repr=False)
    unknown: str  # remedy if the server does not know them (401)
    denied: str  # remedy if their rights are not sufficient (403)


def by_token(token: str) -> HttpCredentials:
    """Use a token of the HTTP API."""
    return HttpCredentials(
        f"Bearer {token}",
        "; `openmsmq token list` lists valid tokens, `token create` creates one",
        "; `openmsmq token create --role` sets what a token may do",
    )


def by_password(user: str, password: str) -> HttpCredentials:
    """Use a user and a password."""
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return HttpCredentials(f"Basic {encoded}", " (user or password)", "")


class HttpRequests:
    """Sends requests to the API at a URL and reuses its connection."""

    def __init__(
        self, url: str, who: HttpCredentials, trust: ssl.SSLContext | None = None, seconds: float | None = None
    ) -> None:
        """`trust` determines the trusted certificates; None for those of the system. `seconds` is the time limit of a
        request. Raises ValueError for a URL to which a token must not be sent."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is no URL of a server: https://HOST:PORT is meant")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the URL contains a user or a password: pass a token with --token-file instead")
        if parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise ValueError(
                f"{url}: token or password would be sent in clear text; use https (setting web_certificate)"
            )
        self.url: Final = url.rstrip("/")
        self._path: Final = parts.path.rstrip("/")
        self._who: Final = who
        self._headers: Final = {
            "Authorization": who.header, "Accept": "application/json", "User-Agent": f"openmsmq/{__version__}"
        }  # fmt: skip
        self._seconds: Final = SECONDS if seconds is None else seconds
        self._sent = False  # whether the last request was sent completely
        connecting = min(_CONNECT_SECONDS, self._seconds)
        self._connection: Final[http.client.HTTPConnection] = (
            http.client.HTTPConnection(parts.hostname, parts.port, timeout=connecting)
            if parts.scheme == "http"
            else http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=connecting, context=trust or ssl.create_default_context()
            )
        )

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> HttpRequests:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request and return the document of the response. A change (any method except GET) is sent only once.

        Raises ApiError.
        """
        target = f"{self._path}{_PREFIX}{path}" + (f"?{urlencode(query)}" if query else "")
        if method != "GET":
            self.close()  # new connection: the server may have closed this one, and changes are not retried
        data = None if body is None else json.dumps(body).encode()
        if data is not None and len(data) > MOST_BYTES:  # the server would reset the connection
            raise ApiError(
                f"{self.url}: the request has {len(data):,} bytes, allowed: {MOST_BYTES:,}; make it in parts, or by a "
                "command without --url"
            )
        kept = self._connection.sock is not None
        try:
            try:
                status, kind, answer = self._exchange(method, target, data)
            except ConnectionError:
                self.close()
                if not kept:
                    raise
                status, kind, answer = self._exchange(method, target, data)  # the server had closed an idle connection
        except TimeoutError:
            self.close()
            raise ApiTimeout(f"{self.url} has not answered within {self._seconds:g} s{self._doubt(method)}") from None
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise ApiUnreachable(
                f"{self.url}: its certificate is not trusted ({error.verify_message}); --tls-root names the file of a "
                "certificate that is"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ApiUnreachable(
                f"{self.url} does not answer as an HTTP server does ({reason_of(error)})"
                f"{self._doubt(method)}: does the daemon run with the setting web, and are scheme, host and port right?"
            ) from None
        if status not in _DONE:
            raise self._refusal(status, kind, answer)
        if kind != "application/json":
            raise self._stranger(f"the response to {path} has the type {kind[:60]!r}")
        document = parsed(answer)
        if not isinstance(document, dict):
            raise self._stranger(f"the response to {path} is not a JSON object")
        return document

    def _exchange(self, method: str, target: str, data: bytes | None) -> tuple[int, str, bytes]:
        """Send a request; return status, media type and body. Raises OSError, HTTPException."""
        connection = self._connection
        self._sent = False
        deadline = time.monotonic() + self._seconds
        connection.response_class = cast(
            "Any",
            lambda sock, *given, **named: http.client.HTTPResponse(
                cast("Any", TimedSocket(sock, deadline)), *given, **named
            ),
        )
        if data is None:
            connection.request(method, target, headers=self._headers)
        else:
            headers = {**self._headers, "Content-Type": "application/json"}
            connection.request(method, target, data, headers)
        self._sent = True
        response = connection.getresponse()
        body = response.read(_LARGEST + 1)
        if len(body) > _LARGEST:
            self.close()
            raise http.client.HTTPException(f"the response exceeds {_LARGEST:,} bytes")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if 300 <= response.status < 400:
            self.close()
            to = response.headers.get("location", "")[:200]
            raise http.client.HTTPException(f"redirected to {to!r}; redirects are not followed")
        return response.status, kind, body

    def _doubt(self, method: str) -> str:
        """Return what to say of a change whose request was sent, but not answered."""
        return ", and the change may have been made (openmsmq audit shows it)" if self._sent and method != "GET" else ""

    def _refusal(self, status: int, kind: str, body: bytes) -> ApiError:
        """Convert a status other than 200 into an error."""
        document = parsed(body) if kind == "application/problem+json" else None
        if not isinstance(document, dict) or not isinstance(document.get("detail"), str):
            return self._stranger(f"the response has status {status} and type {kind[:60]!r}")
        detail = f"{self.url}: {document['detail'][:_LONGEST_DETAIL]}"
        if status == 401:
            return ApiRefused(detail + self._who.unknown)
        if status == 403:
            return ApiRefused(detail + self._who.denied)
        error = ApiNotFound(detail) if status == 404 else ApiError(f"{detail} ({status})")
        error.problem = document
        return error

    # -- contents of responses -------------------------------------------------------------------------------------

    def struct(self, document: Mapping[str, Any], wanted: Any) -> Any:
        """Convert a document to a msgspec type; additional members are ignored. Raises ApiUnreachable."""
        try:
            return msgspec.convert(document, wanted)
        except msgspec.ValidationError as error:
            raise self._stranger(f"unexpected response: {str(error)[:_LONGEST_DETAIL]}") from None

    def _stranger(self, said: str) -> ApiError:
        return ApiUnreachable(
            f"{self.url} is not the HTTP API of openmsmq, or not of this version, {__version__} ({said}): is the URL "
            "right?"
        )


def trusting(file: str) -> ssl.SSLContext:
    """Trust the certificates in a PEM file and those that they have issued. Raises OSError, ssl.SSLError."""
    return _context(Path(file).read_text(encoding="ascii", errors="replace"))


def trusting_only(file: str) -> ssl.SSLContext:
    """Trust only the first certificate in a PEM file, without checking names. For a daemon on this machine, which has
    written the path of the file. Raises OSError, ssl.SSLError."""
    first, end, _ = Path(file).read_text(encoding="ascii", errors="replace").partition(_END)
    context = _context(first + end)  # without the CA certificates after it, which may have issued others
    context.check_hostname = False
    return context


def _context(certificates: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=certificates)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # accept the server certificate itself as trust anchor
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # requires extensions that self-signed certificates often lack
    return context


def step(name: str) -> str:
    """Quote a name as one segment of a path. Raises ApiNotFound for an empty name, which would change the path."""
    if not name:
        raise ApiNotFound("a name is empty")
    return quote(name, safe="")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.casefold() == "localhost"
