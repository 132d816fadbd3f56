"""Open a store: from a directory to a log that can be appended to."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from openmsmq.store.checkpoints import NAMES, Checkpoints
from openmsmq.store.columns import QueueColumns
from openmsmq.store.errors import DamagedStore
from openmsmq.store.frames import FRAMES_START, IDENTITY_SIZE, Codec
from openmsmq.store.ownership import Ownership, claim, fenced, remove_temporary_files
from openmsmq.store.recovery import DirectoryScan, RecoveryOutcome, replay_log, survey
from openmsmq.store.replay import LogState, count_live
from openmsmq.store.segments import (
    SPARES,
    Background,
    Segment,
    SegmentPool,
    fill_with_zeros,
    segment_name,
    upgrade_header,
)
from openmsmq.store.vfs import Vfs

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """Report about opening a store.

    Attributes:
        torn_bytes: bytes of valid but unsynced frames that were dropped at the end of the log.
        from_checkpoint: whether a checkpoint was used instead of reading the whole log.
        damaged_checkpoints: names of checkpoint files that were ignored.
        dropped_transactions: whether messages of uncommitted transactions were dropped.
    """

    torn_bytes: int
    from_checkpoint: bool
    damaged_checkpoints: tuple[str, ...]
    dropped_transactions: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared transaction; end it with `commit` or `abort`.

    Attributes:
        note: note passed to `prepare`.
        queues: queue number -> pending messages, sorted by key.
    """

    note: bytes
    queues: dict[int, QueueColumns]


@dataclass(frozen=True, slots=True)
class Recovered:
    """Contents of the store when it was opened; the caller builds its index from it.

    Attributes:
        definitions: values by name.
        queues: queue number -> live messages, sorted by key. Queues without messages are absent.
        high_key: highest message number ever used or reserved.
        report: report about opening the store.
        prepared: prepared transactions that have not ended.
    """

    definitions: dict[bytes, bytes]
    queues: dict[int, QueueColumns]
    high_key: int
    report: RecoveryReport
    prepared: dict[int, Prepared] = field(default_factory=dict)


@dataclass(slots=True)
class OpenedLog:
    """A log that is ready for appending."""

    codec: Codec
    ownership: Ownership
    segments: dict[int, Segment]
    tail: Segment | None
    position: int
    supply: SegmentPool
    checkpoints: Checkpoints
    state: LogState
    recovered: Recovered
    stopped: bool


def open_log(
    vfs: Vfs,
    directory: str,
    segment_size: int,
    entropy: Callable[[int], bytes],
    background: Background | None,
    ignore_checkpoints: bool,
    take_over: bool = False,
) -> OpenedLog:
    """Lock and recover a log, and erase the remains of a torn write; see Store.open for the errors."""
    ownership = claim(vfs, os.path.abspath(directory), take_over)
    try:
        return _open(vfs, ownership, segment_size, entropy, background, ignore_checkpoints)
    except BaseException as error:
        is_lost = isinstance(error, FileNotFoundError) and ownership.is_lost()
        ownership.release()
        if is_lost:
            raise fenced(directory, ownership.epoch) from error
        raise


def _open(
    vfs: Vfs,
    ownership: Ownership,
    segment_size: int,
    entropy: Callable[[int], bytes],
    background: Background | None,
    ignore_checkpoints: bool,
) -> OpenedLog:
    remove_temporary_files(vfs, ownership.path)
    found = survey(vfs, ownership.path)
    if ignore_checkpoints:
        found.checkpoints.clear()
    if found.damages:
        damage = found.damages[0]
        raise DamagedStore(damage.path, damage.offset, damage.reason)
    for weak in found.weak:
        logger.warning("%s: %s at offset %d", weak.path, weak.reason, weak.offset)
    if found.codec is None:
        return _create(vfs, ownership, found.files, Codec(entropy(IDENTITY_SIZE), segment_size), background)
    return _resume(vfs, ownership, found, found.codec, background)


def _create(
    vfs: Vfs, ownership: Ownership, files: Checkpoints, codec: Codec, background: Background | None
) -> OpenedLog:
    directory = ownership.path
    if files.damaged:
        raise DamagedStore(f"{directory}/{NAMES[0]}", 0, "checkpoints are damaged and there is no log")
    vfs.fsync_directory(directory)
    supply = SegmentPool(vfs, directory, codec, 1, background)
    position = codec.segment_size + FRAMES_START  # begins with segment 1, so that no location is 0
    recovered = Recovered({}, {}, 0, RecoveryReport(0, False, (), False))
    return OpenedLog(codec, ownership, {}, None, position, supply, files, LogState(position), recovered, False)


