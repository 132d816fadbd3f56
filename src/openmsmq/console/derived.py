"""Operations of the API that follow from the table of actions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import msgspec

from openmsmq.actions import alarms, audit, settings, tokens, users
from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.site import ActionCaller, ActionSite
from openmsmq.actions.table import Action, ActionEffect, Empty, Input
from openmsmq.console.problems import Problem
from openmsmq.console.recording import record
from openmsmq.console.table import HttpOperation, WebRequest

ACTIONS: Final[tuple[Action, ...]] = (
    *alarms.ACTIONS, *audit.ACTIONS, *settings.ACTIONS, *tokens.ACTIONS, *users.ACTIONS
)  # fmt: skip


def operation(action: Action) -> HttpOperation:
    """What the API has of an action."""
    rest = _without_path(action)
    in_query = action.method in ("GET", "DELETE")
    statuses = {*action.statuses, *action.refuses.values()}
    statuses |= {404} if action.in_path else set()
    statuses |= {507} if action.audit else set()
    return HttpOperation(
        action.method, action.path, _handler(action), action.summary, action.output,
        query=rest if in_query else Empty, body=None if in_query or rest is Empty else rest, status=action.status,
        statuses=tuple(statuses), role=action.role, description=action.description, path_fields=action.input,
        extensions={"x-action": action.name, "x-effect": action.effect.value} | (
            {"x-audit": list(action.audit)} if action.effect is not ActionEffect.READS else {}
        ),
    )  # fmt: skip


def _without_path(action: Action) -> type[Input]:
    """The input without the fields that are in the path."""
    kept = [each for each in msgspec.structs.fields(action.input) if each.name not in action.in_path]
    if not kept:
        return Empty
    if not action.in_path:
        return action.input
    made = msgspec.defstruct(
        action.input.__name__, [_declared(each) for each in kept], bases=(Input,), frozen=True,
        forbid_unknown_fields=True, namespace={"__doc__": action.input.__doc__},
    )  # fmt: skip
    return cast("type[Input]", made)


def _declared(each: msgspec.structs.FieldInfo) -> tuple[str, Any] | tuple[str, Any, Any]:
    if each.required:
        return each.name, each.type
    if each.default_factory is msgspec.NODEFAULT:
        return each.name, each.type, each.default
    return each.name, each.type, msgspec.field(default_factory=each.default_factory)


def _handler(action: Action) -> Callable[[WebRequest], Any]:
    def handler(asked: WebRequest) -> Any:
        given = msgspec.structs.asdict(asked.body or asked.query or Empty())
        return perform(action, asked, action.input(**asked.path, **given))

    handler.__name__ = action.run.__name__
    return handler


def perform(action: Action, asked: WebRequest, given: Input) -> Any:
    """The output of an action, for the caller of a request. Raises Problem, MsmqError."""
    settings, caller = asked.services.settings, asked.caller

    def visible() -> set[str]:
        return {row["name"] for row in asked.services.rows.of(caller.ticket)}

    site = ActionSite(
        settings.directory, settings.users_path,
        ActionCaller(caller.name, caller.sid, caller.administrator, caller.role, caller.token), partial(record, asked),
        settings.hosts[0], None if caller.administrator else visible,
    )  # fmt: skip
    try:
        return action.perform(site, given)
    except ActionRefused as refused:
        errors = {refused.pointer: str(refused)} if refused.pointer else None
        raise Problem(refused.status, str(refused), errors=errors) from None
    except tuple(action.refuses) as error:
        status = next(status for kind, status in action.refuses.items() if isinstance(error, kind))
        raise Problem(status, str(error)) from None


OPERATIONS: Final = tuple(map(operation, ACTIONS))
_BY_ACTION: Final = {action.name: derived for action, derived in zip(ACTIONS, OPERATIONS, strict=True)}


def handler_of(action: Action) -> Callable[[WebRequest], Any]:
    """The handler of the operation of an action."""
    return _BY_ACTION[action.name].handler


def body_of(action: Action) -> type[Input]:
    """What the body of a request for an action has."""
    return _BY_ACTION[action.name].body or Empty
