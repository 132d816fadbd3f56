"""The operations that a batch is made of: values only.

Each message makes some of them. They have constructors of their own, because that of a NamedTuple is interpreted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias


class Insert:
    """A message comes into a queue.

    Attributes:
        queue: number of the queue, u32.
        key: number of the message, u64 > 0, never used before in this store.
        deadline: opaque to the store, u64; 0 is none.
        payload: the message.
    """

    def __init__(self, queue: int, key: int, deadline: int, payload: bytes) -> None:
        self.queue: Final = queue
        self.key: Final = key
        self.deadline: Final = deadline
        self.payload: Final = payload


class Remove:
    """A message goes. Once only: a second removal of the same message would spoil the segment's count."""

    def __init__(self, key: int, location: int) -> None:
        self.key: Final = key
        self.location: Final = location


class RemoveMany:
    """Messages go, as by `Remove`, with less to write for each.

    Attributes:
        keys, locations: of the messages, in the same order.
    """

    def __init__(self, keys: Sequence[int], locations: Sequence[int]) -> None:
        self.keys: Final = keys
        self.locations: Final = locations


class Move(NamedTuple):
    """A message changes its queue. `new_key` may equal `key`; `payload` is the new one, None to keep it."""

    key: int
    location: int
    new_queue: int
    new_key: int
    deadline: int
    payload: bytes | None = None


class Put(NamedTuple):
    """A definition gets a value; it replaces the earlier one of that name."""

    name: bytes
    value: bytes


class Drop(NamedTuple):
    """A definition goes; nothing happens if there is none of that name."""

    name: bytes


Operation: TypeAlias = Insert | Remove | RemoveMany | Move | Put | Drop
