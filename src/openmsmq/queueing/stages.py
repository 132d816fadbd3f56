"""Stages: messages in the store that nobody sees before a sink's batch is finalized. No part of the specifications."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from openmsmq.model.errors import MsmqError
from openmsmq.model.lookup_id import sequence_of
from openmsmq.queueing.drafts import Form
from openmsmq.queueing.queue import Queue, Stored
from openmsmq.queueing.transactions import Transaction, TransactionState

SINK_PREFIX = b"sink/"
_FORMER_BATCH_WRITE = re.compile(rb"sink/batch/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(slots=True)
class Target:
    """A queue that rows of a stage go to.

    Attributes:
        name: format name that the messages carry.
        is_transactional: they are messages of a transaction.
        form: what the records of the rows have in common.
    """

    queue: Queue
    name: str
    is_transactional: bool
    form: Form


class Draft(NamedTuple):
    """A message to be staged: its record, but for what the queue manager fills in."""

    target: Target
    record: bytearray


class Refusal(NamedTuple):
    """A row that can't be staged: its place among those that were given, and why."""

    place: int
    error: MsmqError


@dataclass(slots=True, eq=False)
class Stage:
    """What one attempt at one partition of a sink's batch has written.

    Attributes:
        handle: names it; random.
        owner: SID of who staged it.
        query: whose batch it is, as in `SinkMemory`.
        transaction: number of its transaction in the store; `identifier` of its transactional messages has it too.
        rows: how many messages.
        in_transaction: how many of them are messages of its transaction.
        messages: queue number to lookup identifier to where the store keeps the message.
        lowest: queue number to the lowest sequence in it.
        volume: bytes by queue number, with the one that is held.
        held: the latest message of a transaction, which is stored when it is known whether another one follows.
        eventful: queue number and lookup identifier of those from whose arrival something follows, or that may expire.
        asking: queue number to lookup identifiers of those that want an acknowledgment when they are received.
    """

    handle: str
    sink: str
    batch: int
    partition: int
    attempt: str
    owner: str
    transaction: Transaction
    query: str = ""
    rows: int = 0
    messages: dict[int, dict[int, Stored]] = field(default_factory=dict)
    lowest: dict[int, int] = field(default_factory=dict)
    volume: dict[int, int] = field(default_factory=dict)
    eventful: list[tuple[int, int]] = field(default_factory=list)
    asking: dict[int, list[int]] = field(default_factory=dict)
    held: Draft | None = None
    in_transaction: int = 0

    def add(self, queue: int, lookup_identifier: int, entry: Stored) -> None:
        self.messages.setdefault(queue, {})[lookup_identifier] = entry
        sequence = sequence_of(lookup_identifier)
        self.lowest[queue] = min(sequence, self.lowest.get(queue, sequence))

    def add_all(self, queue: int, lookup_identifiers: list[int], entries: list[Stored]) -> None:
        """Add rows whose sequences rise."""
        self.messages.setdefault(queue, {}).update(zip(lookup_identifiers, entries, strict=True))
        self.lowest.setdefault(queue, sequence_of(lookup_identifiers[0]))
        self.rows += len(entries)

    def charge(self, queue: int, size: int) -> None:
        """So many bytes count against the quotas."""
        self.volume[queue] = self.volume.get(queue, 0) + size

    @property
    def sealed(self) -> bool:
        """Whether it is complete, and survives a restart."""
        return self.transaction.is_prepared

    @property
    def note(self) -> bytes:
        """What the store remembers of it beside the messages."""
        names = ("handle", "sink", "batch", "partition", "attempt", "owner", "query", "rows")
        return json.dumps({"stage": {name: getattr(self, name) for name in names}}).encode()


def stage_of_note(number: int, note: bytes) -> Stage | None:
    """The stage that a note of a prepared transaction describes; None if it is another transaction's."""
    values = json.loads(note)
    if not isinstance(values, dict):
        return None
    stage = values["stage"]
    transaction = Transaction(bytes.fromhex(stage["handle"]), number, state=TransactionState.PREPARED)
    return Stage(**stage, transaction=transaction)


class SinkMemory(NamedTuple):
    """What the queue manager remembers of a sink.

    Attributes:
        batch: number of the batch that was finalized last.
        owner: SID of who finalized it.
        query: identity of the query whose batches these are; empty if it gave none, or an earlier version wrote this.
        once: when it was written, in seconds since 1970 UTC, if no more batches come; 0 for a sink that goes on.
    """

    batch: int
    owner: str
    query: str = ""
    once: int = 0

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


def decode_sink(name: bytes, value: bytes) -> SinkMemory:
    """The memory of a sink from its definition. Before there was `once`, batch writes had sinks of a random name."""
    memory = SinkMemory(**json.loads(value))
    if not memory.once and not memory.batch and _FORMER_BATCH_WRITE.fullmatch(name):
        return memory._replace(once=1)
    return memory


def sink_definition(sink: str) -> bytes:
    return SINK_PREFIX + sink.encode()
