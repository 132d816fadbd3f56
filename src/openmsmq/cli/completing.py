"""Shell completion: names of queues, read from the running queue manager."""

from __future__ import annotations

import os
from typing import Any

import click
from click.shell_completion import CompletionItem

VARIABLE = "_OPENMSMQ_COMPLETE"  # set by the completion scripts of the shells
_PATIENCE = 1.0  # seconds for a connection: a user is waiting for the completion
_QUEUES = frozenset(["queue", "source", "target", "field_queue"])  # arguments and options that take a queue
_GROUPS = frozenset(["queue", "outgoing"])  # commands whose argument `name` is a queue


class _QueueName(click.types.StringParamType):
    """The name of a queue."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in _names(_given(ctx)) if name.lower().startswith(incomplete.lower())]


def completing(command: click.Command) -> click.Command:
    """Give a command completion for those of its arguments that are queues."""
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
    """Return the short names of queues; none if the queue manager does not answer or refuses this caller."""
    import openmsmq
    from openmsmq.model.queue_names import SYSTEM_QUEUES

    user = given.get("user") or os.environ.get("OPENMSMQ_USER")
    password = os.environ.get(given.get("password_env") or "OPENMSMQ_PASSWORD", "")
    if user and not password:
        return []  # a name that the shell would require the user to quote
    try:
        with openmsmq.connect(
            given.get("host") or "localhost", given.get("port"), port_offset=given.get("port_offset") or 0,
            user=user, password=password, timeout=_PATIENCE,
        ) as qm:  # fmt: skip
            paths = qm.queues()
    except (openmsmq.MsmqError, OSError, ValueError):
        return []
    return sorted({path.rpartition("\\")[2] for path in paths} | SYSTEM_QUEUES.keys() - {"deadxact"})
