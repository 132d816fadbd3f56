"""Completion in shells: names of queues, asked of the running queue manager."""

from __future__ import annotations

import os
from typing import Any

import click
from click.shell_completion import CompletionItem

VARIABLE = "_OPENMSMQ_COMPLETE"  # set by the scripts of shells
_PATIENCE = 1.0  # seconds for a connection: somebody has pressed a key
_QUEUES = frozenset(["queue", "source", "target", "field_queue"])  # arguments, and options, that take a queue
_GROUPS = frozenset(["queue", "outgoing"])  # whose argument `name` is one


class _QueueName(click.types.StringParamType):
    """The name of a queue."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in _names(_given(ctx)) if name.lower().startswith(incomplete.lower())]


def completing(command: click.Command) -> click.Command:
    """The command, whose arguments that are queues are completed."""
    for name, each in command.commands.items() if isinstance(command, click.Group) else [("", command)]:
        if isinstance(each, click.Group):
            completing(each)
            continue
        for parameter in each.params:
            known = (parameter.name or "").rpartition("field_")[2] in _QUEUES
            known = known or (parameter.name == "name" and command.name in _GROUPS and name != "create")
            if known and isinstance(parameter.type, click.types.StringParamType):
                parameter.type = _QueueName()
    return command


def _given(context: click.Context) -> dict[str, Any]:
    found: dict[str, Any] = {}
    each: click.Context | None = context
    while each is not None:
        found = {**each.params, **found}
        each = each.parent
    return found


def _names(given: dict[str, Any]) -> list[str]:
    """Short names; none where the queue manager does not answer, or does not tell this caller."""
    import openmsmq
    from openmsmq.model.queue_names import SYSTEM_QUEUES

    user = given.get("user") or os.environ.get("OPENMSMQ_USER")
    password = os.environ.get(given.get("password_env") or "OPENMSMQ_PASSWORD", "")
    if user and not password:
        return []  # it would have to be typed
    try:
        with openmsmq.connect(
            given.get("host") or "localhost", given.get("port"), port_offset=given.get("port_offset") or 0,
            user=user, password=password, timeout=_PATIENCE,
        ) as qm:  # fmt: skip
            paths = qm.queues()
    except (openmsmq.MsmqError, OSError, ValueError):
        return []
    return sorted({path.rpartition("\\")[2] for path in paths} | SYSTEM_QUEUES.keys() - {"deadxact"})
