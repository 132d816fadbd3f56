"""Stages: messages in the store that are invisible until a sink's batch is finalized. Not part of the
specifications."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from openmsmq.model.errors import MsmqError
from openmsmq.model.lookup_id import sequence_of
from openmsmq.queueing.drafts import Form
from openmsmq.queueing.entries import Stored
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.unit_of_work import Transaction

Key = TypeVar("Key")


@dataclass(slots=True)
class StageTarget:
    """Target queue of rows of a stage.

    Attributes:
        queue: None for an outgoing queue that is created with the first row.
        name: destination format name of the messages.
        is_transactional: whether they are transactional messages.
        form: common fields of the rows' records.
    """

    queue: Queue | None
    name: str
    is_transactional: bool
    form: Form


class Draft(NamedTuple):
    """A message to be staged: its record without the fields that the queue manager sets."""

    target: StageTarget
    record: bytearray


class RefusedRow(NamedTuple):
    """A row that cannot be staged: its index among the given rows, and why."""

    place: int
    error: MsmqError


@dataclass(slots=True, eq=False)
class Stage:
    """Rows written by one attempt at one partition of a sink's batch.

    Attributes:
        handle: random identifier.
        owner: SID of the user who staged it.
        query: the query that writes the batch, as in `sinks.SinkMemory`.
        transaction: its transaction in the store.
        rows: number of messages.
        in_transaction: number of transactional messages among them.
        messages: queue number -> lookup identifier -> location in the store.
        lowest: queue number -> lowest sequence.
        volume: queue number -> bytes, including `held`.
        held: the latest transactional message, not stored until it is known whether another one follows.
        held_in: number of the queue for which `held` counts.
        eventful: queue number and lookup identifier of messages whose arrival has consequences, or that may expire.
        asking: queue number -> lookup identifiers of messages whose receipt must be acknowledged.
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
    held_in: int = 0
    in_transaction: int = 0

    def add(self, queue: int, lookup_identifier: int, entry: Stored) -> None:
        self.messages.setdefault(queue, {})[lookup_identifier] = entry
        sequence = sequence_of(lookup_identifier)
        self.lowest[queue] = min(sequence, self.lowest.get(queue, sequence))

    def add_all(self, queue: int, lookup_identifiers: list[int], entries: list[Stored]) -> None:
        """Add rows in sequence order."""
        self.messages.setdefault(queue, {}).update(zip(lookup_identifiers, entries, strict=True))
        self.lowest.setdefault(queue, sequence_of(lookup_identifiers[0]))
        self.rows += len(entries)

    def charge(self, queue: int, size: int) -> None:
        """Count `size` bytes against the quotas."""
        self.volume[queue] = self.volume.get(queue, 0) + size

    @property
    def sealed(self) -> bool:
        """Whether the stage is complete and survives a restart."""
        return self.transaction.is_prepared

    @property
    def note(self) -> bytes:
        """Return the note that the store keeps with the messages."""
        names = ("handle", "sink", "batch", "partition", "attempt", "owner", "query", "rows")
        return json.dumps({"stage": {name: getattr(self, name) for name in names}}).encode()


class StageTable:
    """All stages, indexed by handle, sink and queue, so that no lookup scans all of them."""

    def __init__(self) -> None:
        self._stages: dict[str, Stage] = {}
        self._of_sink: dict[str, dict[str, Stage]] = {}
        self._at: dict[int, dict[str, Stage]] = {}  # by queue number
        self._unsorted: set[int] = set()  # numbers of queues whose stages are not ordered by lowest sequence

    def add(self, stage: Stage) -> None:
        """Add a new stage, or one restored after a restart with its rows."""
        self._stages[stage.handle] = stage
        self._of_sink.setdefault(stage.sink, {})[stage.handle] = stage
        self._unsorted.update(stage.lowest)
        self.wrote(stage)

    def wrote(self, stage: Stage) -> None:
        """Note that rows were added to a stage. Sequences increase, so it comes after the stages that already had rows
        for the queue."""
        for number in stage.lowest:
            self._at.setdefault(number, {}).setdefault(stage.handle, stage)

    def remove(self, stage: Stage) -> None:
        """Remove a stage that has ended."""
        del self._stages[stage.handle]
        _drop(self._of_sink, stage.sink, stage.handle)
        for number in stage.lowest:
            _drop(self._at, number, stage.handle)

    def get(self, handle: str) -> Stage | None:
        return self._stages.get(handle)

    def all(self) -> list[Stage]:
        return list(self._stages.values())

    def sinks(self) -> list[str]:
        """Return the names of sinks that have stages."""
        return list(self._of_sink)

    def of_sink(self, sink: str) -> list[Stage]:
        return list(self._of_sink.get(sink, {}).values())

    def at(self, queue: int) -> Collection[Stage]:
        """Return the stages with rows for a queue, by its number."""
        return self._at.get(queue, {}).values()

    def lowest(self, queue: int, otherwise: int) -> int:
        """Return the lowest sequence staged for a queue (by number), or `otherwise` if that is lower."""
        at = self._at.get(queue)
        if at is None:
            return otherwise
        if queue in self._unsorted:
            self._unsorted.discard(queue)
            at = self._at[queue] = dict(sorted(at.items(), key=lambda item: item[1].lowest[queue]))
        return min(otherwise, next(iter(at.values())).lowest[queue])


def _drop(table: dict[Key, dict[str, Stage]], key: Key, handle: str) -> None:
    stages = table[key]
    del stages[handle]
    if not stages:
        del table[key]


def parse_note(note: bytes) -> dict[str, Any] | None:
    """Return the fields of a stage from the note of a prepared transaction; None if that is not a stage."""
    values = json.loads(note)
    return values["stage"] if isinstance(values, dict) else None
