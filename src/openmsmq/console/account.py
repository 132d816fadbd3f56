"""Logging in and out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from starlette.responses import Response

from openmsmq.actions.fields import ROLE_WORDS
from openmsmq.actions.sessions import CurrentUser
from openmsmq.actions.table import Input
from openmsmq.console.limits import SESSION_SECONDS
from openmsmq.console.services import Services, WebSettings
from openmsmq.console.table import HttpOperation, WebRequest, json_response
from openmsmq.model.roles import Role


class LoginRequest(Input, frozen=True):
    """Name and password of a user."""

    user: Annotated[
        str, msgspec.Meta(min_length=1, max_length=256, description="Name of the user.", examples=["alice"])
    ]
    password: Annotated[str, msgspec.Meta(max_length=1024, description="Password of the user.", examples=["secret"])]


def open_session(asked: WebRequest) -> Response:
    given: LoginRequest = asked.body
    secret, who = begin(asked.services, given, asked.caller.peer)
    response = json_response(who, 201)
    set_cookie(response, asked.services.settings, secret, secure=asked.secure)
    return response


def begin(services: Services, given: LoginRequest, peer: str) -> tuple[str, CurrentUser]:
    """Log in with a password. Return the secret of the new session and its user. Raises Problem."""
    return _begun(services, services.login(given.user, given.password, peer))


def begin_by_link(services: Services, link: str, peer: str) -> str:
    """Log in with a one-time link. Return the secret of the new session. Raises Problem."""
    return _begun(services, services.login_by_link(link, peer))[0]


def begin_by_openid(services: Services, state: str, code: str, redirect: str, peer: str) -> str:
    """Log in with a code from the OpenID provider. Return the secret of the new session. Raises Problem."""
    return _begun(services, services.login_by_openid(state, code, redirect, peer))[0]


def _begun(services: Services, known: Mapping[str, Any]) -> tuple[str, CurrentUser]:
    secret, session = services.sessions.open(known["ticket"], known["sid"], known["name"])
    role = ROLE_WORDS[Role(known["role"])]
    return secret, CurrentUser(known["name"], known["sid"], known["administrator"], role, session.csrf)


def set_cookie(response: Response, settings: WebSettings, secret: str, *, secure: bool) -> None:
    """Set the session cookie; delete it if `secret` is empty. `secure`: browsers send it over HTTPS only."""
    response.set_cookie(
        settings.cookie, secret, max_age=int(SESSION_SECONDS) if secret else 0, path="/", secure=secure,
        httponly=True, samesite="strict",
    )  # fmt: skip


def close_session(asked: WebRequest) -> None:
    if asked.caller.session is not None:
        asked.services.sessions.close(asked.caller.session)


OPERATIONS: Final = (
    HttpOperation(
        "POST",
        "/session",
        open_session,
        "Log in: the answer sets a cookie",
        CurrentUser,
        body=LoginRequest,
        status=201,
        needs_login=False,
    ),
    HttpOperation(
        "DELETE", "/session", close_session, "End the session with which this is asked", status=204, role=Role.MONITOR
    ),
)
