"""A client of the HTTP API of a daemon: requests with a token, answers as records.

The server may be hostile, slow or something else than a daemon. Each request has a time limit from its first byte to
the last one of its answer, and answers have a largest size. Redirects are not followed: the token reaches nobody but
the server that was named. Each member of an answer is checked.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar, cast, get_type_hints
from urllib.parse import quote, urlencode, urlsplit

from openmsmq import __version__
from openmsmq.operating.naming import path_of, shown

SECONDS: Final = 70.0  # for a request: the server gives up after 60
_CONNECT_SECONDS: Final = 10.0
_LARGEST: Final = 16 << 20  # bytes of an answer
_LONGEST_DETAIL: Final = 500  # characters of an error that are shown
_PREFIX: Final = "/api/v1"
_END: Final = "-----END CERTIFICATE-----"
_PAGE: Final = 500
_MOST_PAGES: Final = 2000
_HERE: Final = ".\\"  # of path names: the machine of the server

Row = TypeVar("Row", bound="Queue | Handle")


class ApiError(Exception):
    """The server did not do what was asked; the message names its URL and says what to do."""


class ApiRefused(ApiError):
    """The token, or what it may do, is not enough."""


class ApiNotFound(ApiError):
    """What was named is not there, or not for this user."""


class ApiUnreachable(ApiError):
    """No answer of the API: nobody listens, TLS fails, or something else than the API answers."""


class ApiTimeout(ApiError):
    """The answer did not come in time."""


class Queue(NamedTuple):
    """A queue as lists have it. `came` and `left` count messages since the daemon started, `waiting` reads that wait
    for messages."""

    id: str
    kind: str
    name: str
    messages: int
    bytes: int
    came: int
    left: int
    journal_messages: int
    waiting: int
    state: str


class Handle(NamedTuple):
    """A queue that somebody has open. `since` in seconds since 1970; `exclusive`: share mode DENY_RECEIVE; `held`
    messages are received in two phases that have not ended; `origin` is the door and the address behind it."""

    id: str
    queue: str
    name: str
    access: str
    since: int
    exclusive: bool
    waiting: int
    cursors: int
    held: int
    user: str
    sid: str
    origin: str


class Handles(NamedTuple):
    """The first ones; `matching` is how many there are."""

    handles: list[Handle]
    matching: int


class HttpApi:
    """The API at a URL. A connection is kept from one request to the next."""

    def __init__(self, url: str, token: str, trust: ssl.SSLContext | None = None, seconds: float | None = None) -> None:
        """`trust` says which certificates count; None for those that the system trusts. `seconds` is for one request.
        Raises ValueError for a URL that a token can't be sent to."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is no URL of a server: https://HOST:PORT is meant")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the URL has a user or a password in it: a token goes with --token-file")
        if parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise ValueError(f"{url}: the token would go over the network as text; use https (setting web_certificate)")
        self.url: Final = url.rstrip("/")
        self._path: Final = parts.path.rstrip("/")
        self._headers: Final = {
            "Authorization": f"Bearer {token}", "Accept": "application/json", "User-Agent": f"openmsmq/{__version__}"
        }  # fmt: skip
        self._seconds: Final = SECONDS if seconds is None else seconds
        connecting = min(_CONNECT_SECONDS, self._seconds)
        self._connection: Final[http.client.HTTPConnection] = (
            http.client.HTTPConnection(parts.hostname, parts.port, timeout=connecting)
            if parts.scheme == "http"
            else http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=connecting, context=trust or ssl.create_default_context()
            )
        )

    # -- what commands ask -----------------------------------------------------------------------------------------

    def queues(self, text: str = "") -> Iterator[Queue]:
        """All that the user may see, or those with a text or pattern in their names; the fullest first."""
        query = {"sort": "-messages", "limit": str(_PAGE)} | ({"filter": text} if text else {})
        for _ in range(_MOST_PAGES):
            page = self._ask("GET", "/queues", query)
            yield from (self._row(Queue, row) for row in self._member(page, "queues", list))
            following = page.get("next")
            if following is None:
                return
            query["cursor"] = str(following)
        raise ApiError(f"{self.url}: the list of queues does not end after {_MOST_PAGES * _PAGE:,} queues")

    def queue_named(self, name: str) -> Queue:
        """Of a name as people type it. Raises ApiNotFound."""
        wanted = shown(path_of(name)).casefold()
        text = wanted.removeprefix(_HERE)
        found = (queue for queue in self.queues(f"*{text}" if "*" in text or "?" in text else text))
        queue = next((queue for queue in found if _is_called(queue, wanted)), None)
        if queue is None:
            raise ApiNotFound(f"{self.url}: there is no queue {name}, or the user of the token may not see it")
        return queue

    def oldest(self, queue: str) -> int | None:
        """When the first message of a queue came, in seconds since 1970; None where there is none, or the user may not
        look. Raises ApiNotFound."""
        found = self._ask("GET", f"/queues/{quote(queue, safe='')}")
        return cast("int | None", self._member(found, "oldest", int | None))

    def handles(
        self, queue: str | None = None, *, exclusive: bool = False, waiting: bool = False, limit: int = _PAGE
    ) -> Handles:
        """Who has which queue open, exclusive ones first. `queue` is the identifier of one."""
        query = {"limit": str(limit)} | ({"queue": queue} if queue is not None else {})
        query |= {name: "true" for name, wanted in (("exclusive", exclusive), ("waiting", waiting)) if wanted}
        found = self._ask("GET", "/handles", query)
        rows = [self._row(Handle, row) for row in self._member(found, "handles", list)]
        return Handles(rows, self._member(found, "matching", int))

    def handle(self, identifier: str) -> Handle:
        """Raises ApiNotFound."""
        return self._row(Handle, self._ask("GET", f"/handles/{quote(identifier, safe='')}"))

    def close_handle(self, identifier: str) -> Handle:
        """End what somebody has open; returns what it was. Raises ApiNotFound where it is closed already."""
        return self._row(Handle, self._ask("DELETE", f"/handles/{quote(identifier, safe='')}"))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> HttpApi:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- one request -----------------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        target = f"{self._path}{_PREFIX}{path}" + (f"?{urlencode(query)}" if query else "")
        if method != "GET":
            self.close()  # a change goes over a connection that nobody has closed meanwhile, for it is sent once
        kept = self._connection.sock is not None
        try:
            try:
                status, kind, body = self._exchange(method, target)
            except ConnectionError:
                self.close()
                if not kept:
                    raise
                status, kind, body = self._exchange(method, target)  # the server had closed an idle connection
        except TimeoutError:
            self.close()
            raise ApiTimeout(f"{self.url} has not answered within {self._seconds:g} s") from None
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise ApiUnreachable(
                f"{self.url}: its certificate is not trusted ({error.verify_message}); --tls-root names the file of a "
                "certificate that is"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ApiUnreachable(
                f"{self.url} does not answer as an HTTP server does ({error or type(error).__name__}): does the daemon "
                "run with the setting web, and are scheme, host and port right?"
            ) from None
        if status != 200:
            raise self._refusal(status, kind, body)
        if kind != "application/json":
            raise self._stranger(f"{path} is answered with the type {kind[:60]!r}")
        document = _json(body)
        if not isinstance(document, dict):
            raise self._stranger(f"{path} is not answered with a JSON object")
        return document

    def _exchange(self, method: str, target: str) -> tuple[int, str, bytes]:
        """Status, media type and body. Raises OSError, HTTPException."""
        connection = self._connection
        deadline = time.monotonic() + self._seconds
        if connection.sock is None:
            connection.connect()
        connection.response_class = cast(
            "Any",
            lambda sock, *given, **named: http.client.HTTPResponse(
                cast("Any", _Timed(sock, deadline)), *given, **named
            ),
        )
        connection.request(method, target, headers=self._headers)
        response = connection.getresponse()
        body = response.read(_LARGEST + 1)
        if len(body) > _LARGEST:
            self.close()
            raise http.client.HTTPException(f"an answer of more than {_LARGEST:,} bytes")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if 300 <= response.status < 400:
            self.close()
            to = response.headers.get("location", "")[:200]
            raise http.client.HTTPException(f"it leads on to {to!r}, which is not followed")
        return response.status, kind, body

    def _refusal(self, status: int, kind: str, body: bytes) -> ApiError:
        """What a status other than 200 means."""
        document = _json(body) if kind == "application/problem+json" else None
        if not isinstance(document, dict) or not isinstance(document.get("detail"), str):
            return self._stranger(f"the answer is {status} of the type {kind[:60]!r}")
        said = f"{self.url}: {document['detail'][:_LONGEST_DETAIL]}"
        if status == 401:
            return ApiRefused(f"{said}; `openmsmq token list` shows which tokens hold, `token create` makes one")
        if status == 403:
            return ApiRefused(f"{said}; `openmsmq token create --role` says what a token may do")
        return ApiNotFound(said) if status == 404 else ApiError(f"{said} ({status})")

    # -- what an answer has ----------------------------------------------------------------------------------------

    def _row(self, kind: type[Row], document: Any) -> Row:
        if not isinstance(document, dict):
            raise self._stranger("a row of an answer is no JSON object")
        members = get_type_hints(kind)
        return kind(**{name: self._member(document, name, wanted) for name, wanted in members.items()})

    def _member(self, document: Mapping[str, Any], name: str, wanted: Any) -> Any:
        value = document.get(name)
        if name not in document or not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise self._stranger(f"an answer has no {name}, or not as expected")
        return value

    def _stranger(self, said: str) -> ApiError:
        return ApiUnreachable(
            f"{self.url} is not the HTTP API of openmsmq, or not of this version, {__version__} ({said}): is the URL "
            "right?"
        )


class _Timed:
    """A socket of which reads end at a deadline, however many there are: as `http.client` uses it."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._sock, self._deadline))


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def trusting(file: str) -> ssl.SSLContext:
    """Certificates that those in a PEM file vouch for, and these themselves. Raises OSError, ssl.SSLError."""
    return _context(Path(file).read_text(encoding="ascii", errors="replace"))


def trusting_only(file: str) -> ssl.SSLContext:
    """A server that shows the first certificate of a PEM file, whatever names are in it: of a daemon on this machine,
    which says that this file is what it shows. Raises OSError, ssl.SSLError."""
    first, end, _ = Path(file).read_text(encoding="ascii", errors="replace").partition(_END)
    context = _context(first + end)  # without those behind it, which have issued certificates of others, too
    context.check_hostname = False
    return context


def _context(certificates: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=certificates)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # so that the server's own certificate will do
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # wants what self-signed ones mostly do not have
    return context


def _is_called(queue: Queue, wanted: str) -> bool:
    """Whether a name, in lower case, is that of a queue. Outgoing queues have the name of their destination."""
    name = queue.name.casefold()
    if wanted.startswith(_HERE) and queue.kind not in ("outgoing", "connector"):
        return name.partition("\\")[2] == wanted.removeprefix(_HERE)
    return name == wanted


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.casefold() == "localhost"


def _json(body: bytes) -> Any:
    """None for what is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
