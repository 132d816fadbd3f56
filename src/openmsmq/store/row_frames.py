"""Many messages in one buffer, and their frames; `framing.c` does the work if it is compiled."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from openmsmq.store.frames import ALONE, HEADER_SIZE, INSERT, PADDING, PENDING, Codec, frame_size

try:
    import openmsmq.store.framing as framing
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        framing = None

_MESSAGES: Final = 1 << INSERT | 1 << PENDING  # kinds of frames that have messages


@dataclass(slots=True, init=False)  # what a dataclass makes for it is interpreted, and each plain send has one
class MessageRows:
    """Messages, end to end.

    Attributes:
        queues: array('I'), numbers of the queues that they are for.
        records: the messages.
        sizes: array('I'), of the messages.
        bounds: array('q'); where each of them begins, and where the last one ends.
        keys: array('Q'), numbers of the messages, ascending, never used before in this store.
        deadlines: array('Q'), opaque to the store.
    """

    queues: array[int]
    records: bytes | bytearray
    sizes: array[int]
    bounds: array[int]
    keys: array[int]
    deadlines: array[int]

    def __init__(
        self, queues: array[int], records: bytes | bytearray, sizes: array[int], bounds: array[int], keys: array[int],
        deadlines: array[int],
    ) -> None:  # fmt: skip
        self.queues = queues
        self.records = records
        self.sizes = sizes
        self.bounds = bounds
        self.keys = keys
        self.deadlines = deadlines

    def __len__(self) -> int:
        return len(self.keys)


def frames_of(
    codec: Codec, rows: MessageRows, first: int, kind: int, transaction: int, position: int, origin: int, room: int
) -> tuple[bytes, array[int]]:
    """The frames of as many messages as fit, each a chain of its own.

    Args:
        codec: of the store.
        rows: the messages.
        first: the first one of these that is wanted.
        kind: of the frames.
        transaction: that they are part of.
        position: where the first frame is going to be.
        origin: where the write begins that they are part of.
        room: bytes that they may take.

    Returns:
        The frames and their locations, array('Q').
    """
    if framing is None:
        return frames_in_python(codec, rows, first, kind, transaction, position, origin, room)
    return framing.frames(
        rows.records, rows.bounds, rows.keys, rows.deadlines, rows.queues, first, kind, ALONE, transaction,
        codec.tag, codec.seed, position, origin, max(0, room),
    )  # fmt: skip


def frames_in_python(
    codec: Codec, rows: MessageRows, first: int, kind: int, transaction: int, position: int, origin: int, room: int
) -> tuple[bytes, array[int]]:
    """Pure Python version of `row_frames`."""
    parts: list[bytes] = []
    locations = array("Q")
    for index in range(first, len(rows)):
        payload = bytes(rows.records[rows.bounds[index] : rows.bounds[index + 1]])
        size = frame_size(len(payload))
        if size > room:
            break
        header = codec.header_in_python(
            kind, ALONE, position, position - origin, payload, rows.keys[index], rows.deadlines[index],
            rows.queues[index], transaction,
        )  # fmt: skip
        parts += (header, payload, PADDING[len(payload) & 7])
        locations.append(position)
        position, room = position + size, room - size
    return b"".join(parts), locations


class Run(NamedTuple):
    """Lone inserts, one behind the other.

    Attributes:
        headers: of their frames, end to end in the order of the log, by queue.
        messages: how many.
        last, end: offset of the last one, and that behind it.
        volume: bytes of the messages.
        highest: number of a message.
    """

    headers: Sequence[tuple[int, bytes]]
    messages: int
    last: int
    end: int
    volume: int
    highest: int


def run_of(codec: Codec, data: bytes | bytearray, offset: int, base: int) -> Run:
    """The valid frames of messages that are chains of their own, from `offset` of `data` on, up to the first frame that
    is something else. `base` is the absolute position of the start of `data`."""
    if framing is None:
        return run_in_python(codec, data, offset, base)
    return Run(*framing.inserts(data, offset, base, INSERT, ALONE, codec.tag, codec.seed))


def run_in_python(codec: Codec, data: bytes | bytearray, offset: int, base: int) -> Run:
    """Pure Python version of `run`."""
    headers: dict[int, bytearray] = {}
    last, end, count, volume, highest = offset, offset, 0, 0, 0
    for _, length, position, key, _, queue, _, _, kind, flags, _ in codec.walk(data, offset, base):
        if kind != INSERT or flags != ALONE:
            break
        last = position - base
        headers.setdefault(queue, bytearray()).extend(data[last : last + HEADER_SIZE])
        end = last + frame_size(length)
        count, volume, highest = count + 1, volume + length, max(highest, key)
    return Run([(queue, bytes(headers[queue])) for queue in sorted(headers)], count, last, end, volume, highest)


def payloads_of(codec: Codec, data: bytes, base: int, locations: Sequence[int], first: int) -> list[bytes]:
    """The messages at locations from index `first` on, up to the first one that is not whole and valid in `data`.

    `base` is the absolute position of the start of `data`.
    """
    if framing is None:
        return payloads_in_python(codec, data, base, locations, first)
    return framing.payloads(data, locations, base, first, _MESSAGES, codec.tag, codec.seed)


def payloads_in_python(codec: Codec, data: bytes, base: int, locations: Sequence[int], first: int) -> list[bytes]:
    """Pure Python version of `payloads`."""
    found: list[bytes] = []
    for index in range(first, len(locations)):
        at = locations[index] - base
        fields = codec.check(data, at, locations[index]) if 0 <= at < len(data) else None
        if fields is None or fields[8] not in (INSERT, PENDING):
            break
        found.append(data[at + HEADER_SIZE : at + HEADER_SIZE + fields[1]])
    return found
