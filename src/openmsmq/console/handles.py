"""Who has which queue open, exclusively or waiting for messages; and closing that. For administrators."""

from __future__ import annotations

from shlex import join
from typing import Any, Final

import msgspec

from openmsmq.actions.table import Input, Output
from openmsmq.console.paging import Cursor, cut
from openmsmq.console.problems import Problem
from openmsmq.console.queues import Limit, Text
from openmsmq.console.table import HttpOperation, WebRequest
from openmsmq.model.roles import Role


class OpenHandleView(Output, frozen=True):
    """A queue that somebody has open. `exclusive`: nobody else may receive; `waiting` reads wait for messages; `held`
    messages are received in two phases that have not ended. `since`: when it was opened, in seconds since 1970.
    `origin` is the door and the address behind it. `id` holds until the daemon ends."""

    id: str
    queue: str
    name: str
    access: str
    since: int
    exclusive: bool
    waiting: int
    cursors: int
    held: int
    user: str
    sid: str
    origin: str


class HandleList(Output, frozen=True):
    """Those that fit, at most `limit` of them; `matching` is how many fit. Exclusive ones first, then those that
    wait."""

    handles: list[OpenHandleView]
    matching: int
    all: int
    next: str | None
    command: str


class HandleQuery(Input, frozen=True):
    """`queue` is an identifier of a queue."""

    queue: Text | None = None
    exclusive: bool = False
    waiting: bool = False
    limit: Limit = 100
    cursor: Cursor | None = None


_ROWS: Final = msgspec.json.Decoder(OpenHandleView)


def list_handles(asked: WebRequest) -> HandleList:
    query: HandleQuery = asked.query
    rows = _all(asked)
    found = [
        row
        for row in rows
        if (query.queue is None or row.queue == query.queue)
        and (not query.exclusive or row.exclusive)
        and (not query.waiting or row.waiting)
    ]
    page, following = cut(asked.services.seals, found, _place, "handles", query.limit, query.cursor)
    return HandleList(page, len(found), len(rows), following, _command(asked))


def _place(row: OpenHandleView) -> tuple[Any, ...]:
    return not row.exclusive, -row.waiting, row.name.casefold(), row.id


def get_handle(asked: WebRequest) -> OpenHandleView:
    found = next((row for row in _all(asked) if row.id == asked.path["handle"]), None)
    if found is None:
        raise _closed()
    return found


def close_handle(asked: WebRequest) -> OpenHandleView:
    """What was closed."""
    row = asked.services.link.call(
        "close_handle", ticket=asked.caller.ticket, peer=asked.caller.peer, id=asked.path["handle"]
    )
    if row is None:
        raise _closed()
    asked.services.rows.forget(asked.caller.ticket)
    return msgspec.convert(row, OpenHandleView)


def _all(asked: WebRequest) -> list[OpenHandleView]:
    _, data = asked.services.link.ask("handles", ticket=asked.caller.ticket).result()
    return _ROWS.decode_lines(bytes(data))


def _command(asked: WebRequest) -> str:
    """The equal command. Without a queue that the user may not see."""
    query: HandleQuery = asked.query
    seen = asked.services.rows.of(asked.caller.ticket) if query.queue is not None else ()
    words = [row["name"] for row in seen if row["id"] == query.queue]
    words += [f"--{name}" for name in ("exclusive", "waiting") if getattr(query, name)]
    return join(["openmsmq", "handle", "list", *words])


def _closed() -> Problem:
    return Problem(404, "that is closed already")


OPERATIONS: Final = (
    HttpOperation("GET", "/handles", list_handles, "Who has which queue open", HandleList, HandleQuery,
                  role=Role.MONITOR),
    HttpOperation("GET", "/handles/{handle}", get_handle, "What somebody has open", OpenHandleView, statuses=(404,),
              role=Role.MONITOR),
    HttpOperation("DELETE", "/handles/{handle}", close_handle, "Close what somebody has open", OpenHandleView,
              statuses=(404, 507), role=Role.OPERATOR),
)  # fmt: skip
