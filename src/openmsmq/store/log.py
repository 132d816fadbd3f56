"""The store: an append-only log of atomic batches, with live records counted per segment.

`append` puts frames into memory and `sync` makes them durable. The caller owns the index of live messages and passes
the location of each message that it removes; the store keeps a few integers per segment, the definitions, and pending
messages.

Not thread-safe, except `LogBatch.write` and `CheckpointJob.write`, which only access files and may run in another
thread.

Invariants (docs/architecture.md):

- I3: the log is authoritative. `fail` marks the store as failed if memory and log disagree.
- I4: after a failed write or sync the store accepts no more operations. A sync is never retried: after a failed one, a
  second may report success for data that is lost.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from openmsmq.store import frames
from openmsmq.store.batch import CheckpointJob, LogBatch
from openmsmq.store.bookkeeping import SegmentStats
from openmsmq.store.columns import Capture
from openmsmq.store.compaction import TOLERATED, Compactor, IsLive, Relocated
from openmsmq.store.errors import DamagedRecord, StoreError, StoreFailed, StoreFenced, StoreFull
from openmsmq.store.frames import HEADER_SIZE, INSERT, PENDING, PREPARE
from openmsmq.store.opening import Recovered, open_log
from openmsmq.store.operations import Insert, Operation, Remove
from openmsmq.store.ownership import fenced
from openmsmq.store.replay import LogState
from openmsmq.store.row_frames import MessageRows, payloads_of
from openmsmq.store.segments import Background, OpenHandles, Segment
from openmsmq.store.specs import FrameSpec, specify
from openmsmq.store.vfs import OsVfs, Vfs
from openmsmq.store.writer import LogWriter

#: Bytes read together with the header; most messages fit.
READ_AHEAD: Final = 4096 - HEADER_SIZE
#: Bytes per read when many messages are read.
WINDOW: Final = 32 << 10
#: Bytes per read when only the heads of messages are read.
HEADS_WINDOW: Final = 16 << 10
#: Bytes of the oldest segment processed per step of compaction.
COMPACTION_BUDGET: Final = 256 << 10


class Store:
    """A store: the log in one directory.

    Attributes:
        recovered: contents at the time of opening.
        durable_end: absolute end of the durable log.
        directory: directory of the log; it changes with each take-over.
        epoch: number of take-overs.
    """

    def __init__(
        self,
        directory: str,
        vfs: Vfs,
        segment_size: int,
        entropy: Callable[[int], bytes],
        background: Background | None,
        ignore_checkpoints: bool,
        take_over: bool,
    ) -> None:
        """Internal; use Store.open."""
        opened = open_log(vfs, directory, segment_size, entropy, background, ignore_checkpoints, take_over)
        self.recovered: Recovered = opened.recovered
        self.directory = opened.ownership.path
        self.epoch = opened.ownership.epoch
        self._vfs = vfs
        self._ownership = opened.ownership
        self._is_open = True
        self._codec = opened.codec
        self._supply = opened.supply
        self._checkpoints = opened.checkpoints
        self._handles = OpenHandles(vfs)
        self._books = SegmentStats(opened.codec.segment_size, opened.segments, opened.state)
        self._failure: BaseException | None = None
        self.durable_end = opened.position
        try:
            self._writer = LogWriter(opened, vfs, self._books)
            self._compactor = Compactor(opened.codec, self._books, self._writer, self._read_segment)
            if opened.recovered.report.dropped_transactions:
                self._chain([FrameSpec(frames.STARTED, key=self.high_key)])
        except BaseException:
            self._release_files()
            raise

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        vfs: Vfs | None = None,
        segment_size: int = frames.DEFAULT_SEGMENT_SIZE,
        entropy: Callable[[int], bytes] = os.urandom,
        background: Background | None = None,
        ignore_checkpoints: bool = False,
        take_over: bool = False,
    ) -> Store:
        """Open the store in a directory; create both if needed.

        Args:
            directory: directory for this store only.
            vfs: the file system.
            segment_size: bytes; only for a new store, an existing one keeps its size.
            entropy: returns that number of random bytes; called once, for a new store.
            background: runs a job in another thread to prepare segments in advance; by default, they are prepared
                inline.
            ignore_checkpoints: read the whole log even if there is a checkpoint.
            take_over: take over the store from its owner, which then writes and acknowledges nothing more.

        Raises:
            StoreInUse: another process has it open.
            DamagedStore: durable bytes are damaged; names file and offset.
            UnknownFormat: written by another version.
            StoreFull: no disk space for a new store. OSError: a file cannot be read or written.
        """
        return cls(
            os.fspath(directory), vfs or OsVfs(), segment_size, entropy, background, ignore_checkpoints, take_over
        )

    # ------------------------------------------------------------------------------------------------ appending

    @property
    def end(self) -> int:
        """Absolute end of the appended data, durable or not."""
        writer = self._writer  # read twice per call
        return writer.base + writer.offset

    @property
    def high_key(self) -> int:
        """Highest message number ever used or reserved."""
        return self._writer.high_key

    @property
    def definitions(self) -> Mapping[bytes, bytes]:
        """Values by name, including the last append."""
        return self._books.definitions

    @property
    def layout(self) -> dict[str, Any]:
        """Values that another process needs to read the segment files: `segment_size`, and `identity` as hexadecimal
        text."""
        return {"segment_size": self._codec.segment_size, "identity": self._codec.identity.hex()}

    @property
    def largest_payload(self) -> int:
        """Longest payload of an insert, in bytes."""
        return self._codec.largest_payload

    def insert(self, queue: int, key: int, deadline: int, payload: bytes) -> int:
        """Append one message as a batch of its own.

        Returns:
            Its location.

        Raises:
            StoreFull, RecordTooLarge: nothing was applied.
            StoreFailed: the store has failed earlier.
        """
        return self.append((Insert(queue, key, deadline, payload),))[0]

    def remove(self, key: int, location: int) -> None:
        """Append the removal of one message as a batch of its own; raises as `append`."""
        self.append((Remove(key, location),))

    def append(self, operations: Sequence[Operation]) -> list[int]:
        """Append an atomic batch: after a crash, all or nothing of it is applied. It is durable after the next `sync`.

        Returns:
            Locations of the messages that were inserted or moved, in order.

        Raises:
            StoreFull, RecordTooLarge: nothing was applied.
            StoreFailed: the store has failed earlier.
            DamagedRecord: a message to move cannot be read; nothing was applied.
        """
        if len(operations) == 1:  # the usual case
            if self._failure is not None:
                self._check()
            only = operations[0]
            if isinstance(only, Insert):
                location = self._writer.insert(only.queue, only.key, only.deadline, only.payload)
                if location:
                    return [location]
            elif isinstance(only, Remove) and self._writer.remove(only.key, only.location):
                return []
        return self._chain(specify(operations, self._books, self.read))

    def reserve(self, high: int) -> None:
        """Mark all numbers up to `high` as used, also after a restart. Durable after the next `sync`."""
        # Written twice, so that damage to one frame cannot make numbers available again.
        self._chain([FrameSpec(frames.RESERVE, key=high)] * 2)

    def append_pending(self, transaction: int, inserts: Sequence[Insert]) -> list[int]:
        """Write messages of a transaction ahead. They become live when it commits; a restart drops those of uncommitted
        ones.

        Args:
            transaction: u32 > 0, different from all open transactions.
            inserts: the messages.

        Returns:
            Their locations, which `read` accepts immediately.

        Raises:
            As `append`.
        """
        locations = self._chain([_pending(insert) for insert in inserts], transaction)
        self._books.add_pending(transaction, inserts, locations)
        return locations

    def append_rows(self, transaction: int, rows: MessageRows) -> array[int]:
        """`append_pending` for many messages of one queue; much faster.

        Returns:
            Their locations, array('Q').
        """
        self._check()
        locations = self._writer.rows(rows, PENDING, transaction)
        self._books.add_pending_rows(transaction, rows, locations)
        return locations

    def insert_rows(self, rows: MessageRows, also: Sequence[Operation] = ()) -> array[int]:
        """`insert` for many messages: all are appended, or none. Much faster. Each is a separate batch or, if there are
        other operations, all are one atomic batch with these. The operations must not insert or move messages.

        Returns:
            Their locations, array('Q').

        Raises:
            As `append`.
        """
        self._check()
        return self._writer.rows(rows, INSERT, 0, specify(also, self._books, self.read) if also else ())

    def prepare(self, transaction: int, note: bytes, inserts: Sequence[Insert] = ()) -> list[int]:
        """Prepare a transaction for two-phase commit, so that it survives a restart: write its last messages and its
        note, together or not at all. Durable after the next `sync`.

        After a restart, `recovered.prepared` contains the note and the pending messages, and the caller must `commit`
        or `abort` the transaction. The caller writes other operations of the transaction, such as removals, into the
        note, locks their messages, and passes them to `commit`.

        Args:
            transaction: with or without pending messages.
            note: opaque; at most as large as a payload.
            inserts: as for `append_pending`.

        Returns:
            Locations of `inserts`.

        Raises:
            As `append`.
        """
        locations = self._chain([*map(_pending, inserts), FrameSpec(PREPARE, note)], transaction)
        if inserts:
            self._books.add_pending(transaction, inserts, locations)
        return locations

    def commit(self, transaction: int, operations: Sequence[Operation] = ()) -> list[int]:
        """Commit the pending messages of a transaction together with more operations, in one atomic batch.

        Returns:
            Locations of the messages inserted or moved by `operations`.

        Raises:
            As `append`; the transaction then stays open.
        """
        # First and last frame, so that damage to one frame cannot undo the transaction.
        commit = FrameSpec(frames.COMMIT)
        locations = self._chain([commit, *specify(operations, self._books, self.read), commit], transaction)
        self._books.forget_pending(transaction)
        return locations

    def settle(self, commits: Sequence[int], aborts: Sequence[int], operations: Sequence[Operation] = ()) -> list[int]:
        """Commit and abort several transactions, with more operations, in one atomic batch.

        Returns:
            Locations of the messages inserted or moved by `operations`.

        Raises:
            As `append`; all transactions then stay open.
        """
        commit = [FrameSpec(frames.COMMIT, transaction=number) for number in commits]
        abort = [FrameSpec(frames.ABORT, transaction=number) for number in aborts]
        # First and last frames, as in `commit`.
        locations = self._chain([*commit, *abort, *specify(operations, self._books, self.read), *commit, *abort])
        for transaction in commits:
            self._books.forget_pending(transaction)
        for transaction in aborts:
            for location in self._books.forget_pending(transaction):
                self._books.discard(location, self._writer.position)
        return locations

    def abort(self, transaction: int) -> None:
        """Drop the pending messages of a transaction; raises as `append`."""
        self._chain([FrameSpec(frames.ABORT)], transaction)
        for location in self._books.forget_pending(transaction):
            self._books.discard(location, self._writer.position)

    # ------------------------------------------------------------------------------------------------- durability

    def sync(self) -> None:
        """Make everything appended so far durable. Blocks.

        Raises:
            StoreFailed: this or an earlier sync failed. The state on disk is unknown, and the store cannot be used any
            more: a second fsync after a failed one may report success for data that is lost.
        """
        batch = self.take_batch()
        if batch is None:
            return
        try:
            batch.write()
            batch.sync()
        except OSError as error:
            self.not_written(batch, error)
        self.finish_batch(batch)

    def take_batch(self) -> LogBatch | None:
        """Take the data to be written; None if there is none. A batch must be finished before the next is taken.

        With `LogBatch.write`, a sync of its files and `finish_batch` or `not_written`, this is `sync` in steps.

        Raises:
            StoreFailed: the store has failed earlier.
            StoreError: the last batch is not finished.
            StoreFenced: another process has taken over the store.
            OSError: the ownership cannot be checked.
        """
        self._check()
        if self._ownership.is_lost_lately():
            self._fenced()
        return self._writer.take_batch()

    def finish_batch(self, batch: LogBatch) -> None:
        """Note that `batch` is on disk. Raises StoreFenced if another process has taken over the store meanwhile, which
        may or may not contain the batch. Raises OSError as `take_batch`."""
        if self._ownership.is_lost():
            self._fenced()
        self.durable_end = batch.end
        self._writer.batch_is_written()
        for chunk in batch.chunks:
            if chunk.segment is not self._writer.tail:
                self._handles.keep(chunk.segment)
        self._recycle()

    def check_owner(self) -> None:
        """Raises StoreFenced if another process has taken over the store, OSError if that cannot be checked. A
        successful check is valid for 1 ms."""
        if self._ownership.is_lost_lately():
            self._fenced()

    def fail(self, error: BaseException) -> NoReturn:
        """Mark the store as failed permanently; always raises StoreFailed."""
        self._failure = error
        raise StoreFailed(f"{self.directory}: {error}") from error

    def not_written(self, batch: LogBatch, error: OSError) -> NoReturn:
        """Mark the store as failed, as `fail` does, because a batch could not be written or synced; the error names its
        files."""
        error.filename = ", ".join(chunk.segment.path for chunk in batch.chunks)
        self.fail(error)

    # ---------------------------------------------------------------------------------------------------- reading

    def read(self, location: int) -> bytes:
        """Return the payload of a message, also before it is synced.

        Raises:
            DamagedRecord: no valid message is there.
            OSError: the file cannot be opened or read.
        """
        return self.read_all([location])[0]

    def read_all(self, locations: Sequence[int]) -> list[bytes]:
        """`read` for many messages; needs few system calls if they are close together. Raises as `read`."""
        found: list[bytes] = []
        on_disk = self.durable_end
        while (index := len(found)) < len(locations):
            location = locations[index]
            if location >= on_disk and (payload := self._writer.buffered(location)) is not None:
                found.append(payload)
                continue
            window = self._read_window(location, WINDOW if len(locations) - index > 1 else READ_AHEAD)
            payloads = payloads_of(self._codec, window, location, locations, index)
            # Empty: it is longer than the window, or damaged.
            found += payloads or [self._read_frame(location, window)]
        return found

    def _read_window(self, location: int, size: int) -> bytes:
        number, offset = divmod(location, self._codec.segment_size)
        segment = self._books.segments.get(number)
        if segment is None:
            raise DamagedRecord(location, "", offset, "no such segment")
        return self._vfs.pread(self._handles.handle(segment), HEADER_SIZE + size, offset)

    def heads(self, locations: Sequence[int], length: int) -> list[bytes]:
        """Return the first bytes of the payloads of many messages; faster than `read` if they are close together. Only
        their position is checked, not the checksum. Raises as `read`."""
        segment_size, on_disk = self._codec.segment_size, self.durable_end
        wanted = HEADER_SIZE + length
        found: list[bytes] = []
        start, data = 0, b""
        for location in locations:
            if location >= on_disk and (payload := self._writer.buffered(location)) is not None:
                found.append(payload[:length])
                continue
            at = location - start
            if not 0 <= at <= len(data) - wanted:
                number, offset = divmod(location, segment_size)
                segment = self._books.segments.get(number)
                if segment is None:
                    raise DamagedRecord(location, "", offset, "no such segment")
                data = self._vfs.pread(self._handles.handle(segment), HEADS_WINDOW, offset)
                start, at = location, 0
            if len(data) - at < wanted or frames.position_at(data, at) != location:
                raise DamagedRecord(location, "", location % segment_size, "no valid message")
            found.append(data[at + HEADER_SIZE : at + wanted])
        return found

    def _read_frame(self, location: int, data: bytes) -> bytes:
        """Return the payload of a message whose first bytes are in `data`. Raises DamagedRecord, OSError."""
        number, offset = divmod(location, self._codec.segment_size)
        segment = self._books.segments[number]
        if len(data) >= HEADER_SIZE:
            length = frames.HEADER.unpack_from(data)[1]
            if len(data) < HEADER_SIZE + length <= self._codec.segment_size - offset:
                handle = self._handles.handle(segment)
                data += self._vfs.pread(handle, HEADER_SIZE + length - len(data), offset + len(data))
        payloads = payloads_of(self._codec, data, location, (location,), 0)
        if not payloads:
            raise DamagedRecord(location, segment.path, offset, "no valid message")
        return payloads[0]

    # ------------------------------------------------------------------------------------------------ checkpoints

    def capture_checkpoint(self, queues: Mapping[int, Capture] | Iterable[tuple[int, Capture]]) -> CheckpointJob:
        """Begin a checkpoint of the state at `end`.

        Args:
            queues: all live messages (committed ones, locked or not). The snapshots must not change until the job is
                written.

        Returns:
            A job: call its `write` in any thread, then `finish_checkpoint`.

        Raises:
            StoreFailed: the store has failed earlier.
            StoreError: a queue appears twice.
        """
        self._check()
        captured = list(queues.items() if isinstance(queues, Mapping) else queues)
        if len(dict(captured)) != len(captured):
            raise StoreError("a queue appears twice in a checkpoint")
        state = LogState(self.end, self.high_key)
        self._books.describe(state)
        return CheckpointJob(self._checkpoints, self._codec, state, captured)

    def finish_checkpoint(self, job: CheckpointJob) -> None:
        """Publish a written checkpoint.

        Raises:
            StoreError: the log is not yet durable up to the job's position; sync and call again.
            OSError: the rename failed; the earlier checkpoints are still valid.
        """
        self._check()
        if self.durable_end < job.position:
            raise StoreError("a checkpoint must not be ahead of the durable log")
        self._checkpoints.publish(job.position)

    def checkpoint(self, queues: Mapping[int, Capture] | Iterable[tuple[int, Capture]]) -> None:
        """Write a checkpoint in one blocking call; raises StoreFailed, OSError."""
        job = self.capture_checkpoint(queues)
        self.sync()
        job.write()
        self.finish_checkpoint(job)

    # ------------------------------------------------------------------------------------------------- compaction

    @property
    def wants_compaction(self) -> bool:
        """Whether garbage dominates: more segments than twice the needed ones plus `compaction.TOLERATED`."""
        return self._compactor.wanted()

    def compact_step(
        self, is_live: IsLive, relocated: Relocated, *, budget: int = COMPACTION_BUDGET, thorough: bool = False
    ) -> bool:
        """Rewrite live records of the oldest segment at the end of the log, if garbage dominates.

        The old segment is recycled after a later sync has made that durable, so request one.

        Args:
            is_live: returns whether the caller's index has a key at a location.
            relocated: called immediately for each moved message, including pending ones of open transactions. Only
                locations change; after a crash, either the old or the new frame is valid.
            budget: bytes to process, which bounds the time of one step.
            thorough: for idle times: tolerate only one unneeded segment.

        Returns:
            Whether more is to be done, possibly only after the next sync.

        Raises:
            StoreFailed: the store has failed earlier.
            StoreFull: the disk is full; relocations passed to `relocated` were done.
            OSError: the segment cannot be read.
        """
        self._check()
        if self._books.oldest().number >= self.durable_end // self._codec.segment_size:
            return False
        return self._compactor.step(is_live, relocated, budget, 1 if thorough else TOLERATED)

    # ----------------------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Sync, mark the clean end, and release the files. The files of a failed store are only released."""
        if not self._is_open:
            return
        try:
            if self._failure is None:
                self.sync()
                self._mark_clean_end()
        finally:
            self._release_files()

    def _mark_clean_end(self) -> None:
        """Write a STOPPED frame in a separate write. It makes damage to the last batch distinguishable from a torn
        write."""
        if self._writer.stopped:
            return
        try:
            self._chain([FrameSpec(frames.STOPPED, key=self.high_key)])
        except StoreFull:
            return
        self.sync()

    def _release_files(self) -> None:
        self._supply.close()
        for segment in self._books.segments.values():
            self._handles.close(segment)
        if self._is_open:
            self._ownership.release()
            self._is_open = False
        self._failure = self._failure or StoreError("the store is closed")

    # ----------------------------------------------------------------------------------------------------- details

    def _fenced(self) -> NoReturn:
        self._failure = fenced(self.directory, self.epoch)
        raise self._failure

    def _check(self) -> None:
        if isinstance(self._failure, StoreFenced):
            raise self._failure
        if self._failure is not None:
            raise StoreFailed(f"{self.directory}: {self._failure}") from self._failure

    def _chain(self, specs: Sequence[FrameSpec], transaction: int = 0) -> list[int]:
        self._check()
        return self._writer.chain(specs, transaction)

    def _read_segment(self, segment: Segment, offset: int, length: int) -> bytes:
        return self._vfs.pread(self._handles.handle(segment), length, offset)

    def _recycle(self) -> None:
        """Release unneeded segments at the old end of the log.

        Only at the old end, never in the middle, so that the remaining log is self-contained (see replay.py). And only
        when the frames that made them unneeded are durable; otherwise a crash could undo those frames after their
        messages are gone.
        """
        freed = False
        while (oldest := self._books.oldest()) is not self._writer.tail:
            written = oldest.number < self.durable_end // self._codec.segment_size
            if oldest.live or not written or oldest.last_death > self.durable_end:
                break
            self._handles.close(oldest)
            self._books.drop_segment(oldest)
            self._supply.release(oldest.path)
            freed = True
        if freed:
            self._supply.replenish()


def _pending(insert: Insert) -> FrameSpec:
    return FrameSpec(PENDING, insert.payload, insert.key, insert.deadline, insert.queue)
