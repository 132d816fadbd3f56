"""Pages of the console for users, groups and tokens."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from openmsmq.actions import tokens, users
from openmsmq.console.callers import WebCaller
from openmsmq.console.derived import body_of, handler_of
from openmsmq.console.pages import Console, converted, whole
from openmsmq.model.roles import Role

_FIELDS_OF_USER: Final = ("password", "role")


def routes(console: Console) -> list[Route]:
    """Their routes."""
    show, change = console.looking, console.changing

    async def show_users(request: Request, caller: WebCaller) -> Response:
        found = await console.ask(handler_of(users.list_users), request, caller)
        return console.render("users.html", caller, "Users", found=found, command=found.command)

    async def add_user(request: Request, caller: WebCaller) -> Response:
        form = request.state.form
        values = {name: form.get(name, "") for name in ("name", *_FIELDS_OF_USER)}
        body = converted({**values, "administrator": "administrator" in form}, users.NewUser)
        await console.ask(handler_of(users.create_user), request, caller, body=body)
        return RedirectResponse("/users", 303)

    async def change_user(request: Request, caller: WebCaller) -> Response:
        form = request.state.form
        given: dict[str, Any] = {name: form[name] for name in _FIELDS_OF_USER if form.get(name)}
        body = converted(given, body_of(users.change_user))
        await console.ask(handler_of(users.change_user), request, caller, body=body)
        return RedirectResponse("/users", 303)

    async def remove_user(request: Request, caller: WebCaller) -> Response:
        await console.ask(handler_of(users.delete_user), request, caller)
        return RedirectResponse("/users", 303)

    async def add_group(request: Request, caller: WebCaller) -> Response:
        body = converted({"name": request.state.form.get("name", "")}, users.NewGroup)
        await console.ask(handler_of(users.create_group), request, caller, body=body)
        return RedirectResponse("/users", 303)

    async def change_group(request: Request, caller: WebCaller) -> Response:
        form = request.state.form
        member = form.get("user", "")
        body = converted({"leave" if form.get("change") == "leave" else "join": [member]}, body_of(users.change_group))
        await console.ask(handler_of(users.change_group), request, caller, body=body)
        return RedirectResponse("/users", 303)

    async def remove_group(request: Request, caller: WebCaller) -> Response:
        await console.ask(handler_of(users.delete_group), request, caller)
        return RedirectResponse("/users", 303)

    async def show_tokens(request: Request, caller: WebCaller) -> Response:
        found = await console.ask(handler_of(tokens.list_tokens), request, caller)
        roles = [role.word for role in Role if role <= caller.role]
        return console.render("tokens.html", caller, "Tokens", found=found, roles=roles, command=found.command)

    async def create_token(request: Request, caller: WebCaller) -> Response:
        """Its page shows the secret once."""
        form = request.state.form
        values = {"name": form.get("name", ""), "role": form.get("role", ""), "days": whole(form.get("days", ""))}
        body = converted(values, tokens.NewToken)
        made = await console.ask(handler_of(tokens.create_token), request, caller, body=body)
        return console.render("token.html", caller, "Token", made=made, command=made.command)

    async def revoke_token(request: Request, caller: WebCaller) -> Response:
        await console.ask(handler_of(tokens.revoke_token), request, caller)
        return RedirectResponse("/tokens", 303)

    return [
        Route("/users", show(show_users), methods=["GET"]),
        Route("/users", change(add_user), methods=["POST"]),
        Route("/users/{user}", change(change_user), methods=["POST"]),
        Route("/users/{user}/remove", change(remove_user), methods=["POST"]),
        Route("/groups", change(add_group), methods=["POST"]),
        Route("/groups/{group}", change(change_group), methods=["POST"]),
        Route("/groups/{group}/remove", change(remove_group), methods=["POST"]),
        Route("/tokens", show(show_tokens), methods=["GET"]),
        Route("/tokens", change(create_token), methods=["POST"]),
        Route("/tokens/{token}/revoke", change(revoke_token), methods=["POST"]),
    ]
