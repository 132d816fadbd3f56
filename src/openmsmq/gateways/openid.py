"""Login by OpenID Connect, daemon side: the authorization code flow with PKCE, state and nonce (OpenID Connect Core 1.0
section 3.1, RFC 7636), and the check of the ID token.

The daemon itself communicates with the provider. The HTTP process only forwards data from the browser, so it can
neither forge a user nor use an ID token that it has seen.

A state is signed with a key of this daemon, and verifier and nonce are derived from it. The daemon therefore stores
nothing for a pending login, and unauthenticated requests cannot exhaust memory.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import http.client
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from openmsmq.model.text import reason_of

STATE_SECONDS: Final = 600.0  # maximum time of a login at the provider
AT_A_TIME: Final = 4  # concurrent requests to the provider
_KEPT: Final = 300.0  # lifetime of the discovery document in seconds
_RETRY: Final = 10.0  # seconds before a failed discovery is retried
_PATIENCE: Final = 10.0  # maximum seconds per response of the provider
_MOST: Final = 1 << 20  # maximum bytes of a response
_SKEW: Final = 60  # tolerated clock difference in seconds
_KEY_TYPES: Final = {"RS256": "RSA", "ES256": "EC"}


class ProviderUnavailable(Exception):
    """The provider does not answer or violates the specification; the message has the remedy."""


class LoginNotProven(Exception):
    """The state, code or ID token does not prove a login; the message says why."""


@dataclass(frozen=True, slots=True)
class OpenIdSettings:
    """Settings. `user_claim` is the claim of the ID token with the user name; without `secret_file`, this is a public
    client."""

    issuer: str
    client_id: str
    secret_file: Path | None = None
    user_claim: str = "preferred_username"


def is_safe_url(url: Any) -> bool:
    """Whether a URL uses https, or http on loopback."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
    except ValueError:
        return False
    is_loopback = parts.hostname in ("localhost", "127.0.0.1", "::1")
    return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback))


class OpenIdLogin:
    """Logins at one provider. Methods run on the event loop; requests to the provider run in threads."""

    def __init__(
        self, settings: OpenIdSettings, clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._settings: Final = settings
        self._clock: Final = clock
        self._monotonic: Final = monotonic
        self._key: Final = secrets.token_bytes(32)
        self._threads: Final = ThreadPoolExecutor(AT_A_TIME, "openid")
        self._discovering: Final = asyncio.Lock()
        self._known: Mapping[str, Any] | ProviderUnavailable | None = None
        self._until = 0.0
        self._under_way = 0

    async def begin(self, redirect_uri: str) -> tuple[str, str]:
        """Return the URL at the provider for the browser, and the state that the browser must return. Raises
        ProviderUnavailable."""
        found = await self._discovered()
        start = f"{secrets.token_urlsafe(16)}.{int(self._clock() + STATE_SECONDS)}"
        state = f"{start}.{self._derived('state', start)}"
        query = {
            "response_type": "code", "client_id": self._settings.client_id, "redirect_uri": redirect_uri,
            "scope": "openid profile email", "state": state, "nonce": self._derived("nonce", state),
            "code_challenge": _base64(hashlib.sha256(self._derived("verifier", state).encode()).digest()),
            "code_challenge_method": "S256",
        }  # fmt: skip
        url = found["authorization_endpoint"]
        return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}", state

    async def finish(self, state: str, code: str, redirect_uri: str) -> str:
        """Return the name of the user that the provider has authenticated. Raises LoginNotProven,
        ProviderUnavailable."""
        start, _, signature = state.rpartition(".")
        end = start.rpartition(".")[2]
        if not hmac.compare_digest(signature.encode(), self._derived("state", start).encode()):
            raise LoginNotProven("the state is not one of this daemon, or the daemon was restarted: log in again")
        if self._clock() >= int(end):
            raise LoginNotProven(f"the login took more than {STATE_SECONDS / 60:.0f} minutes: log in again")
        found = await self._discovered()
        answer = await self._in_thread(lambda: self._redeem(found, state, code, redirect_uri))
        keys = await self._in_thread(lambda: _fetched(found["jwks_uri"]))
        claims = verified(answer, keys, self._settings, self._derived("nonce", state), self._clock())
        return user_in(claims, self._settings.user_claim)

    def _derived(self, what: str, text: str) -> str:
        return _base64(hmac.digest(self._key, f"{what}:{text}".encode("utf-8", "surrogatepass"), "sha256"))

    async def _discovered(self) -> Mapping[str, Any]:
        """Return the discovery document. It is cached, and so is a failure."""
        async with self._discovering:
            if self._known is None or self._monotonic() >= self._until:
                try:
                    self._known = await self._in_thread(lambda: _discovery(self._settings.issuer))
                    self._until = self._monotonic() + _KEPT
                except ProviderUnavailable as error:
                    self._known, self._until = error, self._monotonic() + _RETRY
            if isinstance(self._known, ProviderUnavailable):
                raise ProviderUnavailable(str(self._known))
            return self._known

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        if self._under_way >= AT_A_TIME:
            raise ProviderUnavailable(f"{AT_A_TIME} requests to the provider are in progress: try again later")
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._under_way -= 1

    def _redeem(self, found: Mapping[str, Any], state: str, code: str, redirect_uri: str) -> str:
        """Exchange a code for an ID token (OpenID Connect Core 1.0 section 3.1.3)."""
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri,
            "code_verifier": self._derived("verifier", state), "client_id": self._settings.client_id,
        }  # fmt: skip
        headers, secret = {}, self._secret()
        ways = found.get("token_endpoint_auth_methods_supported")
        if secret and (not isinstance(ways, list) or "client_secret_basic" in ways):
            pair = f"{quote(self._settings.client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif secret:
            form["client_secret"] = secret
        token = _fetched(found["token_endpoint"], urlencode(form).encode(), headers).get("id_token")
        if not isinstance(token, str):
            raise LoginNotProven("the provider gave no ID token")
        return token

    def _secret(self) -> str:
        """Return the client secret. It is read for each login, so that a new secret needs no restart."""
        path = self._settings.secret_file
        if path is None:
            return ""
        try:
            return path.read_text().strip()
        except (OSError, ValueError) as error:
            raise ProviderUnavailable(f"oidc_client_secret_file can't be read: {error}") from None


