"""Outgoing queues, and why their messages wait."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Annotated, Any, Final, Literal

from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import CommandText, doc
from openmsmq.actions.queues import NamedQueue, QueueName, QueueRemoval, Removal, daemon_of, removal
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Empty, LineView, Output, action
from openmsmq.admin.explaining import explanation
from openmsmq.admin.naming import shown
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.roles import Role

_EXPLAINED: Final = 100


class Waiting(Output, frozen=True):
    """An outgoing queue."""

    id: Annotated[str, doc("Its identifier.", "o3")]
    name: QueueName
    state: Annotated[str, doc("State of the connection.", "WAITING")]
    messages: Annotated[int, doc("Number of messages.")]
    bytes: Annotated[int, doc("Total size in bytes.")]
    explanation: Annotated[list[str], doc("Sentences: why its messages wait, and what to do.")]
    command: CommandText


class OutgoingList(Output, frozen=True):
    """Outgoing queues."""

    queues: Annotated[list[Waiting], doc("Outgoing queues with the most messages first, at most 100.")]
    all: Annotated[int, doc("Number of outgoing queues that the user may see.")]
    command: CommandText


@action(
    "outgoing.list", http="GET /outgoing", role=Role.MONITOR, statuses=(404,), place="queue manager",
    commands=(
        ActionCommand("outgoing list", by_hand="it shows the data of the MSMQ protocols"),
        ActionCommand("outgoing show", by_hand="it shows one queue with all properties"),
    ),
)  # fmt: skip
def list_outgoing(site: ActionSite, given: Empty) -> OutgoingList:
    """Show outgoing queues, and why their messages wait."""
    rows = [row for row in daemon_of(site).queues() if row["kind"] == "outgoing"]
    rows.sort(key=lambda row: (-row["messages"], row["name"].casefold()))
    known = {queue["format_name"].casefold(): queue for queue in site.manager.outgoing()}
    connected = site.manager.management(None, "connected")["connected"]

    def waiting(row: Mapping[str, Any]) -> Waiting:
        given = {"format_name": row["name"], "state": row["state"], "message_count": row["messages"]}
        queue = known.get(row["name"].casefold()) or given
        return Waiting(
            row["id"], row["name"], row["state"], row["messages"], row["bytes"], explanation(queue, connected),
            f"openmsmq outgoing show {quote(row['name'])}",
        )  # fmt: skip

    found = LEFT_OUT.each("lists of outgoing queues", rows[:_EXPLAINED], waiting, lambda row: row["name"])
    return OutgoingList(list(found), len(rows), "openmsmq outgoing list")


def _demand_outgoing(site: ActionSite) -> None:
    if site.queue["kind"] not in ("outgoing", ""):
        raise ActionRefused(409, f"{shown(site.queue['name'])} is not an outgoing queue")


def _act(site: ActionSite, what: Literal["pause", "resume"]) -> Waiting:
    _demand_outgoing(site)
    manager, path = site.manager, site.queue["open"]
    (manager.pause if what == "pause" else manager.resume)(path)
    queue = manager.management(path)
    row = {"id": "", "state": queue["state"], "messages": queue["message_count"], "bytes": queue["bytes_in_queue"]}
    connected = None
    if site.daemon is not None:
        connected = manager.management(None, "connected")["connected"]
        site.daemon.changed()
        row = site.daemon.queue(site.queue["id"])
    return Waiting(
        row["id"], site.queue["name"], row["state"], row["messages"], row["bytes"], explanation(queue, connected),
        f"openmsmq outgoing {what} {quote(site.queue['name'])}",
    )  # fmt: skip


_STATE: Final = LineView(
    lambda queue: f"{queue.name}: {queue.state}", lambda queue: {"queue": queue.name, "state": queue.state}
)


@action(
    "outgoing.pause", http="POST /outgoing/{queue}/pause", role=Role.OPERATOR, effect="changes",
    statuses=(409,), place="queue manager",
    commands=(
        ActionCommand(
            "outgoing pause", {"queue": "NAME"}, _STATE,
            help="Hold messages until `resume` or a restart of the server. For administrators.",
        ),
    ),
)  # fmt: skip
def pause_queue(site: ActionSite, given: NamedQueue) -> Waiting:
    """Hold the messages of an outgoing queue."""
    return _act(site, "pause")


@action(
    "outgoing.resume", http="POST /outgoing/{queue}/resume", role=Role.OPERATOR, effect="changes",
    statuses=(409,), place="queue manager",
    commands=(
        ActionCommand(
            "outgoing resume", {"queue": "NAME"}, _STATE, help="Release held messages. For administrators."
        ),
    ),
)  # fmt: skip
def resume_queue(site: ActionSite, given: NamedQueue) -> Waiting:
    """Release the messages of a paused outgoing queue."""
    return _act(site, "resume")


@action(
    "outgoing.delete", http="DELETE /outgoing/{queue}", effect="destroys", statuses=(409, 412, 507),
    dry_run="query", place="daemon",
    commands=(
        ActionCommand(
            "outgoing delete", {"queue": "NAME", "count": ""},
            by_hand="it gives the number of messages that it has asked about",
        ),
    ),
)  # fmt: skip
def delete_outgoing(site: ActionSite, given: QueueRemoval) -> Removal:
    """Delete an outgoing queue with its messages.

    The messages become dead letters and are acknowledged, if their senders requested it.
    """
    _demand_outgoing(site)

    def delete() -> int:
        count = daemon_of(site).change("delete_outgoing", id=site.queue["id"])
        if count is None:
            raise ActionRefused(404, "this outgoing queue no longer exists")
        return int(count)

    return removal(site, given, delete, "outgoing delete")


ACTIONS: Final = (list_outgoing, pause_queue, resume_queue, delete_outgoing)
