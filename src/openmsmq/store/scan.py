"""Reading a log that may be damaged, frame by frame: what is valid, and where the gaps are."""

from __future__ import annotations

from dataclasses import dataclass, field

from openmsmq.store import frames
from openmsmq.store.frames import FRAMES_START, Codec, frame_size
from openmsmq.store.recovery import DirectoryScan, SegmentFile, read_segment
from openmsmq.store.replay import LogState, Replay
from openmsmq.store.vfs import Vfs


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes of a segment where durable frames ought to be.

    Attributes:
        file: the segment.
        start, end: offsets.
        to_the_end: nothing valid follows in this segment, and the log goes on in a later one.
    """

    file: SegmentFile
    start: int
    end: int
    to_the_end: bool


@dataclass(slots=True)
class SegmentScan:
    """One segment: how many valid frames, the damaged gaps, whether it is sealed."""

    file: SegmentFile
    records: int = 0
    gaps: list[Gap] = field(default_factory=list)
    sealed: bool = False


@dataclass(slots=True)
class LogScan:
    """The whole log.

    Attributes:
        segments: those that the log has reached.
        replay: fed with every valid frame.
        torn_bytes: bytes of valid frames behind the torn end.
    """

    segments: list[SegmentScan]
    replay: Replay
    torn_bytes: int = 0

    @property
    def needs_next(self) -> bool:
        """The last segment is sealed, or will be when its gap is covered: there must be another."""
        if not self.segments:
            return False
        last = self.segments[-1]
        return last.sealed or bool(last.gaps and last.gaps[-1].to_the_end)


@dataclass(slots=True)
class _Found:
    """Valid frames of one segment: runs of (start, end), and what they contain."""

    runs: list[tuple[int, int]] = field(default_factory=list)
    records: int = 0
    latest_write: int = 0
    sealed: bool = False


def scan_log(vfs: Vfs, found: DirectoryScan, codec: Codec, short: frozenset[int] = frozenset()) -> LogScan:
    """Read all segments.

    Args:
        vfs: file system.
        found: the files, at least one segment or none.
        codec: of the store.
        short: numbers of segments that had been cut off, whose end is a gap although nothing else shows it.

    Raises:
        OSError: a file cannot be read.
    """
    size = codec.segment_size
    contents = [_find(codec, read_segment(vfs, file, size), file.number * size) for file in found.segments]
    # A checkpoint says how far the log was durable, as does each write that began later.
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
            break  # prepared, and not reached by the log
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
            end = at + frames.HEADER_SIZE  # cut off at its end: one SKIP, so that what is left of a chain counts
        segment.gaps += _split(Gap(file, at, end, goes_on), found, base)
        scan.replay.skip()
    return scan


def _split(gap: Gap, found: DirectoryScan, base: int) -> list[Gap]:
    """Cut a gap where a checkpoint was taken: the log must be readable from there."""
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