def verified(
    token: str, keys: Mapping[str, Any], settings: OpenIdSettings, nonce: str, now: float
) -> Mapping[str, Any]:
    """Check an ID token (OpenID Connect Core 1.0 section 3.1.3.7) and return its claims. `keys` is the JWK set of the
    provider, `now` in seconds since 1970. Raises LoginNotProven."""
    from joserfc import jwt
    from joserfc.errors import JoseError

    try:
        claims = _signed(token, keys)
        jwt.JWTClaimsRegistry(
            now=int(now), leeway=_SKEW, iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "value": settings.client_id}, exp={"essential": True}, iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        ).validate(claims)  # fmt: skip
    except (JoseError, ValueError, TypeError) as error:
        raise LoginNotProven(f"the ID token of {settings.issuer} is refused: {error}") from None
    audience = claims["aud"]
    party = claims.get("azp", settings.client_id if isinstance(audience, str) or len(audience) == 1 else None)
    if party != settings.client_id:
        raise LoginNotProven(f"the ID token of {settings.issuer} is refused: it is for another client (azp)")
    return claims


def _signed(token: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Verify the signature of a token with a key of the set, and return its claims. Raises JoseError, ValueError,
    LoginNotProven."""
    from joserfc import jws, jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, RSAKey

    header = jws.extract_compact(token.encode()).headers()
    algorithm, identifier = header.get("alg"), header.get("kid")
    kind = _KEY_TYPES.get(algorithm) if isinstance(algorithm, str) else None
    if kind is None:
        raise LoginNotProven(f"the ID token is signed with {algorithm}; allowed: {', '.join(_KEY_TYPES)}")
    for key in keys.get("keys") or ():
        fits = isinstance(key, dict) and key.get("kty") == kind and key.get("use", "sig") == "sig"
        if not fits or identifier not in (None, key.get("kid", identifier)):
            continue
        try:
            made = RSAKey.import_key(key) if kind == "RSA" else ECKey.import_key(key)
            return dict(jwt.decode(token, made, algorithms=[str(algorithm)]).claims)
        except (JoseError, ValueError):  # try the next key: several may have no identifier
            continue
    raise LoginNotProven("no key of the provider verifies the signature of the ID token")


def user_in(claims: Mapping[str, Any], name: str) -> str:
    """Return the name of the user in the claims. Raises LoginNotProven."""
    value = claims.get(name)
    if not isinstance(value, str) or not value:
        raise LoginNotProven(f"the ID token has no claim {name}, which oidc_user_claim names")
    if name == "email" and claims.get("email_verified") is not True:
        raise LoginNotProven("the provider does not say that the e-mail address is verified (claim email_verified)")
    return value


def _discovery(issuer: str) -> Mapping[str, Any]:
    """Read the discovery document (OpenID Connect Discovery 1.0 section 4). Raises ProviderUnavailable."""
    found = _fetched(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    if found.get("issuer") != issuer:
        raise ProviderUnavailable(
            f"the issuer of the provider is {found.get('issuer')}, not {issuer}: correct oidc_issuer"
        )
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        if not is_safe_url(found.get(name)):
            raise ProviderUnavailable(f"{name} of {issuer} is not a URL of https: {found.get(name)}")
    return found


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would send the client secret to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetched(url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Fetch a JSON object; `data` is posted. Raises ProviderUnavailable, and LoginNotProven for a refused code."""
    request = urllib.request.Request(url, data, {"Accept": "application/json", **(headers or {})})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    try:
        try:
            with opener.open(request, timeout=_PATIENCE) as response:
                status, body = 200, _body(response)
        except urllib.error.HTTPError as error:
            with error:
                status, body = error.code, _body(error)
        found = json.loads(body) if status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        raise ProviderUnavailable(f"{url}: {reason_of(error)}") from None
    if status != 200:
        code = _error_in(body)
        if data is not None and status == 400 and code == "invalid_grant":
            raise LoginNotProven("the provider does not accept the code of this login: log in again")
        raise ProviderUnavailable(f"{url} answers {status} {code}".rstrip())
    if not isinstance(found, dict):
        raise ProviderUnavailable(f"{url} did not return a JSON object")
    return found


def _body(response: Any) -> bytes:
    """Return the body of a response. Raises OSError, also for one that is too large or too slow, and HTTPException."""
    until, body = time.monotonic() + _PATIENCE, b""
    while part := response.read1(1 << 16):
        body += part
        if len(body) > _MOST or time.monotonic() > until:
            raise OSError(f"an answer of more than {_MOST} bytes or {_PATIENCE:.0f} s")
    return body


def _error_in(body: bytes) -> str:
    """Return the error code of a response (RFC 6749 section 5.2); empty if there is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    return str(found.get("error", ""))[:100] if isinstance(found, dict) else ""


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
