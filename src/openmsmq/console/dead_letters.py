"""Dead letters by reason, and outgoing queues with why they wait."""

from __future__ import annotations

import time
from shlex import quote
from typing import Any, Final, Literal

from openmsmq.actions.table import Input, Output
from openmsmq.admin import dead_letters
from openmsmq.admin.explaining import explanation
from openmsmq.admin.naming import DEAD_LETTER_QUEUES, path_of, shown
from openmsmq.admin.selection import Criteria, select
from openmsmq.console.limits import SCANNED
from openmsmq.console.problems import Problem
from openmsmq.console.queues import CountQuery, Deleted, demand_count
from openmsmq.console.table import HttpOperation, WebRequest
from openmsmq.model.errors import MsmqError
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.roles import Role


class DeadLetterGroupView(Output, frozen=True):
    """Dead letters of one reason that were meant for one queue; times in seconds since 1970. `queue` is where they are:
    what is done to them goes by it, `reason` and `destination`."""

    queue: str
    reason: str
    name: str
    sentence: str
    remedy: str
    fails_again: bool
    destination: str
    messages: int
    bytes: int
    first_sent: int
    last_sent: int
    command: str


class Groups(Output, frozen=True):
    """The largest first. `complete` is false where only the first messages were looked at."""

    groups: list[DeadLetterGroupView]
    scanned: int
    complete: bool
    command: str


class GroupsQuery(Input, frozen=True):
    queue: Literal["deadletter", "xactdeadletter"] | None = None


class Waiting(Output, frozen=True):
    """An outgoing queue, and in sentences why its messages wait and what to do."""

    id: str
    name: str
    state: str
    messages: int
    bytes: int
    explanation: list[str]
    command: str


class OutgoingList(Output, frozen=True):
    """Those with most messages first; `explanation` is of the first 100."""

    queues: list[Waiting]
    all: int
    command: str


_EXPLAINED: Final = 100


def list_groups(asked: WebRequest) -> Groups:
    query: GroupsQuery = asked.query
    found: list[DeadLetterGroupView] = []
    scanned, complete = 0, True
    failed: list[str] = []
    names = DEAD_LETTER_QUEUES if query.queue is None else (query.queue,)
    with asked.queue_manager() as manager:
        for name in names:
            try:
                selection = select(manager, [path_of(name)], Criteria(), time.time(), scan=SCANNED, previews=False)
            except MsmqError as error:
                if len(failed) == len(names) - 1:  # there is none whose letters can be shown
                    raise
                failed.append(name)
                LEFT_OUT.note("lists of dead letters", name, error)
                complete = False
                continue
            scanned += selection.scanned
            complete = complete and selection.complete
            found += [_group(name, group) for group in dead_letters.groups(selection.chosen)]
    found.sort(key=lambda group: -group.messages)
    return Groups(found, scanned, complete, "openmsmq dlq list")


def _group(queue: str, group: dead_letters.DeadLetterGroup) -> DeadLetterGroupView:
    reason = group.reason
    command = f"openmsmq dlq return --queue {queue} --reason {reason.slug} --meant-for {quote(group.destination)}"
    return DeadLetterGroupView(
        queue, reason.slug, reason.name, reason.sentence, reason.remedy, reason.fails_again, group.destination,
        group.messages, group.bytes, group.first, group.last, f"{command} --dry-run",
    )  # fmt: skip


def list_outgoing(asked: WebRequest) -> OutgoingList:
    rows = [row for row in asked.services.rows.of(asked.caller.ticket) if row["kind"] == "outgoing"]
    rows.sort(key=lambda row: (-row["messages"], row["name"].casefold()))
    with asked.queue_manager() as manager:
        known = {queue["format_name"].casefold(): queue for queue in manager.outgoing()}
        connected = manager.management().get("connected")
    found = LEFT_OUT.each(
        "lists of outgoing queues", rows[:_EXPLAINED],
        lambda row: _waiting(row, known.get(row["name"].casefold()), connected), lambda row: row["name"],
    )  # fmt: skip
    return OutgoingList(list(found), len(rows), "openmsmq outgoing list")


def _waiting(row: dict[str, Any], known: dict[str, Any] | None, connected: Any) -> Waiting:
    queue = known or {
        "format_name": row["name"], "state": row["state"], "message_count": row["messages"],
    }  # fmt: skip
    return Waiting(
        row["id"], row["name"], row["state"], row["messages"], row["bytes"], explanation(queue, connected),
        f"openmsmq outgoing show {quote(row['name'])}",
    )  # fmt: skip


def pause_queue(asked: WebRequest) -> Waiting:
    return _act(asked, "pause")


def resume_queue(asked: WebRequest) -> Waiting:
    return _act(asked, "resume")


def _act(asked: WebRequest, what: Literal["pause", "resume"]) -> Waiting:
    row = asked.services.queue(asked.caller.ticket, asked.path["queue"])
    if row["kind"] != "outgoing":
        raise Problem(409, f"{shown(row['name'])} is no outgoing queue")
    with asked.queue_manager() as manager:
        (manager.pause if what == "pause" else manager.resume)(row["open"])
        queue = manager.management(row["open"])
        connected = manager.management().get("connected")
    asked.services.rows.forget(asked.caller.ticket)
    row = asked.services.queue(asked.caller.ticket, row["id"])
    found = _waiting(row, queue, connected)
    return Waiting(
        found.id, found.name, found.state, found.messages, found.bytes, found.explanation,
        f"openmsmq outgoing {what} {quote(row['name'])}",
    )  # fmt: skip


def delete_outgoing(asked: WebRequest) -> Deleted:
    """Its messages become dead letters, and are acknowledged, as their senders have asked."""
    row = asked.services.queue(asked.caller.ticket, asked.path["queue"])
    if row["kind"] != "outgoing":
        raise Problem(409, f"{shown(row['name'])} is no outgoing queue")
    demand_count(row, asked.query.count)
    count = asked.services.link.call(
        "delete_outgoing", ticket=asked.caller.ticket, peer=asked.caller.peer, id=row["id"]
    )
    if count is None:
        raise Problem(404, "that is gone already")
    asked.services.rows.forget(asked.caller.ticket)
    return Deleted(row["name"], count, f"openmsmq outgoing delete {quote(row['name'])}")


OPERATIONS: Final = (
    HttpOperation("GET", "/deadletters/groups", list_groups, "Dead letters by reason and destination", Groups,
                  GroupsQuery,
              statuses=(409,), role=Role.MONITOR),
    HttpOperation("GET", "/outgoing", list_outgoing, "Outgoing queues, and why they wait", OutgoingList,
              statuses=(404,), role=Role.MONITOR),
    HttpOperation("DELETE", "/outgoing/{queue}", delete_outgoing, "Delete an outgoing queue with its messages", Deleted,
              CountQuery, statuses=(404, 409, 412, 507)),
    HttpOperation("POST", "/outgoing/{queue}/pause", pause_queue, "Hold the messages of an outgoing queue", Waiting,
              statuses=(404, 409), role=Role.OPERATOR),
    HttpOperation("POST", "/outgoing/{queue}/resume", resume_queue, "Let them go on", Waiting,
              statuses=(404, 409), role=Role.OPERATOR),
)  # fmt: skip
