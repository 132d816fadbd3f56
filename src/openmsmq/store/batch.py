"""A batch: the log data that one sync writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from openmsmq.store.checkpoints import Checkpoints, encode
from openmsmq.store.columns import Capture
from openmsmq.store.frames import Codec
from openmsmq.store.replay import LogState
from openmsmq.store.segments import Segment
from openmsmq.store.vfs import Vfs, write_fully


class Chunk:
    """Bytes for one segment."""

    def __init__(self, segment: Segment, handle: int, offset: int, parts: list[bytes]) -> None:
        self.segment: Final = segment
        self.handle: Final = handle
        self.offset: Final = offset
        self.parts: Final = parts


class LogBatch:
    """Everything that was appended since the last batch was taken.

    Attributes:
        chunks: one for each segment touched.
        end: absolute position that is durable once this is written.
    """

    def __init__(self, vfs: Vfs, chunks: list[Chunk], end: int) -> None:
        self._vfs: Final = vfs
        self.chunks: Final = chunks
        self.end: Final = end

    @property
    def handles(self) -> list[int]:
        """The files that have to be synced after `write`: one, unless a segment became full."""
        return [chunk.handle for chunk in self.chunks]

    def write(self) -> None:
        """One write, unless a segment became full; raises OSError."""
        for chunk in self.chunks:
            write_fully(self._vfs, chunk.handle, b"".join(chunk.parts), chunk.offset)

    def sync(self) -> None:
        """Make durable what was written; raises OSError."""
        for handle in self.handles:
            # Here the promise is kept: success is reported to nobody before this returns.
            self._vfs.fdatasync(handle)


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """A checkpoint on its way to the disk: the state at one moment, and the live messages by queue."""

    checkpoints: Checkpoints
    codec: Codec
    state: LogState
    captured: list[tuple[int, Capture]]

    @property
    def position(self) -> int:
        """Absolute position of the state."""
        return self.state.position

    def write(self) -> None:
        """Encode, write and sync the file, in any thread; raises OSError and StoreError, which leave the earlier
        checkpoints in force."""
        self.checkpoints.write(encode(self.codec, self.state, self.captured))
