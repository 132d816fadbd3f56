"""`openmsmq queue …`"""

from __future__ import annotations

from typing import Any

import click

from openmsmq.actions import permissions as permission_actions
from openmsmq.admin import permissions
from openmsmq.admin.naming import path_of, public_path_of
from openmsmq.cli.connection import connected
from openmsmq.cli.derived import add_commands
from openmsmq.cli.output import dry_run_option, json_option, management_rows, print_json, print_table, report
from openmsmq.client.arguments import COUNTS
from openmsmq.client.calls import UNANSWERED
from openmsmq.client.operations import PROPERTIES
from openmsmq.client.sync import QueueManager
from openmsmq.model.constants import MOST_DELIVERIES, Access
from openmsmq.model.errors import MsmqError, QueueNotFound
from openmsmq.model.security import SecurityDescriptor
from openmsmq.model.text import counted, time_text

_FLAGS = ("journal", "transactional", "authenticate", "poison_to_deadletter")
_NUMBERS = ("quota", "journal_quota", "base_priority", "priv_level", "delivery_limit")
_TEXTS = ("label", "multicast_address")


@click.group()
def queue() -> None:
    """Create, list, show, change, delete and purge queues; say who may use them.

    NAME is a path name (.\\private$\\orders), a format name (DIRECT=OS:...), just the name of a private queue,
    NAME;journal, or deadletter, xactdeadletter, journal of the machine.
    """


add_commands(queue, permission_actions.ACTIONS)


