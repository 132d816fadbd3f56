"""`openmsmq queue …`"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import click

from openmsmq.actions import permissions as permission_actions
from openmsmq.actions import queues
from openmsmq.admin import permissions
from openmsmq.admin.naming import path_of
from openmsmq.cli.connection import connected
from openmsmq.cli.derived import add_commands
from openmsmq.cli.output import dry_run_option, json_option, management_rows, print_json, print_table, report
from openmsmq.client.arguments import COUNTS
from openmsmq.client.operations import PROPERTIES
from openmsmq.client.sync import QueueManager
from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import AccessDenied, HResult, MsmqError
from openmsmq.model.security import SecurityDescriptor
from openmsmq.model.words import in_words

if TYPE_CHECKING:
    from openmsmq.client.properties import QueuePropertyName

_FLAGS = ("journal", "transactional", "authenticate", "poison_to_deadletter")
_NUMBERS = ("quota", "journal_quota", "priv_level", "delivery_limit")
_QUOTAS = ("quota", "journal_quota")


_COLUMNS = {
    "path_name": "queue", "message_count": "messages", "bytes_in_queue": "bytes", "journal_message_count": "journal",
    "subqueue_messages": "in subqueues", "error": "",
}  # fmt: skip


@click.group()
def queue() -> None:
    """Create, list, show, change, delete and purge queues; set who may use them.

    NAME is a path name (.\\private$\\orders), a format name (DIRECT=OS:...), just the name of a private queue,
    NAME;journal, or deadletter, xactdeadletter, journal of the machine.
    """


add_commands(queue, (*queues.ACTIONS, *permission_actions.ACTIONS))


@queue.command("list")
@json_option
@connected
def list_(qm: QueueManager, as_json: bool) -> None:
    """List private queues with their counts, public queues that are open, and connector queues that hold messages or
    are open. Messages in subqueues are not counted with their queue; they have a separate column.

    No published protocol lists public queues that are not open; use `openmsmq directory queues`.
    """
    active = qm.management(None, "active_queues")["active_queues"]
    connectors = sorted(name for name in active if name.startswith("CONNECTOR="))
    public = sorted(_paths(qm, [name for name in active if name.startswith("PUBLIC=")]))
    names = [*sorted(qm.queues()), *public, *connectors]
    rows = [{"path_name": name, **counts} for name, counts in zip(names, _counts(qm, names), strict=True)]
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(_COLUMNS.values(), [[_figure(row.get(column, "-")) for column in _COLUMNS] for row in rows])


def _figure(value: Any) -> str:
    return "-" if value is None else str(value)


def _paths(qm: QueueManager, names: list[str]) -> list[str]:
    """Return the path names of public queues; the format name of one that this caller may not read."""
    found = qm.management_of_each(names, "path_name")
    return [name if isinstance(each, Exception) else each["path_name"] or name
            for name, each in zip(names, found, strict=True)]  # fmt: skip


def _counts(qm: QueueManager, names: list[str]) -> list[dict[str, Any]]:
    """Return the counts of each queue and of its subqueues, and `error`: empty, or why the server refuses them to this
    caller. The number of messages in subqueues is None if the server does not support subqueues.
    """
    found = qm.management_of_each(names, *COUNTS, "subqueue_names")
    older = [name for name, each in zip(names, found, strict=True) if _is_unknown_property(each)]
    again = iter(qm.management_of_each(older, *COUNTS))
    found = [next(again) if _is_unknown_property(each) else each for each in found]
    inside = [f"{name};{subqueue}" for name, each in zip(names, found, strict=True) if not isinstance(each, Exception)
              for subqueue in each.get("subqueue_names") or ()]  # fmt: skip
    messages = {name: 0 if isinstance(each, Exception) else each["message_count"]
                for name, each in zip(inside, qm.management_of_each(inside, "message_count"), strict=True)}  # fmt: skip
    return [_row(name, each, messages) for name, each in zip(names, found, strict=True)]


def _is_unknown_property(answer: dict[str, Any] | Exception) -> bool:
    """Whether the server does not know the properties of subqueues."""
    return isinstance(answer, MsmqError) and answer.hresult == HResult.MQ_ERROR_ILLEGAL_PROPID


def _row(name: str, found: dict[str, Any] | Exception, messages: Mapping[str, int]) -> dict[str, Any]:
    if isinstance(found, MsmqError):  # the queue refuses or was deleted in the meantime; the others are not affected
        return {"error": found.name}
    if isinstance(found, Exception):
        raise found
    counts, subqueues = {count: found[count] for count in COUNTS}, found.get("subqueue_names")
    held = None if subqueues is None else sum(messages[f"{name};{each}"] for each in subqueues)
    return {**counts, "subqueue_messages": held, "error": ""}


@queue.command()
@click.argument("name")
@json_option
@connected
def show(qm: QueueManager, name: str, as_json: bool) -> None:
    """Show all properties of a queue, including management properties, and its security descriptor.

    Journals, subqueues, system queues and outgoing queues have management properties only.
    """
    path = path_of(name)
    management = qm.management(path)
    properties = _properties(qm, path, management)
    if properties is None:
        if as_json:
            print_json({"management": management})
        else:
            print_table(["property", "value"], management_rows(management))
        return
    try:
        descriptor = SecurityDescriptor.parse(qm.security(path))
    except AccessDenied:
        descriptor = None
    if as_json:
        guard: dict[str, Any] = {}
        if descriptor is not None:
            aces = [{"type": a.type, "mask": a.mask, "sid": a.sid} for a in descriptor.dacl or ()]
            guard = {"owner": descriptor.owner, "dacl": aces}
        print_json({**properties, **{count: management[count] for count in COUNTS}, **guard, "management": management})
        return
    shown = {key: value for key, value in management.items() if key not in properties and value is not None}
    shown = {"kind": management["type"], **shown}  # `type` is the property, a UUID
    rows = [*((key, in_words(key, value)) for key, value in properties.items()), *management_rows(shown)]
    if descriptor is None:
        rows += [("access", "not shown: the right GetQueuePermissions is missing")]
    else:
        rows += [("owner", permissions.name_for(descriptor.owner, {}) if descriptor.owner else "-")]
        access = permissions.entries(descriptor, {})
        rows += [("access", f"{entry.kind} {entry.name} {' '.join(entry.rights)}") for entry in access]
    print_table(["property", "value"], rows)


def _properties(qm: QueueManager, path: str, management: dict[str, Any]) -> dict[str, Any] | None:
    """Return the properties of a queue object. None for other queues, and for a public queue whose properties the
    server does not return ([MS-MQMP] 3.1.4.9: of private queues)."""
    is_object = management["location"] == "LOCAL" and management["type"] in ("PRIVATE", "PUBLIC")
    if not is_object or ";" in path:  # of a journal or a subqueue
        return None
    try:
        return dict(qm.properties(path))
    except AccessDenied:
        raise
    except MsmqError:
        if management["type"] == "PRIVATE":
            raise
        return None


@queue.command("set")
@click.argument("name")
@click.argument("assignments", nargs=-1, required=True, metavar="PROPERTY=VALUE...")
@dry_run_option
@json_option
@connected
def set_(qm: QueueManager, name: str, assignments: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Change properties: label, journal, quota, journal_quota, authenticate, priv_level, delivery_limit, ..."""
    values = dict(_assignment(a) for a in assignments)
    if dry_run:
        before = qm.properties(path_of(name), *cast("list[QueuePropertyName]", list(values)))
        changes = ", ".join(f"{key} {before[key]!r} -> {value!r}" for key, value in values.items())
        report(as_json, f"would be changed: {changes}", {"queue": path_of(name), "before": before, "after": values})
        return
    qm.set_properties(path_of(name), **values)
    report(as_json, f"changed {path_of(name)}", {"queue": path_of(name), "changed": values})


def _assignment(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    key = key.replace("-", "_")
    if not separator or key not in PROPERTIES:
        raise click.UsageError(f"{text!r}: expected PROPERTY=VALUE with one of {', '.join(PROPERTIES)}")
    if key == "base_priority":
        raise click.UsageError(f"{text!r}: private queues have no base priority, it is always 0")
    if key in _FLAGS:
        if value.lower() not in ("0", "1", "true", "false", "yes", "no"):
            raise click.UsageError(f"{text!r}: expected 0, 1, true, false, yes or no")
        return key, value.lower() in ("1", "true", "yes")
    if key in _QUOTAS and value.lower() == "none":
        return key, INFINITE
    if key in _NUMBERS:
        try:
            return key, int(value, 0)
        except ValueError:
            raise click.UsageError(f"{text!r}: expected a whole number") from None
    if key == "type":
        try:
            return key, UUID(value)
        except ValueError:
            raise click.UsageError(f"{text!r}: expected a UUID") from None
    return key, value
