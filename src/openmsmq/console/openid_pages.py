"""Login by OpenID Connect: redirects to the provider and back. The daemon checks the returned code."""

from __future__ import annotations

import base64
import hmac
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from openmsmq.console import account
from openmsmq.console.application import peer_of
from openmsmq.console.pages import Console, own_path
from openmsmq.console.problems import Problem

CALLBACK: Final = "/login/openid/callback"
_SECONDS: Final = 600  # lifetime of the cookie with the state
_LONGEST: Final = 4096  # characters per returned parameter


class OpenIdPages:
    """Routes of one console; none if no provider is set.

    The browser must also return the state in a cookie, so that an attacker cannot log another browser in to the
    attacker's account. That cookie is SameSite=Lax, because the provider redirects the browser here. The session cookie
    is Strict: browsers do not send it with a redirect that the provider started, so a page continues to the next page.
    """

    def __init__(self, console: Console) -> None:
        self._console: Final = console
        self._services: Final = console.web.services
        is_on = bool(self._services.settings.openid)
        self.routes: Final = [
            Route("/login/openid", console.with_error_pages(self._begin), methods=["GET"]),
            Route(CALLBACK, console.with_error_pages(self._finish), methods=["GET"]),
        ] if is_on else []  # fmt: skip

    @property
    def _cookie(self) -> str:
        return f"{self._services.settings.cookie}-openid"

    async def _begin(self, request: Request) -> Response:
        origin = self._console.web.origin(request)
        found = await self._console.web.work(self._services.begin_openid, origin + CALLBACK)
        response = RedirectResponse(found["url"], 303)
        after = origin + own_path(request.query_params.get("next"))
        encoded = base64.urlsafe_b64encode(after.encode()).decode().rstrip("=")
        self._set_cookie(response, f"{found['state']}.{encoded}", secure=origin.startswith("https:"))
        return response

    async def _finish(self, request: Request) -> Response:
        given = {name: request.query_params.get(name, "")[:_LONGEST] for name in ("state", "code", "error")}
        state, _, encoded = request.cookies.get(self._cookie, "").rpartition(".")
        if not state or not hmac.compare_digest(state.encode(), given["state"].encode()):
            return await self._refused(request, 400, "this login was not begun in this browser, or too long ago")
        if given["error"] or not given["code"]:
            return await self._refused(request, 401, f"the provider refused the login: {given['error'] or 'no code'}")
        after = _decoded(encoded) or ""
        origin = self._console.web.origin(request, after)
        try:
            secret = await self._console.web.work(
                account.begin_by_openid, self._services, state, given["code"], origin + CALLBACK, peer_of(request)
            )
        except Problem as problem:
            return await self._refused(request, problem.status, problem.detail)
        following = own_path(after.removeprefix(origin))
        response = await self._console.render(request, "openid.html", "Log in", next=following)
        response.headers["Refresh"] = f"0; url={quote(following, safe='/?&=%;:@!$+,~')}"
        secure = origin.startswith("https:")
        account.set_cookie(response, self._services.settings, secret, secure=secure)
        self._set_cookie(response, "", secure=secure)
        return response

    async def _refused(self, request: Request, status: int, why: str) -> Response:
        response = await self._console.login_form(request, next_="/", wrong=why)
        response.status_code = status
        self._set_cookie(response, "", secure=self._console.web.is_secure(request))
        return response

    def _set_cookie(self, response: Response, value: str, *, secure: bool) -> None:
        """Set the state cookie; delete it if `value` is empty."""
        response.set_cookie(
            self._cookie, value, max_age=_SECONDS if value else 0, path="/", secure=secure, httponly=True,
            samesite="lax",
        )  # fmt: skip


def _decoded(text: str) -> str | None:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        return None
