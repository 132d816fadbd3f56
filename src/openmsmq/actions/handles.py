"""List and close open queue handles, with their sharing modes and waiting reads. For administrators."""

from __future__ import annotations

from collections.abc import Callable
from shlex import join
from typing import Annotated, Any, Final

import msgspec

from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import CommandText, EpochSeconds, Text, doc
from openmsmq.actions.limits import LARGEST_PAGE
from openmsmq.actions.paging import Cursor, Next, cut
from openmsmq.actions.queues import Limit, QueueName, daemon_of
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, CountOption, Input, Output, Pages, Rows, action
from openmsmq.model.roles import Role
from openmsmq.model.text import counted, time_text

_SEVERAL: Final = "it closes several"


class OpenHandleView(Output, frozen=True):
    """An open queue handle."""

    id: Annotated[str, doc("Its identifier, until the daemon ends.", "1f")]
    queue: Annotated[str, doc("Identifier of the queue.", "p7")]
    name: QueueName
    access: Annotated[str, doc("Access mode.", "receive")]
    since: Annotated[EpochSeconds, doc("When it was opened, in seconds since 1970.")]
    exclusive: Annotated[bool, doc("Whether the handle excludes other receivers (share mode DENY_RECEIVE).")]
    waiting: Annotated[int, doc("Number of its waiting reads.")]
    cursors: Annotated[int, doc("Number of its cursors.")]
    held: Annotated[int, doc("Messages locked by two-phase receives that are not yet ended.")]
    user: Annotated[str, doc("Name of the user; empty if unknown.")]
    sid: Annotated[str, doc("SID of the user.")]
    origin: Annotated[str, doc("Entry point and client address.", "rpc 10.0.0.7")]


class HandleList(Output, frozen=True):
    """One page of open queue handles."""

    handles: Annotated[list[OpenHandleView], doc("Matching handles: exclusive ones, then those with waiting reads.")]
    matching: Annotated[int, doc("Number of matches.")]
    all: Annotated[int, doc("Total number.")]
    next: Next
    command: CommandText


class HandleQuery(Input, frozen=True):
    """Selects open queue handles."""

    queue: Annotated[Text | None, doc("Identifier of a queue.", "p7")] = None
    exclusive: Annotated[bool, doc("Only handles that exclude other receivers.")] = False
    waiting: Annotated[bool, doc("Only handles with waiting reads.")] = False
    limit: Limit = 100
    cursor: Cursor = None


class NamedHandle(Input, frozen=True):
    """An open queue handle."""

    handle: Annotated[str, doc("Its identifier.", "1f")]


_ROWS: Final = msgspec.json.Decoder(OpenHandleView)


def _cells(each: OpenHandleView) -> list[Any]:
    share = "deny receive" if each.exclusive else "deny none"
    return [each.id, each.name, each.access, share, each.waiting, each.held, each.user or each.sid, each.origin,
            time_text(each.since)]  # fmt: skip


def _note(found: HandleList) -> str:
    shown = len(found.handles)
    return f"{shown:,} of {counted(found.matching, 'handle')} are shown (--limit)" if found.matching > shown else ""


def rows(handles: Callable[[Any], list[OpenHandleView]], note: Callable[[Any], str] | None = None) -> Rows:
    """Return how commands show open handles; no output if there are none."""
    columns = ("handle", "queue", "access", "share", "waiting", "held", "user", "from", "since")
    return Rows(lambda output: handles(output) or None, columns, _cells, note=note)


@action(
    "handle.list", http="GET /handles", role=Role.MONITOR, place="daemon", statuses=(400,),
    pages=Pages("handles", "limit", LARGEST_PAGE, "cursor"),
    commands=(
        ActionCommand(
            "handle list",
            {"queue": "[QUEUE]", "exclusive": "--exclusive", "waiting": "--waiting",
             "limit": CountOption("--limit", 100, "Most to show (0: all).")},
            rows(lambda found: found.handles, _note),
            help="Show who has QUEUE open, or any queue: exclusive ones first, then those that wait.\n\n"
            "For administrators of the queue manager; the role monitor is enough for the token.",
        ),
    ),
)  # fmt: skip
def list_handles(site: ActionSite, given: HandleQuery) -> HandleList:
    """List open queue handles."""
    daemon = daemon_of(site)
    known = _all(site)
    found = [
        row
        for row in known
        if (given.queue is None or row.queue == given.queue)
        and (not given.exclusive or row.exclusive)
        and (not given.waiting or row.waiting)
    ]
    page, following = cut(daemon, found, _place, "handles", given.limit, given.cursor)
    seen = daemon.queues() if given.queue is not None else ()  # the command must not name an invisible queue
    words = [row["name"] for row in seen if row["id"] == given.queue]
    words += [f"--{name}" for name in ("exclusive", "waiting") if getattr(given, name)]
    return HandleList(page, len(found), len(known), following, join(["openmsmq", "handle", "list", *words]))


def _place(row: OpenHandleView) -> tuple[Any, ...]:
    return not row.exclusive, -row.waiting, row.name.casefold(), row.id


@action(
    "handle.show", http="GET /handles/{handle}", role=Role.MONITOR, place="daemon",
    commands=(ActionCommand("handle close", {"handle": "ID"}, by_hand=_SEVERAL),),
)  # fmt: skip
def get_handle(site: ActionSite, given: NamedHandle) -> OpenHandleView:
    """Show an open queue handle."""
    found = next((row for row in _all(site) if row.id == given.handle), None)
    if found is None:
        raise ActionRefused(404, "this handle is closed")
    return found


@action(
    "handle.close", http="DELETE /handles/{handle}", role=Role.OPERATOR, effect="destroys",
    place="daemon", statuses=(507,),
    commands=(ActionCommand("handle close", {"handle": "ID"}, by_hand=_SEVERAL),),
)  # fmt: skip
def close_handle(site: ActionSite, given: NamedHandle) -> OpenHandleView:
    """Close handles of other clients. Returns the closed handles."""
    daemon = daemon_of(site)
    row = daemon.change("close_handle", id=given.handle)
    if row is None:
        raise ActionRefused(404, "this handle is closed")
    daemon.changed()
    return msgspec.convert(row, OpenHandleView)


def _all(site: ActionSite) -> list[OpenHandleView]:
    return _ROWS.decode_lines(daemon_of(site).lines("handles"))


ACTIONS: Final = (list_handles, get_handle, close_handle)