def _resume(
    vfs: Vfs, ownership: Ownership, found: DirectoryScan, codec: Codec, background: Background | None
) -> OpenedLog:
    directory = ownership.path
    outcome = replay_log(vfs, found, codec)
    replay = outcome.replay
    state = replay.finish()
    live = count_live(state, codec.segment_size)
    lost = [number for number in live if number < found.segments[0].number]
    if lost:
        raise DamagedStore(f"{directory}/{segment_name(min(lost))}", 0, "segment file is missing")
    _erase(vfs, found, outcome)
    tail_number = outcome.position // codec.segment_size
    _drop_surplus(vfs, directory, found, tail_number + SPARES)
    supply = SegmentPool(vfs, directory, codec, found.segments[-1].number + 1, background)
    segments: dict[int, Segment] = {}
    prepared_ones: list[Segment] = []
    for file in found.segments:
        segment = Segment(file.number, file.path)
        if file.number > tail_number:
            segment.handle = vfs.open(file.path)
            supply.adopt(segment)
            prepared_ones.append(segment)
            continue
        segment.live = live.get(file.number, 0)
        segment.ever, segment.volume = state.written.get(file.number, (0, 0))
        segment.ever = max(segment.ever, segment.live)
        segments[file.number] = segment
    tail = segments[tail_number]
    tail.handle = vfs.open(tail.path)
    _make_durable(vfs, directory, segments, outcome, codec.segment_size)
    for segment in (tail, *prepared_ones):
        upgrade_header(vfs, codec, segment)
    report = RecoveryReport(
        torn_bytes=sum(wipe.end - wipe.start for wipe in outcome.wipes),
        from_checkpoint=outcome.from_checkpoint,
        damaged_checkpoints=tuple(found.files.damaged),
        dropped_transactions=replay.has_pending,
    )
    if report.torn_bytes:
        logger.warning("%s: dropped %d bytes of an unfinished write", directory, report.torn_bytes)
    prepared = {
        transaction: Prepared(note, state.pending[transaction]) for transaction, (note, _) in state.prepared.items()
    }
    recovered = Recovered(dict(state.definitions), state.queues, state.high_key, report, prepared)
    stopped = replay.stopped and not outcome.wipes
    return OpenedLog(codec, ownership, segments, tail, outcome.position, supply, found.files, state, recovered, stopped)


def _make_durable(
    vfs: Vfs, directory: str, segments: dict[int, Segment], outcome: RecoveryOutcome, segment_size: int
) -> None:
    """Make the recovered data durable; raises OSError.

    If the process was killed, but not the machine, the last write may be readable and yet only in memory. The next
    writes, and all answers based on the recovered state, require that it is durable.
    """
    first = min(outcome.replay.write_start, outcome.position) // segment_size
    for number in sorted(segments):
        if number < first:
            continue
        handle = segments[number].handle
        if handle is not None:
            vfs.fdatasync(handle)
            continue
        handle = vfs.open(segments[number].path)
        try:
            vfs.fdatasync(handle)
        finally:
            vfs.close(handle)
    vfs.fsync_directory(directory)


def _erase(vfs: Vfs, found: DirectoryScan, outcome: RecoveryOutcome) -> None:
    """Erase frames of the torn write before new ones are written before them; raises OSError."""
    paths = {file.number: file.path for file in found.segments}
    for wipe in outcome.wipes:
        handle = vfs.open(paths[wipe.number])
        try:
            fill_with_zeros(vfs, handle, wipe.start, wipe.end)
            vfs.fdatasync(handle)
        finally:
            vfs.close(handle)


def _drop_surplus(vfs: Vfs, directory: str, found: DirectoryScan, last: int) -> None:
    """Delete prepared segments after `last`, which remain from a large write that was lost. Raises OSError."""
    while found.segments[-1].number > last:
        # From the end and one by one, so that a crash leaves no gap in the log.
        vfs.unlink(found.segments.pop().path)
        vfs.fsync_directory(directory)
