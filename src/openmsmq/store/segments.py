"""Segment files: their names, their open handles, and the supply of prepared ones.

A segment is written only after its file stands on the disk in full length, with its header and its name synced. So an
`fdatasync` of the log never has to change the file's metadata, and a batch that was accepted cannot run out of space.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, TypeAlias

from openmsmq.store.errors import StoreFull
from openmsmq.store.frames import FRAMES_START, Codec, segment_header
from openmsmq.store.vfs import Vfs, write_fully

logger = logging.getLogger(__name__)

#: Runs a job somewhere else, e.g. in an executor; the store then needs no blocking call to get its next segment.
Background: TypeAlias = Callable[[Callable[[], None]], object]

#: Prepared segments that are kept: one to roll into, one that only removals and compaction may use when the disk is
#: full. Together with the one in use these are all that a drained store keeps.
SPARES: Final = 2
#: Handles of sealed segments that stay open for reading.
OPEN_SEGMENTS: Final = 64
_ZEROS: Final = bytes(1 << 20)
TEMPORARY_SUFFIX: Final = ".tmp"
_PREFIX: Final = "segment-"


class Segment:
    """One segment of the log.

    Attributes:
        number: its place in the log; the segment begins at absolute position number * segment size.
        live: messages and definitions in it that are still needed.
        ever: messages and definitions that were ever written to it.
        volume: payload bytes of those; together they say how sparse the segment is.
        last_death: absolute position of the frame that last made one of them unneeded.
    """

    __slots__ = ("ever", "handle", "last_death", "live", "number", "path", "volume")

    def __init__(self, number: int, path: str, handle: int | None = None) -> None:
        self.number = number
        self.path = path
        self.handle = handle
        self.live = 0
        self.ever = 0
        self.volume = 0
        self.last_death = 0


def segment_name(number: int) -> str:
    return f"{_PREFIX}{number:016x}"


def segment_number(name: str) -> int | None:
    """Number in a segment's file name, None for other files."""
    digits = name.removeprefix(_PREFIX)
    if digits == name or len(digits) != 16:
        return None
    try:
        number = int(digits, 16)
    except ValueError:
        return None
    return number if segment_name(number) == name else None


class OpenHandles:
    """Keeps a bounded number of sealed segments open."""

    def __init__(self, vfs: Vfs, limit: int = OPEN_SEGMENTS) -> None:
        self._vfs = vfs
        self._limit = limit
        self._sealed: OrderedDict[int, Segment] = OrderedDict()

    def handle(self, segment: Segment) -> int:
        """Handle of the segment, opening it if needed; raises OSError."""
        if segment.handle is None:
            segment.handle = self._vfs.open(segment.path)
            self.keep(segment)
        elif segment.number in self._sealed:
            self._sealed.move_to_end(segment.number)
        return segment.handle

    def keep(self, segment: Segment) -> None:
        """From now on, the handle of this segment may be closed when others are needed more."""
        self._sealed[segment.number] = segment
        while len(self._sealed) > self._limit:
            self.close(next(iter(self._sealed.values())))

    def close(self, segment: Segment) -> None:
        self._sealed.pop(segment.number, None)
        if segment.handle is not None:
            handle, segment.handle = segment.handle, None
            self._vfs.close(handle)


class SegmentPool:
    """Prepares segments ahead of need, from recycled files or from new ones."""

    def __init__(
        self, vfs: Vfs, directory: str, codec: Codec, next_number: int, background: Background | None = None
    ) -> None:
        self._vfs = vfs
        self._directory = directory
        self._codec = codec
        self._next_number = next_number
        self._background = background
        self._ready: deque[Segment] = deque()
        self._free: deque[str] = deque()
        self._lock = threading.Lock()
        self._closed = False

    def __len__(self) -> int:
        """Prepared segments."""
        return len(self._ready)

    @property
    def free_files(self) -> int:
        """Files that wait to be prepared again or deleted."""
        return len(self._free)

    def adopt(self, segment: Segment) -> None:
        """Take over a prepared segment that was found at start-up; they come in order."""
        self._ready.append(segment)
        self._next_number = segment.number + 1

    def ensure(self, count: int) -> None:
        """Have at least `count` prepared segments, preparing them now if needed; raises StoreFull."""
        if len(self._ready) >= count:
            return
        try:
            self._top_up(count)
        except OSError as error:
            raise StoreFull(f"cannot prepare a segment in {self._directory}: {error}") from error

    def take(self) -> Segment:
        """The next segment. The caller has ensured that there is one."""
        return self._ready.popleft()

    def release(self, path: str) -> None:
        """A segment's file is not needed any more; its handle is closed."""
        self._free.append(path)

    def replenish(self, count: int = SPARES) -> None:
        """Get back to `count` prepared segments, in the background if there is one."""
        if self._background is not None:
            self._background(lambda: self._top_up_quietly(count))
        else:
            self._top_up_quietly(count)

    def close(self) -> None:
        """Close what is prepared; the files stay for the next start."""
        with self._lock:
            self._closed = True
            for segment in self._ready:
                if segment.handle is not None:
                    self._vfs.close(segment.handle)
            self._ready.clear()

    def _top_up_quietly(self, count: int) -> None:
        try:
            self._top_up(count)
        except OSError as error:
            # Not an error yet: it becomes one, for the caller that needs it, when the supply is used up.
            logger.warning("cannot prepare a segment in %s: %s", self._directory, error)

    def _top_up(self, count: int) -> None:
        with self._lock:
            while len(self._ready) < count and not self._closed:
                self._ready.append(self._prepare())
            while self._free and not self._closed:
                # One by one: should only a part of these survive a crash, the log must not have a gap.
                self._vfs.unlink(self._free[0])
                self._vfs.fsync_directory(self._directory)
                self._free.popleft()

    def _prepare(self) -> Segment:
        number = self._next_number
        path = f"{self._directory}/{segment_name(number)}"
        temporary = path + TEMPORARY_SUFFIX
        recycled = bool(self._free)
        if recycled:
            # The old name has to be gone for good before the content changes.
            self._vfs.rename(self._free[0], temporary)
            self._free.popleft()
            self._vfs.fsync_directory(self._directory)
        handle = self._vfs.open(temporary, create=not recycled)
        try:
            if not recycled:
                fill_with_zeros(self._vfs, handle, FRAMES_START, self._codec.segment_size)
            # A recycled file keeps its old bytes: frames name their absolute position, so old ones never match.
            write_fully(self._vfs, handle, segment_header(self._codec, number), 0)
            self._vfs.fdatasync(handle)
            self._vfs.rename(temporary, path)
            self._vfs.fsync_directory(self._directory)
        except BaseException:
            self._vfs.close(handle)
            self._discard(temporary)
            self._discard(path)
            raise
        self._next_number = number + 1
        return Segment(number, path, handle)

    def _discard(self, path: str) -> None:
        # Not left to the next start: on a full disk these bytes are missed.
        try:
            self._vfs.unlink(path)
        except OSError:
            logger.debug("nothing to discard at %s", path)


def fill_with_zeros(vfs: Vfs, handle: int, start: int, end: int) -> None:
    """Write zeros from `start` to `end`; raises OSError."""
    while start < end:
        # A slice of bytes is a copy, if it is not the whole.
        piece = _ZEROS if end - start >= len(_ZEROS) else _ZEROS[: end - start]
        write_fully(vfs, handle, piece, start)
        start += len(piece)