@queue.command()
@click.argument("name")
@click.option("--public", is_flag=True, help="A public queue, which the directory keeps; NAME is orders or .\\orders.")
@click.option("--label", help="Text for people, at most 124 characters.")
@click.option("--transactional", is_flag=True, help="Takes messages in transactions only.")
@click.option("--journal", is_flag=True, help="Keep copies of received messages in the queue's journal.")
@click.option("--quota", type=int, help="Quota of the queue in kilobytes.")
@click.option("--journal-quota", type=int, help="Quota of the journal in kilobytes.")
@click.option("--multicast-address", help="address:port")
@click.option("--authenticate", is_flag=True, help="Take messages of authenticated senders only.")
@click.option(
    "--priv-level", type=click.IntRange(0, 2), help="Bodies: 0 clear only, 1 both (default), 2 encrypted only."
)
@click.option(
    "--delivery-limit", type=click.IntRange(0, MOST_DELIVERIES),
    help="Aborted receives after which a message moves to the subqueue poison (0: no limit, the default).",
)  # fmt: skip
@click.option(
    "--poison-to-deadletter", is_flag=True,
    help="At the delivery limit, move messages to the dead-letter queue instead of the subqueue poison.",
)  # fmt: skip
@dry_run_option
@json_option
@connected
def create(qm: QueueManager, name: str, public: bool, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Create a private queue, or a public one."""
    properties = {key: value for key, value in options.items() if value is not None and value is not False}
    path = public_path_of(name) if public else path_of(name)
    if dry_run:
        there = _exists(qm, path) if public else _is_among(path, qm.queues())
        said = f"{path} exists" if there else f"would be created: {path}"
        report(as_json, said, {"path_name": path, "exists": there, "done": False})
        return
    format_name = qm.create_queue(path, **properties)
    if public:
        format_name = qm.format_name(path)
    said = f"created {path}, {format_name}" if public else f"created {path}"
    report(as_json, said, {"path_name": path, "format_name": format_name})


def _is_among(path: str, paths: list[str]) -> bool:
    return any(there.lower().endswith(path.lower().lstrip(".")) for there in paths)


def _exists(qm: QueueManager, path: str) -> bool:
    try:
        qm.format_name(path)
    except QueueNotFound:
        return False
    return True


@queue.command("list")
@json_option
@connected
def list_(qm: QueueManager, as_json: bool) -> None:
    """List private queues with their counts, public queues that are open, and connector queues that hold messages or
    are open.

    No published protocol lists the public queues of a machine that nobody has open: `openmsmq directory queues` does.
    """
    active = qm.management()["active_queues"]
    connectors = sorted(name for name in active if name.startswith("CONNECTOR="))
    public = sorted(_public(qm, name) for name in active if name.startswith("PUBLIC="))
    rows = [{"path_name": name, **_counts(qm, name)} for name in [*sorted(qm.queues()), *public, *connectors]]
    if as_json:
        for row in rows:
            print_json(row)
    else:
        columns = ("path_name", "message_count", "bytes_in_queue", "journal_message_count", "error")
        print_table(["queue", "messages", "bytes", "journal", ""], [[r.get(c, "-") for c in columns] for r in rows])


def _public(qm: QueueManager, name: str) -> str:
    """The path name of a public queue; its format name where this caller is not told."""
    try:
        return str(qm.management(name)["path_name"] or name)
    except UNANSWERED:
        raise
    except MsmqError:
        return name


def _counts(qm: QueueManager, name: str) -> dict[str, Any]:
    """The counts of a queue, and `error`: empty, or why the server does not give them to this caller."""
    try:
        return {**qm.counts(name), "error": ""}
    except UNANSWERED:
        raise
    except MsmqError as error:  # one queue refuses, or was deleted meanwhile; that is nothing about the others
        return {"error": error.name}


@queue.command()
@click.argument("name")
@json_option
@connected
def show(qm: QueueManager, name: str, as_json: bool) -> None:
    """Show all properties of a queue, including management properties, and its security descriptor.

    Public queues, journals, system queues and outgoing queues have management properties only.
    """
    path = path_of(name)
    management = qm.management(path)
    if not _has_properties(path, management):
        if as_json:
            print_json({"management": management})
        else:
            print_table(["property", "value"], management_rows(management))
        return
    properties = qm.properties(path)
    descriptor = SecurityDescriptor.parse(qm.security(path))
    if as_json:
        aces = [{"type": a.type, "mask": a.mask, "sid": a.sid} for a in descriptor.dacl or ()]
        counts = {count: management[count] for count in COUNTS}
        print_json({**properties, **counts, "owner": descriptor.owner, "dacl": aces, "management": management})
        return
    for key in ("create_time", "modify_time"):
        properties[key] = time_text(properties[key])
    shown = {key: value for key, value in management.items() if key not in properties and value is not None}
    rows = [*properties.items(), *management_rows(shown), ("owner", descriptor.owner)]
    access = permissions.entries(descriptor, {})
    rows += [("access", f"{entry.kind} {entry.name} {' '.join(entry.rights)}") for entry in access]
    print_table(["property", "value"], rows)


def _has_properties(path: str, management: dict[str, Any]) -> bool:
    """Journals, system queues and outgoing queues are not queue objects, and public ones are those of the directory."""
    is_object = management["location"] == "LOCAL" and management["type"] == "PRIVATE"
    return is_object and not path.lower().endswith(";journal")


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
        before = qm.properties(path_of(name), *values)
        said = ", ".join(f"{key} {before[key]!r} -> {value!r}" for key, value in values.items())
        report(as_json, f"would be changed: {said}", {"queue": path_of(name), "before": before, "after": values})
        return
    qm.set_properties(path_of(name), **values)
    report(as_json, f"changed {path_of(name)}", {"queue": path_of(name), "changed": values})


def _assignment(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    key = key.replace("-", "_")
    if not separator or key not in PROPERTIES:
        raise click.UsageError(f"{text!r}: expected PROPERTY=VALUE with one of {', '.join(PROPERTIES)}")
    if key in _FLAGS:
        if value.lower() not in ("0", "1", "true", "false", "yes", "no"):
            raise click.UsageError(f"{text!r}: expected 0, 1, true, false, yes or no")
        return key, value.lower() in ("1", "true", "yes")
    if key in _NUMBERS:
        try:
            return key, int(value, 0)
        except ValueError:
            raise click.UsageError(f"{text!r}: expected a whole number") from None
    return key, value


@queue.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@dry_run_option
@json_option
@connected
def delete(qm: QueueManager, name: str, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete a queue with its messages."""
    counts = qm.counts(path_of(name))
    count = counts["message_count"]
    if dry_run:
        journal = counts["journal_message_count"]
        said = f"would be deleted: {path_of(name)} with {counted(count, 'message')}, and {journal:,} in its journal"
        report(as_json, said, {"queue": path_of(name), "messages": count, "journal": journal, "done": False})
        return
    if count and not yes:
        click.confirm(f"{path_of(name)} holds {count} messages. Delete?", abort=True, err=True)
    qm.delete_queue(path_of(name))
    report(as_json, f"deleted {path_of(name)}", {"deleted": path_of(name), "messages": count})


@queue.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@dry_run_option
@json_option
@connected
def purge(qm: QueueManager, name: str, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete all messages of a queue. Of what comes meanwhile some may go, too: `msg delete` takes only what it saw."""
    purge_queue(qm, path_of(name), Access.RECEIVE, yes, dry_run, as_json)


def purge_queue(qm: QueueManager, path: str, access: Access, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete all messages, after a question unless `yes`."""
    count = qm.counts(path)["message_count"]
    if dry_run:
        document = {"queue": path, "messages": count, "done": False}
        report(as_json, f"would be purged: {path}, {counted(count, 'message')}", document)
        return
    if count and not yes:
        click.confirm(f"Delete {count} messages of {path}?", abort=True, err=True)
    with qm.open(path, access) as opened:
        opened.purge()
    report(as_json, f"purged {path}: {counted(count, 'message')}", {"purged": path, "messages": count})
