"""Pages of the console for users, groups and tokens."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from openmsmq.actions import tokens, users
from openmsmq.console.callers import WebCaller
from openmsmq.console.derived import body_of, handler_of
from openmsmq.console.forms import converted, inputs
from openmsmq.console.pages import Console
from openmsmq.model.roles import Role


def routes(console: Console) -> list[Route]:
    """Those that are not in the table of forms."""
    show, change = console.looking, console.changing

    async def show_users(request: Request, caller: WebCaller) -> Response:
        found = await console.ask(handler_of(users.list_users), request, caller)
        return console.render("users.html", caller, "Users", found=found, command=found.command)

    async def change_group(request: Request, caller: WebCaller) -> Response:
        form = request.state.form
        change = {"leave" if form.get("change") == "leave" else "join": [form.get("user", "")]}
        body = converted(change, body_of(users.change_group))
        await console.ask(handler_of(users.change_group), request, caller, body=body)
        return RedirectResponse("/users", 303)

    async def show_tokens(request: Request, caller: WebCaller) -> Response:
        found = await console.ask(handler_of(tokens.list_tokens), request, caller)
        roles = [role.word for role in Role if role <= caller.role]
        return console.render("tokens.html", caller, "Tokens", found=found, roles=roles, command=found.command)

    async def create_token(request: Request, caller: WebCaller) -> Response:
        """Its page shows the secret once."""
        given = inputs(tokens.create_token, request.state.form)
        made = await console.ask(handler_of(tokens.create_token), request, caller, **given)
        return console.render("token.html", caller, "Token", made=made, command=made.command)

    return [
        Route("/users", show(show_users), methods=["GET"]),
        Route("/groups/{group}", change(change_group), methods=["POST"]),
        Route("/tokens", show(show_tokens), methods=["GET"]),
        Route("/tokens", change(create_token), methods=["POST"]),
    ]
