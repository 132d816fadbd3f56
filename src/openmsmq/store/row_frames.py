"""Many messages in one buffer, and their frames; uses `framing.c` if it is compiled."""

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

_MESSAGES: Final = 1 << INSERT | 1 << PENDING  # kinds of frames that contain messages


@dataclass(slots=True, init=False)  # explicit __init__, compiled; one object per fast-path send
class MessageRows:
    """Concatenated messages.

    Attributes:
        queues: array('I') with the queue number of each message.
        records: the messages.
        sizes: array('I') with the sizes in bytes.
        bounds: array('q') with the start of each message and the end of the last one.
        keys: array('Q') with the numbers of the messages, ascending, never used before in this store.
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
    codec: Codec, rows: MessageRows, first: int, kind: int, transaction: int, position: int, origin: int, room: int,
    flags: int = ALONE, ending: int = ALONE,
) -> tuple[bytes, array[int]]:  # fmt: skip
    """Return frames of as many messages as fit, by default each a separate chain.

    Args:
        codec: codec of the store.
        rows: the messages.
        first: index of the first message.
        kind: kind of the frames.
        transaction: their transaction.
        position: absolute position of the first frame.
        origin: absolute position where their write begins.
        room: maximum bytes of the frames.
        flags: flags of the frames.
        ending: flags of the frame of the last message.

    Returns:
        The frames and their locations, array('Q').
    """
    if framing is None:
        return frames_in_python(codec, rows, first, kind, transaction, position, origin, room, flags, ending)
    return framing.frames(
        rows.records, rows.bounds, rows.keys, rows.deadlines, rows.queues, first, kind, flags, ending,
        transaction, codec.tag, codec.seed, position, origin, max(0, room),
    )  # fmt: skip


def frames_in_python(
    codec: Codec, rows: MessageRows, first: int, kind: int, transaction: int, position: int, origin: int, room: int,
    flags: int = ALONE, ending: int = ALONE,
) -> tuple[bytes, array[int]]:  # fmt: skip
    """Pure Python version of `frames_of`."""
    parts: list[bytes] = []
    locations = array("Q")
    for index in range(first, len(rows)):
        payload = bytes(rows.records[rows.bounds[index] : rows.bounds[index + 1]])
        size = frame_size(len(payload))
        if size > room:
            break
        header = codec.header_in_python(
            kind, ending if index + 1 == len(rows) else flags, position, position - origin, payload,
            rows.keys[index], rows.deadlines[index], rows.queues[index], transaction,
        )  # fmt: skip
        parts += (header, payload, PADDING[len(payload) & 7])
        locations.append(position)
        position, room = position + size, room - size
    return b"".join(parts), locations


class Run(NamedTuple):
    """Consecutive INSERT frames that are separate chains.

    Attributes:
        headers: (queue, concatenated headers of its frames in log order).
        messages: number of messages.
        last: offset of the last frame.
        end: offset after the last frame.
        volume: bytes of the messages.
        highest: highest message number.
    """

    headers: Sequence[tuple[int, bytes]]
    messages: int
    last: int
    end: int
    volume: int
    highest: int


def run_of(codec: Codec, data: bytes | bytearray, offset: int, base: int) -> Run:
    """Return the run of valid INSERT frames that are separate chains, from `offset` of `data` up to the first other
    frame. `base` is the absolute position of the start of `data`."""
    if framing is None:
        return run_in_python(codec, data, offset, base)
    return Run(*framing.inserts(data, offset, base, INSERT, ALONE, codec.tag, codec.seed))


def run_in_python(codec: Codec, data: bytes | bytearray, offset: int, base: int) -> Run:
    """Pure Python version of `run_of`."""
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
    """Return the messages at locations from index `first` on, up to the first one that is not complete and valid in
    `data`.

    `base` is the absolute position of the start of `data`.
    """
    if framing is None:
        return payloads_in_python(codec, data, base, locations, first)
    return framing.payloads(data, locations, base, first, _MESSAGES, codec.tag, codec.seed)


def payloads_in_python(codec: Codec, data: bytes, base: int, locations: Sequence[int], first: int) -> list[bytes]:
    """Pure Python version of `payloads_of`."""
    found: list[bytes] = []
    for index in range(first, len(locations)):
        at = locations[index] - base
        fields = codec.check(data, at, locations[index]) if 0 <= at < len(data) else None
        if fields is None or fields[8] not in (INSERT, PENDING):
            break
        found.append(data[at + HEADER_SIZE : at + HEADER_SIZE + fields[1]])
    return found
