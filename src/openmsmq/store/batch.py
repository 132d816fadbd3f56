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
    """Bytes to write to one segment."""

    def __init__(self, segment: Segment, handle: int, offset: int, parts: list[bytes]) -> None:
        self.segment: Final = segment
        self.handle: Final = handle
        self.offset: Final = offset
        self.parts: Final = parts


class LogBatch:
    """Everything that was appended since the last batch was taken.

    Attributes:
        chunks: one per segment written to.
        end: absolute position that is durable once the batch is synced.
    """

    def __init__(self, vfs: Vfs, chunks: list[Chunk], end: int) -> None:
        self._vfs: Final = vfs
        self.chunks: Final = chunks
        self.end: Final = end

    @property
    def handles(self) -> list[int]:
        """Files to sync after `write`: one, unless a segment became full."""
        return [chunk.handle for chunk in self.chunks]

    def write(self) -> None:
        """Write the chunks: one write, unless a segment became full; raises OSError."""
        for chunk in self.chunks:
            write_fully(self._vfs, chunk.handle, b"".join(chunk.parts), chunk.offset)

    def sync(self) -> None:
        """Make the written data durable; raises OSError."""
        for handle in self.handles:
            # The durability guarantee: success is not reported before this returns.
            self._vfs.fdatasync(handle)


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """A checkpoint to be written: a snapshot of the state, and the live messages by queue."""

    checkpoints: Checkpoints
    codec: Codec
    state: LogState
    captured: list[tuple[int, Capture]]

    @property
    def position(self) -> int:
        """Absolute position of the state."""
        return self.state.position

    def write(self) -> int:
        """Encode, write and sync the file; return its size in bytes. Thread-safe. Raises OSError and StoreError; the
        earlier checkpoints then stay valid."""
        return self.checkpoints.write(encode(self.codec, self.state, self.captured))
