"""Segment files: their names, their open handles, and the pool of prepared ones.

A segment is used only after its file is on disk in full length, with its header and its name synced. So an `fdatasync`
of the log never changes the file's metadata, and an accepted batch cannot run out of space.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, TypeAlias

from openmsmq.store.errors import StoreFull
from openmsmq.store.frames import FRAMES_START, HEADER_COPIES, HEADER_COPY_SIZE, Codec, segment_header
from openmsmq.store.vfs import Vfs, write_fully

logger = logging.getLogger(__name__)

#: Runs a job elsewhere, for example in an executor, so that getting the next segment does not block.
Background: TypeAlias = Callable[[Callable[[], None]], object]

#: Number of prepared segments: the next one, and one that only removals and compaction may use when the disk is full.
#: An empty store keeps only these and the one in use.
SPARES: Final = 2
#: Maximum number of sealed segments that are open for reading.
OPEN_SEGMENTS: Final = 64
_ZEROS: Final = bytes(1 << 20)
TEMPORARY_SUFFIX: Final = ".tmp"
_PREFIX: Final = "segment-"


class Segment:
    """One segment of the log.

    Attributes:
        number: its place in the log; the segment begins at absolute position number * segment size.
        live: number of messages and definitions that are still needed.
        ever: number of messages and definitions ever written to it.
        volume: payload bytes ever written to it; used with `ever` to estimate the size of a live record.
        last_death: absolute position of the last frame that made one of them unneeded.
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
    """Return the number in a segment's file name; None for other files."""
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

    def __init__(self, vfs: Vfs) -> None:
        self._vfs = vfs
        self._sealed: OrderedDict[int, Segment] = OrderedDict()

    def handle(self, segment: Segment) -> int:
        """Return the handle of a segment, which is opened if needed; raises OSError."""
        if segment.handle is None:
            segment.handle = self._vfs.open(segment.path)
            self.keep(segment)
        elif segment.number in self._sealed:
            self._sealed.move_to_end(segment.number)
        return segment.handle

    def keep(self, segment: Segment) -> None:
        """Add a sealed segment, whose handle may be closed when others are needed."""
        self._sealed[segment.number] = segment
        while len(self._sealed) > OPEN_SEGMENTS:
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
        """Number of prepared segments."""
        return len(self._ready)

    def adopt(self, segment: Segment) -> None:
        """Add a prepared segment found at start-up; called in order of their numbers."""
        self._ready.append(segment)
        self._next_number = segment.number + 1

    def ensure(self, count: int) -> None:
        """Ensure that at least `count` segments are prepared; raises StoreFull."""
        if len(self._ready) >= count:
            return
        try:
            self._top_up(count)
        except OSError as error:
            raise StoreFull(f"cannot prepare a segment in {self._directory}: {error}") from error

    def take(self) -> Segment:
        """Remove and return the next prepared segment. The caller must `ensure` that there is one."""
        return self._ready.popleft()

    def release(self, path: str) -> None:
        """Add the file of an unneeded segment, whose handle must be closed, for recycling."""
        self._free.append(path)

    def replenish(self, count: int = SPARES) -> None:
        """Prepare segments up to `count`, in the background if possible."""
        if self._background is not None:
            self._background(lambda: self._top_up_quietly(count))
        else:
            self._top_up_quietly(count)

    def close(self) -> None:
        """Close the prepared segments; their files are kept for the next start."""
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
            # Not an error yet; it becomes one for the caller that needs a segment when none is left.
            logger.warning("cannot prepare a segment in %s: %s", self._directory, error)

    def _top_up(self, count: int) -> None:
        with self._lock:
            while len(self._ready) < count and not self._closed:
                self._ready.append(self._prepare())
            while self._free and not self._closed:
                # One by one, so that a crash leaves no gap in the log.
                self._vfs.unlink(self._free[0])
                self._vfs.fsync_directory(self._directory)
                self._free.popleft()

    def _prepare(self) -> Segment:
        number = self._next_number
        path = f"{self._directory}/{segment_name(number)}"
        temporary = path + TEMPORARY_SUFFIX
        recycled = bool(self._free)
        if recycled:
            # The removal of the old name must be durable before the content changes.
            self._vfs.rename(self._free[0], temporary)
            self._free.popleft()
            self._vfs.fsync_directory(self._directory)
        handle = self._vfs.open(temporary, create=not recycled)
        try:
            if not recycled:
                fill_with_zeros(self._vfs, handle, FRAMES_START, self._codec.segment_size)
            # A recycled file keeps its old bytes: frames contain their absolute position, so old ones are never valid.
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
        # Not left to the next start, because a full disk needs the space.
        try:
            self._vfs.unlink(path)
        except OSError:
            logger.debug("nothing to discard at %s", path)


def upgrade_header(vfs: Vfs, codec: Codec, segment: Segment) -> None:
    """Write the header of this version over that of an open segment if it has another one; raises OSError.

    A program that cannot read the frames that this one appends then refuses the log. The copies are written one after
    the other, so that one of them is valid at any time.
    """
    handle = segment.handle
    assert handle is not None
    wanted = segment_header(codec, segment.number)
    for offset in HEADER_COPIES:
        copy = wanted[offset : offset + HEADER_COPY_SIZE]
        if vfs.pread(handle, HEADER_COPY_SIZE, offset) != copy:
            write_fully(vfs, handle, copy, offset)
            vfs.fdatasync(handle)


def fill_with_zeros(vfs: Vfs, handle: int, start: int, end: int) -> None:
    """Write zeros from `start` to `end`; raises OSError."""
    while start < end:
        # Avoid a slice, which would copy.
        piece = _ZEROS if end - start >= len(_ZEROS) else _ZEROS[: end - start]
        write_fully(vfs, handle, piece, start)
        start += len(piece)
