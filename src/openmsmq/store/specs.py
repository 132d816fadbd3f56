"""Conversion of operations to frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from openmsmq.store.bookkeeping import SegmentStats
from openmsmq.store.frames import (
    DROP,
    INSERT,
    MOST_REMOVALS,
    PUT,
    RELOCATED,
    REMOVE,
    REMOVE_MANY,
    pack_definition,
    pack_removals,
)
from openmsmq.store.operations import Insert, Move, Operation, Put, Remove, RemoveMany


class FrameSpec:
    """One frame to be written. `replaces` is the old location of a relocated message, 0 if none; `transaction` is that
    of the frame, 0 for that of its chain; `removed` are the locations in a REMOVE_MANY."""

    def __init__(
        self, kind: int, payload: bytes = b"", key: int = 0, extra: int = 0, queue: int = 0, flags: int = 0,
        replaces: int = 0, transaction: int = 0, removed: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.kind: Final = kind
        self.payload: Final = payload
        self.key: Final = key
        self.extra: Final = extra
        self.queue: Final = queue
        self.flags: Final = flags
        self.replaces: Final = replaces
        self.transaction: Final = transaction
        self.removed: Final = removed


def specify(operations: Sequence[Operation], books: SegmentStats, read: Callable[[int], bytes]) -> list[FrameSpec]:
    """Return the frames of operations.

    Args:
        operations: operations in order.
        books: has the current locations of relocated messages.
        read: returns the payload at a location; its errors are raised.
    """
    specs = []
    for operation in operations:
        if isinstance(operation, Insert):
            specs.append(FrameSpec(INSERT, operation.payload, operation.key, operation.deadline, operation.queue))
        elif isinstance(operation, Remove):
            specs.append(FrameSpec(REMOVE, b"", operation.key, books.current(operation.location)))
        elif isinstance(operation, RemoveMany):
            specs += _specify_removals(operation, books)
        elif isinstance(operation, Move):
            specs += _specify_move(operation, books.current(operation.location), read)
        elif isinstance(operation, Put):
            specs.append(FrameSpec(PUT, pack_definition(*operation)))
        else:
            specs.append(FrameSpec(DROP, operation.name))
    return specs


def _specify_removals(removals: RemoveMany, books: SegmentStats) -> list[FrameSpec]:
    keys, locations = removals.keys, books.all_current(removals.locations)
    specs = []
    for at in range(0, len(keys), MOST_REMOVALS):
        some = locations[at : at + MOST_REMOVALS]
        specs.append(FrameSpec(REMOVE_MANY, pack_removals(keys[at : at + MOST_REMOVALS], some), removed=some))
    return specs


def _specify_move(move: Move, location: int, read: Callable[[int], bytes]) -> list[FrameSpec]:
    """Return the frames of a move. The payload is rewritten, because a message must be one frame."""
    key, _, queue, new_key, deadline, given = move
    payload = read(location) if given is None else given
    if key == new_key:
        return [FrameSpec(INSERT, payload, key, deadline, queue, RELOCATED, location)]
    return [FrameSpec(INSERT, payload, new_key, deadline, queue), FrameSpec(REMOVE, b"", key, location)]
