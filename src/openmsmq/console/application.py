"""The ASGI application: checks hosts, adds headers, authenticates callers, and routes requests to operation handlers.

Handlers run in threads, because the client of the queue manager blocks; the event loop only moves bytes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openmsmq.actions.table import Input
from openmsmq.admin.json_bytes import json_bytes
from openmsmq.console import problems
from openmsmq.console.callers import WebCaller, WebSession, basic, bearer, same
from openmsmq.console.limits import BODY, BODY_SECONDS, HEADERS, THREADS, WORK_SECONDS
from openmsmq.console.openapi import PREFIX, document
from openmsmq.console.problems import Problem
from openmsmq.console.services import CHALLENGE, Services
from openmsmq.console.table import HttpOperation, WebRequest, json_response, parse_body, parse_query
from openmsmq.model.errors import AccessDenied, MsmqError
from openmsmq.model.roles import Role, missing_role
from openmsmq.model.text import printable

logger = logging.getLogger(__name__)

T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
# Not no-referrer: browsers would then send our own forms with "Origin: null".
_HEADERS: Final = {
    b"content-security-policy": _POLICY.encode(), b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin", b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin", b"cache-control": b"no-store", b"x-frame-options": b"DENY",
}  # fmt: skip
_REFRESH: Final = "x-openmsmq-refresh"  # header of automatic refreshes, which do not count as use of the session
_STATUS: Final = re.compile("[1-9][0-9]{2}")  # digits without limit could not be converted
_STRICT_TRANSPORT: Final = b"max-age=31536000"


class Web:
    """The web application of this process."""

    def __init__(self, services: Services, operations: tuple[HttpOperation, ...]) -> None:
        self.services: Final = services
        self._threads: Final = ThreadPoolExecutor(THREADS, "request")
        self._operations: Final = operations
        self._openapi_text = b""  # made at the first request, which takes a third of a second
        self._roles: Final = {operation.handler: operation.role for operation in operations}
        self._hosts: Final = {name.casefold() for name in (*services.settings.hosts, "localhost")}
        self.routes: Final = [
            *(self._route(path, operations) for path in dict.fromkeys(operation.path for operation in operations)),
            Route("/openapi.json", self.endpoint(self._openapi), methods=["GET"]),
            Route("/problems/{status}", self.endpoint(self._problem), methods=["GET"]),
        ]

    def application(self, more: list[Route], missing: Callable[[Request, Exception], Awaitable[Response]]) -> ASGIApp:
        """Return the ASGI application with `more` routes added. `missing` answers requests for other paths, and for
        other methods of the paths."""
        handlers = {404: missing, 405: missing}
        return self._guarded(Starlette(routes=[*self.routes, *more], exception_handlers=handlers))

    # -- operations ------------------------------------------------------------------------------------------------

    def _route(self, path: str, operations: tuple[HttpOperation, ...]) -> Route:
        """Return one route for all methods of a path, so that a 405 response lists all of them."""
        by_method = {operation.method: operation for operation in operations if operation.path == path}

        async def perform(request: Request) -> Response:
            return await self._perform(by_method["GET" if request.method == "HEAD" else request.method], request)

        return Route(PREFIX + path, self.endpoint(perform), methods=list(by_method))

    async def _perform(self, operation: HttpOperation, request: Request) -> Response:
        query = parse_query(operation.query, request.query_params.multi_items())
        caller = await self.caller(request) if operation.needs_login else WebCaller("", "", "", False, peer_of(request))
        if operation.needs_login:
            self._demand(operation.role_for(query), caller)
        if operation.changes:
            self.demand_own_page(request, caller.session, request.headers.get("x-csrf-token"))
        body = None if operation.body is None else await self._document_in(request, operation.body)
        asked = WebRequest(self.services, caller, request.path_params, query, body, self.is_secure(request))
        answer = await self.work(operation.handler, asked)
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(status_code=operation.status)
        return json_response(answer, operation.status)

    async def _document_in(self, request: Request, wanted: type[Input]) -> Any:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Problem(415, "the content type of the body must be application/json")
        return parse_body(wanted, await self.read(request))

    async def work(self, work: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a blocking function. Raises Problem if it takes too long; it then finishes in the
        background."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(WORK_SECONDS):
                return await loop.run_in_executor(self._threads, partial(work, *arguments))
        except TimeoutError as error:
            if isinstance(error, MsmqError):
                raise
            raise Problem(504, f"the queue manager has not answered within {WORK_SECONDS:.0f} s; a change may still be "
                               "made: the audit log will show it") from None  # fmt: skip

    async def read(self, request: Request) -> bytes:
        """Return the body of a request. Raises Problem if it is too large or too slow."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    size += len(part)
                    if size > BODY:
                        raise Problem(413, f"the body exceeds {BODY} bytes: send it in parts",
                                      headers={"Connection": "close"})  # fmt: skip
                    parts.append(part)
        except TimeoutError:
            raise Problem(408, f"the body was not received within {BODY_SECONDS:.0f} s",
                          headers={"Connection": "close"}) from None  # fmt: skip
        return b"".join(parts)

    # -- callers ---------------------------------------------------------------------------------------------------

    async def caller(self, request: Request) -> WebCaller:
        """Authenticate by cookie, bearer token, or name and password. Raises Problem if the daemon accepts no login."""
        sessions, value = self.services.sessions, request.headers.get("authorization")
        peer = peer_of(request)
        if value is None:
            # `http.cookies` would ignore cookies after one with a space or bracket, which another port may have set.
            secret = request.cookies.get(self.services.settings.cookie)
            session = sessions.find(secret, used=_REFRESH not in request.headers) if secret else None
            if session is None:
                raise Problem(401, "not logged in, or the session has expired", headers=CHALLENGE)
            try:
                return await self.caller_of(session, peer)
            except AccessDenied as error:
                sessions.close(session)
                raise Problem(401, error.detail, headers=CHALLENGE) from None
        if (given := basic(value)) is not None:
            return self._caller(await self.work(self.services.login, *given, peer), peer)
        token = bearer(value)
        if token is None:
            raise Problem(401, "this is neither a name and password nor a token", headers=CHALLENGE)
        return self._caller(await self.work(self.services.login_by_token, token, peer), peer)

    async def caller_of(self, session: WebSession, peer: str) -> WebCaller:
        """Return the caller of a session. Raises AccessDenied if the daemon no longer accepts the session."""
        return self._caller(await self.work(self._whoami, session.ticket), peer, session)

    def _whoami(self, ticket: str) -> Mapping[str, Any]:
        return {"ticket": ticket, **self.services.link.call("whoami", ticket=ticket)}

    @staticmethod
    def _caller(known: Mapping[str, Any], peer: str, session: WebSession | None = None) -> WebCaller:
        return WebCaller(known["ticket"], known["name"], known["sid"], known["administrator"], peer,
                      Role(known["role"]), known["token"], session)  # fmt: skip

    def demand_role(self, handler: Callable[[WebRequest], Any], caller: WebCaller) -> None:
        """Check the caller's role for the operation of a handler. Raises AccessDenied if it is too low."""
        self._demand(self._roles[handler], caller)

    @staticmethod
    def _demand(wanted: Role, caller: WebCaller) -> None:
        if caller.role < wanted:
            raise AccessDenied(detail=missing_role(wanted, caller.name, caller.role, caller.token))

    def demand_own_page(self, request: Request, session: WebSession | None, token: str | None) -> None:
        """Reject changes requested by pages of other sites (CSRF). Checks the headers Sec-Fetch-Site and Origin and,
        for a cookie session, its CSRF token. Raises Problem."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if site not in (None, "same-origin", "none") or (origin is not None and origin not in self.origins(request)):
            raise Problem(403, "refused: this request comes from a page of another site")
        if session is not None and not same(token, session.csrf):
            raise Problem(403, "the CSRF token of this session is missing or wrong (header X-CSRF-Token)")

    def origins(self, request: Request) -> list[str]:
        """Return the possible origins of our pages under the host name that the browser used.

        Without a certificate of its own, the server may be behind a TLS proxy, so that the scheme is unknown and both
        are accepted. This is safe: the host is an address or an allowed name (`_is_for_us`), so a page of another site
        has neither origin. Browsers report requests from http to https as cross-site (Sec-Fetch-Site)."""
        schemes = ("https",) if self.services.settings.tls else ("http", "https")
        return [f"{scheme}://{request.headers.get('host', '')}" for scheme in schemes]

    def origin(self, request: Request, url: str | None = None) -> str:
        """Return the origin that the browser used: that of `url`, by default of the headers Origin and Referer. If it
        is unknown, return the origin by which the server is reached directly."""
        origins = self.origins(request)
        given = url or request.headers.get("origin") or request.headers.get("referer", "")
        return next((each for each in origins if f"{given}/".startswith(f"{each}/")), origins[0])

    def is_secure(self, request: Request) -> bool:
        """Whether the browser uses HTTPS, possibly through a TLS proxy, so that cookies get the attribute Secure."""
        return self.origin(request).startswith("https:")

    # -- routes that are not in the table ---------------------------------------------------------------------------

    async def _openapi(self, request: Request) -> Response:
        if not self._openapi_text:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, document, self._operations)
            self._openapi_text = msgspec.json.encode(found)
        return Response(self._openapi_text, media_type="application/json")

    async def _problem(self, request: Request) -> Response:
        given = request.path_params["status"]
        title = problems.explained(int(given)) if _STATUS.fullmatch(given) else None
        if title is None:
            raise Problem(404, "unknown problem type")
        return Response(f"{given}: {title}\n", media_type="text/plain")

    # -- wrappers --------------------------------------------------------------------------------------------------

    def endpoint(self, work: Endpoint) -> Endpoint:
        """Wrap an endpoint so that its exceptions become responses."""

        async def answer(request: Request) -> Response:
            try:
                return await work(request)
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as error:
                return problem_response(self.problem_of(error, request), request)

        return answer

    @staticmethod
    def problem_of(error: Exception, request: Request) -> Problem:
        """Convert an exception of an endpoint to a Problem. Logs it if it is not an error of the request."""
        if isinstance(error, Problem):
            return error
        if isinstance(error, MsmqError):
            return problems.of_error(error)
        if isinstance(error, ConnectionError):
            logger.warning("queue manager does not answer: %s", error)
            return Problem(503, f"the queue manager does not answer: {error}")
        logger.error("%s %s failed", request.method, printable(request.url.path[:200]), exc_info=error)
        return Problem(500, "this request failed, see the log")

    def _guarded(self, app: ASGIApp) -> ASGIApp:
        """Wrap the application: check the host and add the headers that every response has."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                if scope["type"] == "lifespan":
                    await app(scope, receive, send)
                return
            scope["state"] = {"request_id": secrets.token_hex(8)}

            async def send_guarded(message: Message) -> None:
                if message["type"] == "http.response.start":
                    given = {name.lower() for name, _ in message["headers"]}
                    headers = {name: value for name, value in _HEADERS.items() if name not in given}
                    if self.services.settings.tls:
                        headers[b"strict-transport-security"] = _STRICT_TRANSPORT
                    message["headers"] = [*message["headers"], *headers.items()]
                await send(message)

            problem = self._refusal(scope)
            response = app if problem is None else problem_response(problem, Request(scope))
            await response(scope, receive, send_guarded)

        return guarded

    def _refusal(self, scope: Scope) -> Problem | None:
        """Return the problem of a request that must not be served because of its headers."""
        if _header_size(scope) > HEADERS:
            return Problem(400, f"request line and headers exceed {HEADERS} bytes", headers={"Connection": "close"})
        if _has_two_lengths(scope):
            return Problem(400, "Content-Length and Transfer-Encoding are both present; only one of them may be",
                           headers={"Connection": "close"})  # fmt: skip
        if not self._is_for_us(scope):
            return Problem(421, "this server does not know the host that was asked for; see the setting web_hosts")
        return None

    def _is_for_us(self, scope: Scope) -> bool:
        """Whether the Host header names this server. In a DNS rebinding attack, it has the name of the other site. An
        IP address cannot be used for this attack."""
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            return False
        host = hosts[0]
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        return name.casefold() in self._hosts or _is_address(name)


def _header_size(scope: Scope) -> int:
    """Return the size of request line and headers in bytes. h11 limits only headers that arrive in several reads."""
    line = len(scope["raw_path"]) + len(scope["query_string"])
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"])


def _has_two_lengths(scope: Scope) -> bool:
    """Whether a request has both length headers: a possible request smuggling attempt, so the connection must be closed
    (RFC 9112 6.1)."""
    names = {name for name, _ in scope["headers"]}
    return b"content-length" in names and b"transfer-encoding" in names


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def peer_of(request: Request) -> str:
    """Return the address of the client."""
    return request.client.host if request.client is not None else "?"


def problem_response(problem: Problem, request: Request) -> Response:
    body = json_bytes(problem.document(request.scope["state"]["request_id"]))
    return Response(body, problem.status, problem.headers, media_type=problems.MEDIA_TYPE)
