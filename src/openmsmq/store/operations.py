"""The operations of a batch, as plain values.

They are created for every message, so most have explicit constructors: that of a NamedTuple is interpreted, not
compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias


class Insert:
    """Insert a message into a queue.

    Attributes:
        queue: number of the queue, u32.
        key: number of the message, u64 > 0, never used before in this store.
        deadline: opaque to the store, u64; 0 for none.
        payload: the message.
    """

    def __init__(self, queue: int, key: int, deadline: int, payload: bytes) -> None:
        self.queue: Final = queue
        self.key: Final = key
        self.deadline: Final = deadline
        self.payload: Final = payload


class Remove:
    """Remove a message. Must occur only once per message, or the count of the segment becomes wrong."""

    def __init__(self, key: int, location: int) -> None:
        self.key: Final = key
        self.location: Final = location


class RemoveMany:
    """Remove many messages, with less data per message than `Remove`.

    Attributes:
        keys, locations: those of the messages, in the same order.
    """

    def __init__(self, keys: Sequence[int], locations: Sequence[int]) -> None:
        self.keys: Final = keys
        self.locations: Final = locations


class Move(NamedTuple):
    """Move a message to another queue. `new_key` may equal `key`; `payload` is the new payload, None to keep the old
    one."""

    key: int
    location: int
    new_queue: int
    new_key: int
    deadline: int
    payload: bytes | None = None


class Put(NamedTuple):
    """Set a definition, replacing an earlier value."""

    name: bytes
    value: bytes


class Drop(NamedTuple):
    """Delete a definition, if it exists."""

    name: bytes


Operation: TypeAlias = Insert | Remove | RemoveMany | Move | Put | Drop
