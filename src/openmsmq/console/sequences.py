"""The transactional sequences that other queue managers send into queues here. For administrators."""

from __future__ import annotations

from shlex import quote
from typing import Final

import msgspec

from openmsmq.actions.table import Input, Output
from openmsmq.console.problems import Problem
from openmsmq.console.queues import Limit, Text
from openmsmq.console.table import HttpOperation, WebRequest
from openmsmq.model.roles import Role


class SequenceView(Output, frozen=True):
    """How far a queue manager, `source`, is with a queue: `number` is that of the last message that was accepted.
    `sequence` identifies the sequence, as text because it has 64 bits. `accessed`: when a message came last, in seconds
    since 1970."""

    queue: str
    name: str
    source: str
    sequence: str
    number: int
    rejected: int
    accessed: int


class SequenceList(Output, frozen=True):
    """At most `limit` of those that fit, the latest first; `matching` is how many fit."""

    sequences: list[SequenceView]
    matching: int
    command: str


class SequenceQuery(Input, frozen=True):
    """`queue` is an identifier of a queue, `source` that of a queue manager."""

    queue: Text | None = None
    source: Text | None = None
    limit: Limit = 100


class Forgotten(Output, frozen=True):
    queue: str
    source: str
    command: str


_ROWS: Final = msgspec.json.Decoder(dict)


def list_sequences(asked: WebRequest) -> SequenceList:
    query: SequenceQuery = asked.query
    _, data = asked.services.link.ask("sequences", ticket=asked.caller.ticket).result()
    rows = [
        row
        for row in _ROWS.decode_lines(bytes(data))
        if query.queue in (None, row["queue"]) and query.source in (None, row["source"])
    ]
    rows.sort(key=lambda row: (-row["accessed"], row["name"].casefold(), row["source"]))
    found = [msgspec.convert({**row, "sequence": str(row["sequence"])}, SequenceView) for row in rows[: query.limit]]
    name = f" {quote(rows[0]['name'])}" if query.queue is not None and rows else ""
    return SequenceList(found, len(rows), f"openmsmq sequence list{name}")


def forget_sequence(asked: WebRequest) -> Forgotten:
    """What its source sends next begins a new sequence: messages that it sends again are accepted once more."""
    row = asked.services.queue(asked.caller.ticket, asked.path["queue"])
    source = asked.path["source"]
    done = asked.services.link.call(
        "forget_sequence", ticket=asked.caller.ticket, peer=asked.caller.peer, id=row["id"], source=source
    )
    if not done:
        raise Problem(404, f"{row['name']} has no sequence of the queue manager {source[:40]}")
    return Forgotten(row["name"], source, f"openmsmq sequence forget {quote(row['name'])} {quote(source)}")


OPERATIONS: Final = (
    HttpOperation("GET", "/sequences", list_sequences, "Transactional sequences from other queue managers",
                  SequenceList,
              SequenceQuery, role=Role.MONITOR),
    HttpOperation("DELETE", "/sequences/{queue}/{source}", forget_sequence, "Forget a sequence: the next begins anew",
              Forgotten, statuses=(404, 507)),
)  # fmt: skip
