"""Recovery of a log: find its files, replay it, and decide whether an invalid frame is damage.

A crash can lose, reorder or tear only data written since the last successful sync. Every frame contains the start
position of its write. So if a frame is invalid and a later valid frame belongs to a write that began after it, the
invalid one had been synced: this is damage, and the store is not opened. Otherwise it is the torn end of the last
write, which was never acknowledged, and it is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from openmsmq.store.checkpoints import Checkpoints
from openmsmq.store.errors import DamagedStore
from openmsmq.store.frames import FRAMES_START, Codec, frame_size, read_segment_header
from openmsmq.store.replay import LogState, Replay
from openmsmq.store.segments import segment_name, segment_number
from openmsmq.store.vfs import Vfs

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged range of a file.

    Attributes:
        path: file.
        offset: first byte.
        length: bytes; 0 if unknown or if a file is missing.
        reason: description.
    """

    path: str
    offset: int
    length: int
    reason: str


@dataclass(slots=True)
class SegmentFile:
    """A segment file as found."""

    number: int
    path: str
    size: int


@dataclass(slots=True)
class DirectoryScan:
    """Contents of the directory before frames are read.

    Attributes:
        codec: None if there is neither a valid segment header nor a valid checkpoint.
        segments: sorted by number.
        checkpoints: valid ones, newest first.
        damages: files that are missing, short, or without a valid header.
        weak: damage without loss, because there is a second copy.
    """

    codec: Codec | None
    segments: list[SegmentFile]
    checkpoints: list[LogState]
    files: Checkpoints
    damages: list[Damage] = field(default_factory=list)
    weak: list[Damage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ZeroRange:
    """A range to fill with zeros: frames of a torn write, which must not become valid again."""

    number: int
    start: int
    end: int


@dataclass(slots=True)
class RecoveryOutcome:
    """Result of a replay.

    Attributes:
        replay: the replay, with the state.
        position: absolute position where the log continues.
        wipes: ranges to erase before that.
        from_checkpoint: whether a checkpoint was used.
    """

    replay: Replay
    position: int
    wipes: list[ZeroRange]
    from_checkpoint: bool


def survey(vfs: Vfs, directory: str) -> DirectoryScan:
    """Scan the directory of a log; raises UnknownFormat and OSError."""
    files = Checkpoints(vfs, directory)
    loaded = list(files.load())
    codec = loaded[0][0] if loaded else None
    found = DirectoryScan(codec, [], [state for _, state in loaded], files)
    for name in files.damaged:
        found.weak.append(Damage(f"{directory}/{name}", 0, 0, "checkpoint is damaged"))
    numbers = sorted(number for name in vfs.listdir(directory) if (number := segment_number(name)) is not None)
    for number in numbers:
        path = f"{directory}/{segment_name(number)}"
        handle = vfs.open(path)
        try:
            size = vfs.size(handle)
            page = vfs.pread(handle, FRAMES_START, 0)
        finally:
            vfs.close(handle)
        found.segments.append(SegmentFile(number, path, size))
        try:
            named, own, damaged = read_segment_header(page, path)
        except ValueError as error:
            found.damages.append(Damage(path, 0, FRAMES_START, str(error)))
            continue
        found.weak += [Damage(path, offset, 0, "one copy of the segment header is damaged") for offset in damaged]
        found.codec = found.codec or own
        if named != number or own.identity != found.codec.identity:
            found.damages.append(Damage(path, 0, FRAMES_START, "header of another segment"))
    _check_shape(found, directory)
    return found


def _check_shape(found: DirectoryScan, directory: str) -> None:
    """Report missing and short files."""
    codec = found.codec
    if codec is None:
        return
    for file in found.segments:
        if file.size < codec.segment_size:
            missing = codec.segment_size - file.size
            found.damages.append(Damage(file.path, file.size, missing, "file is too short"))
    expected = found.segments[0].number if found.segments else None
    for file in found.segments:
        while expected is not None and expected < file.number:
            found.damages.append(Damage(f"{directory}/{segment_name(expected)}", 0, 0, "segment file is missing"))
            expected += 1
        expected = file.number + 1
    for state in found.checkpoints[:1]:
        last = state.position // codec.segment_size
        for number in range(expected or last, last + 1):
            found.damages.append(Damage(f"{directory}/{segment_name(number)}", 0, 0, "segment file is missing"))


def read_segment(vfs: Vfs, file: SegmentFile, segment_size: int) -> bytes:
    """Return all bytes of a segment; raises OSError."""
    handle = vfs.open(file.path)
    try:
        return vfs.pread(handle, segment_size, 0)
    finally:
        vfs.close(handle)


class SegmentReplay:
    """Reads segments into one buffer, because allocating memory for each would take as long as reading."""

    def __init__(self, vfs: Vfs, segment_size: int) -> None:
        self._vfs = vfs
        self._buffer = bytearray(segment_size)

    def read(self, file: SegmentFile) -> bytearray:
        """Return all bytes of a segment of full length, valid until the next call; raises OSError."""
        handle = self._vfs.open(file.path)
        try:
            self._vfs.pread_into(handle, self._buffer, 0)
        finally:
            self._vfs.close(handle)
        return self._buffer


def replay_log(vfs: Vfs, found: DirectoryScan, codec: Codec, *, use_checkpoint: bool = True) -> RecoveryOutcome:
    """Replay the newest usable checkpoint and the log after it.

    Raises:
        DamagedStore: durable bytes are damaged.
        OSError: a file cannot be read.
    """
    size = codec.segment_size
    first = found.segments[0].number
    start = LogState(first * size + FRAMES_START)
    if use_checkpoint:
        for state in found.checkpoints:
            if state.position // size >= first:
                start = state
                break
    replay = Replay(codec, start)
    reader = SegmentReplay(vfs, size)
    file, end, sealed = found.segments[0], FRAMES_START, False
    for file in found.segments:
        if file.number < start.position // size:
            continue
        begin = start.position % size if file.number == start.position // size else FRAMES_START
        end, sealed = replay.segment(file.number, reader.read(file), begin)
        if not sealed:
            break
    if sealed:
        missing = f"{file.path.rpartition('/')[0]}/{segment_name(file.number + 1)}"
        raise DamagedStore(missing, 0, "segment file is missing")
    hole = file.number * size + end
    wipes = []
    for extent in _frames_behind(reader, found, codec, replay.position):
        number, begin, stop, latest_write = extent
        if latest_write > hole:
            raise DamagedStore(file.path, end, "invalid record, and records behind it are valid")
        wipes.append(ZeroRange(number, begin, stop))
    return RecoveryOutcome(
        replay, replay.position, wipes, start.position > first * size + FRAMES_START or bool(start.written)
    )


def _frames_behind(
    reader: SegmentReplay, found: DirectoryScan, codec: Codec, position: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield segments with valid frames after `position`: segment, offset to erase from, end of the last frame, latest
    start of a write."""
    size = codec.segment_size
    for file in found.segments:
        if file.number < position // size:
            continue
        begin = position % size if file.number == position // size else FRAMES_START
        data = reader.read(file)
        stop, latest = 0, 0
        for fields in codec.search(data, begin, file.number * size):
            stop = fields[2] - file.number * size + frame_size(fields[1])
            latest = max(latest, fields[2] - fields[7])
        if stop:
            yield file.number, begin, stop, latest
