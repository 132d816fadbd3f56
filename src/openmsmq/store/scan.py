"""Scan a log that may be damaged, frame by frame, for valid frames and gaps."""

from __future__ import annotations

from dataclasses import dataclass, field

from openmsmq.store import frames
from openmsmq.store.frames import FRAMES_START, Codec, frame_size
from openmsmq.store.recovery import DirectoryScan, SegmentFile, read_segment
from openmsmq.store.replay import LogState, Replay
from openmsmq.store.vfs import Vfs


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes of a segment where durable frames are missing.

    Attributes:
        file: the segment.
        start, end: offsets.
        to_the_end: whether no valid frame follows in this segment, but the log continues in a later one.
    """

    file: SegmentFile
    start: int
    end: int
    to_the_end: bool


@dataclass(slots=True)
class SegmentScan:
    """One segment: number of valid frames, gaps, and whether it is sealed."""

    file: SegmentFile
    records: int = 0
    gaps: list[Gap] = field(default_factory=list)
    sealed: bool = False


@dataclass(slots=True)
class LogScan:
    """The whole log.

    Attributes:
        segments: segments that the log has reached.
        replay: replay of all valid frames.
        torn_bytes: bytes of valid frames after the torn end.
    """

    segments: list[SegmentScan]
    replay: Replay
    torn_bytes: int = 0

    @property
    def needs_next(self) -> bool:
        """Whether there must be another segment: the last one is sealed, or will be when its gap is covered."""
        if not self.segments:
            return False
        last = self.segments[-1]
        return last.sealed or bool(last.gaps and last.gaps[-1].to_the_end)


@dataclass(slots=True)
class _Found:
    """Valid frames of one segment: runs of (start, end), and their contents."""

    runs: list[tuple[int, int]] = field(default_factory=list)
    records: int = 0
    latest_write: int = 0
    sealed: bool = False


def scan_log(vfs: Vfs, found: DirectoryScan, codec: Codec, short: frozenset[int] = frozenset()) -> LogScan:
    """Read all segments.

    Args:
        vfs: file system.
        found: the files, possibly none.
        codec: codec of the store.
        short: numbers of segments that were too short, so that their end is a gap.

    Raises:
        OSError: a file cannot be read.
    """
    size = codec.segment_size
    contents = [_find(codec, read_segment(vfs, file, size), file.number * size) for file in found.segments]
    # A checkpoint proves that the log was durable up to its position, as a write does for its start.
    durable = max((state.position for state in found.checkpoints), default=0)
    for content in contents:
        durable = max(durable, content.latest_write)
    first = found.segments[0].number if found.segments else 0
    scan = LogScan([], Replay(codec, LogState(first * size + FRAMES_START)))
    ended = False
    for file, content in zip(found.segments, contents, strict=True):
        if ended:
            scan.torn_bytes += sum(end - start for start, end in content.runs)
            continue
        base = file.number * size
        known_end = max(0, min(durable, base + size) - base)
        if not content.runs and known_end <= FRAMES_START and file.number not in short:
            break  # prepared, not reached by the log
        segment = SegmentScan(file, content.records, sealed=content.sealed)
        scan.segments.append(segment)
        data = read_segment(vfs, file, size)
        at = FRAMES_START
        for start, end in content.runs:
            if start > at:
                if base + at >= durable:
                    scan.torn_bytes += end - start
                    ended = True
                    continue
                segment.gaps += _split(Gap(file, at, start, False), found, base)
                scan.replay.skip()
            scan.replay.segment(file.number, data, start)
            at = end
        if content.sealed or ended:
            continue
        goes_on = durable >= base + size
        ended = not goes_on
        if base + at >= durable and file.number not in short:
            continue
        end = size if goes_on or known_end < at + frames.HEADER_SIZE else known_end
        if not goes_on and end == size:
            end = at + frames.HEADER_SIZE  # too short: one SKIP, so that the rest of a chain is applied
        segment.gaps += _split(Gap(file, at, end, goes_on), found, base)
        scan.replay.skip()
    return scan


def _split(gap: Gap, found: DirectoryScan, base: int) -> list[Gap]:
    """Split a gap at the positions of checkpoints, from which the log must be readable."""
    pieces = []
    for position in sorted(state.position for state in found.checkpoints):
        if gap.start < position - base < gap.end:
            pieces.append(Gap(gap.file, gap.start, position - base, False))
            gap = Gap(gap.file, position - base, gap.end, gap.to_the_end)
    return [*pieces, gap]


def _find(codec: Codec, data: bytes, base: int) -> _Found:
    result = _Found()
    for fields in codec.search(data, FRAMES_START, base):
        start = fields[2] - base
        end = start + frame_size(fields[1])
        if result.runs and result.runs[-1][1] == start:
            result.runs[-1] = (result.runs[-1][0], end)
        else:
            result.runs.append((start, end))
        result.records += 1
        result.latest_write = max(result.latest_write, fields[2] - fields[7])
        if fields[8] == frames.SEAL:
            result.sealed = True
            break
    return result
