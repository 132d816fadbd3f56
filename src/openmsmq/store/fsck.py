"""Check and repair a store, for `openmsmq fsck`.

Repair copies damaged bytes to a quarantine file and overwrites them with a SKIP frame. Lost data that is still in a
checkpoint (definitions, removals, the highest number) is written to the log again. Everything readable is kept.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from openmsmq.store import frames
from openmsmq.store.checkpoints import NAMES
from openmsmq.store.errors import NoStore, StoreError
from openmsmq.store.frames import FRAMES_START, HEADER_SIZE, Codec, segment_header
from openmsmq.store.log import Store
from openmsmq.store.operations import Drop, Operation, Put, Remove
from openmsmq.store.ownership import Ownership, claim, log_directory, remove_temporary_files
from openmsmq.store.recovery import Damage, DirectoryScan, replay_log, survey
from openmsmq.store.replay import LogState, count_live
from openmsmq.store.scan import Gap, SegmentScan, scan_log
from openmsmq.store.segments import fill_with_zeros, segment_name, segment_number
from openmsmq.store.vfs import OsVfs, Vfs, write_fully

_QUARANTINE_MAGIC: Final = b"OMQ-BAD\n"
#: length of the path, offset, number of bytes
_QUARANTINE_ENTRY: Final = struct.Struct("<IQQ")


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """One segment.

    Attributes:
        number: its place in the log.
        path: file.
        records: number of valid frames.
        messages: number of live messages.
        damages: damaged ranges, in order.
        sealed: whether the log continues in the next segment.
    """

    number: int
    path: str
    records: int
    messages: int
    damages: tuple[Damage, ...]
    sealed: bool


@dataclass(frozen=True, slots=True)
class FsckReport:
    """Contents of a store.

    Attributes:
        segments: segments in order.
        records: number of valid frames.
        messages: number of live messages, as found by opening the store after a repair.
        definitions: number of definitions.
        high_key: highest number ever used or reserved.
        damages: damage because of which the store cannot be opened, in order.
        weak: damage without loss, because there is a second copy or the log has the data.
        torn_bytes: bytes of an unfinished write at the end; normal after a crash.
    """

    segments: tuple[SegmentReport, ...]
    records: int
    messages: int
    definitions: int
    high_key: int
    damages: tuple[Damage, ...]
    weak: tuple[Damage, ...]
    torn_bytes: int

    @property
    def clean(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damages and not self.weak


@dataclass(frozen=True, slots=True)
class Repaired:
    """Result of a repair.

    Attributes:
        quarantined: ranges whose bytes are in the quarantine file.
        restored: number of operations rewritten from a checkpoint.
        after: report of the repaired store.
    """

    quarantined: tuple[Damage, ...]
    restored: int
    after: FsckReport


def verify(directory: str, vfs: Vfs | None = None) -> FsckReport:
    """Read the whole store and return a report. Changes no data.

    Raises:
        NoStore: the directory holds no store.
        StoreInUse: a process has the store open.
        UnknownFormat: another version.
        OSError: a file cannot be read.
    """
    vfs = vfs or OsVfs()
    ownership = _own(vfs, directory)
    try:
        return _verify(vfs, ownership.path)
    finally:
        ownership.release()


def repair(directory: str, quarantine_path: str, vfs: Vfs | None = None) -> Repaired:
    """Repair a damaged store, so that it can be opened; move damaged bytes to a new file `quarantine_path`.

    Raises:
        NoStore, StoreInUse, UnknownFormat, OSError: as `verify`.
        StoreError: there is neither a valid segment header nor a valid checkpoint.
    """
    vfs = vfs or OsVfs()
    store_directory = directory
    ownership = _own(vfs, directory)
    directory = ownership.path
    try:
        before = _verify(vfs, directory)
        found = survey(vfs, directory)
        codec = found.codec
        if codec is None:
            if found.segments or found.files.damaged:
                raise StoreError(f"{directory}: no valid segment header and no valid checkpoint")
            return Repaired((), 0, before)
        if before.damages:
            _quarantine(vfs, before.damages, quarantine_path)
        remove_temporary_files(vfs, directory)
        short = frozenset(file.number for file in found.segments if file.size < codec.segment_size)
        _restore_files(vfs, directory, found, codec)
        found = survey(vfs, directory)
        scan = scan_log(vfs, found, codec, short)
        for segment in scan.segments:
            for gap in segment.gaps:
                _cover(vfs, gap, codec)
        if scan.needs_next and scan.segments[-1].file is found.segments[-1]:
            _add_missing_end(vfs, directory, found, codec)
            found = survey(vfs, directory)
        operations, high_key = _corrections(vfs, found, codec) if found.checkpoints else ([], 0)
    finally:
        ownership.release()
    if operations or before.damages:
        store = Store.open(store_directory, vfs=vfs, ignore_checkpoints=True)
        store.append(operations)
        store.reserve(max(high_key, store.high_key))
        store.close()
    if before.damages or found.files.damaged:
        # Checkpoints may refer to quarantined records. The log is sufficient, and now contains their data.
        found.files.discard()
    Store.open(store_directory, vfs=vfs).close()
    return Repaired(before.damages, len(operations), verify(store_directory, vfs))


def _own(vfs: Vfs, directory: str) -> Ownership:
    """Lock the store. This completes an unfinished take-over, which changes no messages. Raises NoStore, StoreInUse."""
    names = vfs.listdir(log_directory(vfs, directory))
    if not any(segment_number(name) is not None or name in NAMES for name in names):
        raise NoStore(f"{directory} holds no store: neither a segment of a log nor a checkpoint is there")
    return claim(vfs, os.path.abspath(directory), take_over=False)


def read_quarantine(data: bytes) -> list[tuple[str, int, bytes]]:
    """Return path, offset and bytes of each range in a quarantine file; raises ValueError."""
    if not data.startswith(_QUARANTINE_MAGIC):
        raise ValueError("not a quarantine file")
    spots = []
    offset = len(_QUARANTINE_MAGIC)
    while offset < len(data):
        path_length, at, length = _QUARANTINE_ENTRY.unpack_from(data, offset)
        offset += _QUARANTINE_ENTRY.size
        path = data[offset : offset + path_length].decode()
        offset += path_length
        spots.append((path, at, data[offset : offset + length]))
        offset += length
    return spots


# ------------------------------------------------------------------------------------------------------- verifying


def _verify(vfs: Vfs, directory: str) -> FsckReport:
    found = survey(vfs, directory)
    if found.codec is None:
        return FsckReport((), 0, 0, 0, 0, tuple(found.damages), tuple(found.weak), 0)
    codec = found.codec
    scan = scan_log(vfs, found, codec)
    state = scan.replay.finish()
    places = count_live(LogState(0, queues=state.queues), codec.segment_size)
    damages = (*found.damages, *(damage_of(gap) for s in scan.segments for gap in s.gaps))
    if scan.needs_next and scan.segments[-1].file is found.segments[-1]:
        path = f"{directory}/{segment_name(found.segments[-1].number + 1)}"
        missing = Damage(path, 0, 0, "segment file is missing")
        damages += (missing,) if missing not in damages else ()  # a checkpoint may show the same
    return FsckReport(
        segments=tuple(_segment_report(segment, places) for segment in scan.segments),
        records=sum(s.records for s in scan.segments),
        messages=sum(map(len, state.queues.values())),
        definitions=len(state.definitions),
        high_key=state.high_key,
        damages=damages or _missing_beginning(vfs, directory, found, codec),
        weak=tuple(found.weak),
        torn_bytes=scan.torn_bytes,
    )


def _missing_beginning(vfs: Vfs, directory: str, found: DirectoryScan, codec: Codec) -> tuple[Damage, ...]:
    """Return the missing segments before the first existing one, if they contain needed data according to a
    checkpoint."""
    if not found.checkpoints:
        return ()
    needed = count_live(replay_log(vfs, found, codec).replay.finish(), codec.segment_size)
    return tuple(
        Damage(f"{directory}/{segment_name(number)}", 0, 0, "segment file is missing")
        for number in sorted(needed)
        if number < found.segments[0].number
    )


def _segment_report(scan: SegmentScan, messages: dict[int, int]) -> SegmentReport:
    number = scan.file.number
    damages = tuple(map(damage_of, scan.gaps))
    return SegmentReport(number, scan.file.path, scan.records, messages.get(number, 0), damages, scan.sealed)


# ------------------------------------------------------------------------------------------------------- repairing


def _quarantine(vfs: Vfs, damages: Sequence[Damage], quarantine_path: str) -> None:
    """Save the damaged bytes in the quarantine file."""
    pieces = [_QUARANTINE_MAGIC]
    for damage in damages:
        data = b""
        if damage.length:
            handle = vfs.open(damage.path)
            try:
                data = vfs.pread(handle, damage.length, damage.offset).rstrip(b"\0")
            finally:
                vfs.close(handle)
        path = damage.path.encode()
        pieces += (_QUARANTINE_ENTRY.pack(len(path), damage.offset, len(data)), path, data)
    handle = vfs.open(quarantine_path, create=True)
    try:
        write_fully(vfs, handle, b"".join(pieces), 0)
        vfs.fdatasync(handle)
    finally:
        vfs.close(handle)
    vfs.fsync_directory(os.path.dirname(quarantine_path) or ".")


def _restore_files(vfs: Vfs, directory: str, found: DirectoryScan, codec: Codec) -> None:
    """Restore length and header of all segment files; create missing files."""
    numbers = {file.number: file for file in found.segments}
    last = max([*numbers, *(state.position // codec.segment_size for state in found.checkpoints[:1])])
    for number in range(min([*numbers, last]), last + 1):
        path = f"{directory}/{segment_name(number)}"
        known = numbers.get(number)
        handle = vfs.open(path, create=known is None)
        try:
            size = vfs.size(handle)
            if size < codec.segment_size:
                fill_with_zeros(vfs, handle, size, codec.segment_size)
            page = segment_header(codec, number)
            if vfs.pread(handle, len(page), 0) != page:
                write_fully(vfs, handle, page, 0)
            vfs.fdatasync(handle)
        finally:
            vfs.close(handle)
    vfs.fsync_directory(directory)


def _add_missing_end(vfs: Vfs, directory: str, found: DirectoryScan, codec: Codec) -> None:
    """Create the segment that must follow a sealed one at the end of the log."""
    number = found.segments[-1].number + 1
    handle = vfs.open(f"{directory}/{segment_name(number)}", create=True)
    try:
        write_fully(vfs, handle, segment_header(codec, number), 0)
        fill_with_zeros(vfs, handle, FRAMES_START, codec.segment_size)
        vfs.fdatasync(handle)
    finally:
        vfs.close(handle)
    vfs.fsync_directory(directory)


def _cover(vfs: Vfs, gap: Gap, codec: Codec) -> None:
    """Overwrite a gap with a SKIP frame, followed by a SEAL if the rest of the segment is lost."""
    base = gap.file.number * codec.segment_size
    handle = vfs.open(gap.file.path)
    try:
        if gap.to_the_end:
            data = b""
            if gap.end - gap.start >= 2 * HEADER_SIZE:
                data = codec.frame(frames.SKIP, frames.ALONE, base + gap.start, 0)
            data += codec.frame(frames.SEAL, frames.ALONE, base + gap.start + len(data), 0)
        else:
            payload = bytes(gap.end - gap.start - HEADER_SIZE)
            data = codec.frame(frames.SKIP, frames.ALONE, base + gap.start, 0, payload)
        write_fully(vfs, handle, data, gap.start)
        vfs.fdatasync(handle)
    finally:
        vfs.close(handle)


def _corrections(vfs: Vfs, found: DirectoryScan, codec: Codec) -> tuple[list[Operation], int]:
    """Return the operations that the log has lost according to a checkpoint, and the highest number."""
    by_checkpoint = replay_log(vfs, found, codec).replay.finish()
    by_log = replay_log(vfs, found, codec, use_checkpoint=False).replay.finish()
    operations: list[Operation] = []
    for name, value in by_checkpoint.definitions.items():
        if by_log.definitions.get(name) != value:
            operations.append(Put(name, value))
    operations += [Drop(name) for name in by_log.definitions if name not in by_checkpoint.definitions]
    known = {key for columns in by_checkpoint.queues.values() for key in columns.keys}
    for columns in by_log.queues.values():
        rows = zip(columns.keys, columns.locations, strict=True)
        operations += [Remove(key, location) for key, location in rows if key not in known]
    return operations, by_checkpoint.high_key


def damage_of(gap: Gap) -> Damage:
    """Return the damage of a gap, for a report."""
    return Damage(gap.file.path, gap.start, gap.end - gap.start, "invalid record")
