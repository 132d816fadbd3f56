"""Pages of the console for users, groups and tokens."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from openmsmq.actions import tokens, users
from openmsmq.console.callers import WebCaller
from openmsmq.console.derived import body_of, handler_of
from openmsmq.console.forms import converted, inputs
from openmsmq.console.pages import Console
from openmsmq.model.roles import Role


class AccountPages:
    """Pages of users, groups and tokens of one console."""

    def __init__(self, console: Console) -> None:
        self._console: Final = console
        show, change = console.page, console.form
        self.routes: Final = [
            Route("/users", show(self._users), methods=["GET"]),
            Route("/groups/{group}", change(self._change_group, self._users), methods=["POST"]),
            Route("/tokens", show(self._tokens), methods=["GET"]),
            Route("/tokens", change(self._create_token, self._tokens), methods=["POST"]),
        ]
        #: Path of a form -> the page that contains it, which is shown again if the form is refused.
        self.behind: Final = {
            **dict.fromkeys(
                ("/users", "/users/{user}", "/users/{user}/remove", "/groups", "/groups/{group}/remove"), self._users
            ),
            "/tokens/{token}/revoke": self._tokens,
            "/password": self._tokens,
        }

    async def _users(self, request: Request, caller: WebCaller) -> Response:
        found = await self._console.ask(handler_of(users.list_users), request, caller)
        return await self._console.render(request, "users.html", "Users and groups", found=found, command=found.command)

    async def _change_group(self, request: Request, caller: WebCaller) -> Response:
        form = request.state.form
        change = {"leave" if form.get("change") == "leave" else "join": [form.get("user", "")]}
        body = converted(change, body_of(users.change_group))
        await self._console.ask(handler_of(users.change_group), request, caller, body=body)
        return RedirectResponse("/users", 303)

    async def _tokens(self, request: Request, caller: WebCaller) -> Response:
        found = await self._console.ask(handler_of(tokens.list_tokens), request, caller)
        roles = [role.word for role in Role if role <= caller.role]
        return await self._console.render(
            request, "tokens.html", "Tokens and password", found=found, roles=roles, command=found.command
        )

    async def _create_token(self, request: Request, caller: WebCaller) -> Response:
        """Create a token; the page shows its secret once."""
        given = inputs(tokens.create_token, request.state.form)
        made = await self._console.ask(handler_of(tokens.create_token), request, caller, **given)
        return await self._console.render(request, "token.html", "Token", made=made, command=made.command)
