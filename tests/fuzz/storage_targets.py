"""Fuzz targets for C modules that read the frames of a log and message records: they return what the Python code
returns, or refuse what it refuses. Where they have not been compiled, there is nothing to compare."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from crc32c import crc32c

from fuzz.network_targets import parts
from openmsmq.flight.segment_reader import checksums_of
from openmsmq.queueing.stamping import stamp_in_python, stamp_records
from openmsmq.record import compact_record
from openmsmq.record.fields import FIXED, OFFSET, PARTS
from openmsmq.store.frames import ALONE, HEADER, HEADER_SIZE, INSERT, PENDING, Codec, frame_size
from openmsmq.store.row_frames import (
    MessageRows,
    frames_in_python,
    frames_of,
    payloads_in_python,
    payloads_of,
    run_in_python,
    run_of,
)

CODEC = Codec(bytes(range(16)), 8192)
CHECKSUMS, POSITIONS, DAMAGE = 1, 2, 4  # flags of `_check_reading`
WORD = (1 << 64) - 1
#: Parameters of a log and of rows: see the functions that read them.
_LOG, _ROWS = struct.Struct("<BQHB"), struct.Struct("<BBBBIQIHQQI")
ENDS = (*list(OFFSET.values())[1:], FIXED.size - 4 * len(PARTS))  # of the fields of a record


def _outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ValueError as error:
        return str(error)


def _completed(log: bytearray, offset: int, base: int, flags: int) -> Iterator[int]:
    """Yield the offsets of the frames of a log. First give each the checksum, position and tag that it needs, if the
    flags say so: the fuzzer does not find them."""
    while offset + HEADER_SIZE <= len(log):
        length = HEADER.unpack_from(log, offset)[1]
        if flags & POSITIONS:
            struct.pack_into("<Q", log, offset + 8, (base + offset) & WORD)
            struct.pack_into("<H", log, offset + HEADER_SIZE - 2, CODEC.tag)
        end = offset + HEADER_SIZE + length
        if flags & CHECKSUMS and end <= len(log):
            struct.pack_into("<I", log, offset, crc32c(memoryview(log)[offset + 4 : end], CODEC.seed))
        yield offset
        offset += frame_size(length)


def _check_reading(data: bytes) -> None:
    """A log and where it is read: flags, the position of its first byte, where reading begins, the index of the first
    location; then the locations, less the position and 256, in words; then the log."""
    if len(data) < _LOG.size:
        return
    flags, base, offset, first = _LOG.unpack_from(data)
    given, *rest = (*parts(data[_LOG.size :]), b"")
    log = bytearray(b"".join(rest))
    base, offset = base >> 1, min(offset, len(log)) & ~7  # a store ends before position 1 << 63; frames are aligned
    offsets = list(_completed(log, offset, base, flags))
    if flags & DAMAGE and log:
        log[first % len(log)] ^= 1
    words = struct.unpack(f"<{len(given) // 2}H", given[: len(given) // 2 * 2])
    locations = [base + at for at in offsets] + [(base + word - 256) & WORD for word in words]
    for some in (bytes(log), log):
        assert run_of(CODEC, some, offset, base) == run_in_python(CODEC, some, offset, base)
    for start in (0, first):
        read = payloads_of(CODEC, bytes(log), base, locations, start)
        assert read == payloads_in_python(CODEC, bytes(log), base, locations, start)
    starts, sizes = (np.array(column, np.int64) for column in (words, [first] * len(words)))
    found = _outcome(checksums_of, np.frombuffer(log, np.uint8), starts, sizes, CODEC.seed)
    if all(start + first <= len(log) for start in words):
        expected = [crc32c(bytes(log[start : start + first]), CODEC.seed) for start in words]
        assert np.frombuffer(found, np.uint32).tolist() == expected
    else:
        assert isinstance(found, str)


def _check_writing(data: bytes) -> None:
    """Rows and where they are written: the numbers of `frames_of`, then the messages. Bounds outside of the messages
    are refused; other rows are read again as they were."""
    if len(data) < _ROWS.size:
        return
    kind, flags, ending, first, transaction, position, back, room, key, extra, queue = _ROWS.unpack_from(data)
    messages = list(parts(data[_ROWS.size :]))
    count = len(messages)
    bounds = array("q", accumulate(map(len, messages), initial=0))
    columns = (array("Q", [(number + index) & WORD for index in range(count)]) for number in (key, extra))
    rows = MessageRows(
        array("I", [queue]) * count, b"".join(messages), array("I", map(len, messages)), bounds, *columns
    )  # fmt: skip
    position, back = position >> 1, back >> 1
    arguments = (CODEC, rows, min(first, count), kind, transaction, position, max(0, position - back), room)
    frames, locations = frames_of(*arguments, flags, ending)
    assert (frames, locations) == frames_in_python(*arguments, flags, ending)
    written = messages[min(first, count) :][: len(locations)]
    if kind in (INSERT, PENDING):
        assert payloads_of(CODEC, frames, position, locations, 0) == written
    if kind == INSERT and flags == ending == ALONE:
        run = run_of(CODEC, frames, 0, position)
        assert (run.messages, run.end) == (len(written), len(frames))
    rows.bounds = array("q", bytes(data[_ROWS.size :][: 8 * count + 8]).ljust(8 * count + 8, b"\0"))
    found = _outcome(frames_of, *arguments, flags, ending)
    fitted = len(found[1]) if isinstance(found, tuple) else count
    bounds = rows.bounds[arguments[2] : arguments[2] + fitted + 1]
    are_inside = all(0 <= start <= end <= len(rows.records) for start, end in pairwise(bounds))
    assert found == frames_in_python(*arguments, flags, ending) if are_inside else isinstance(found, str)


def fuzz_frames_c(data: bytes) -> None:
    """An odd first byte selects rows that become frames, an even one a log."""
    check = _check_writing if data[:1] and data[0] % 2 else _check_reading
    check(data[1:])


def _check_form(record: bytes) -> None:
    """A record in either form. One in plain form can be compacted and expanded to the same record."""
    expand, expand_in_python = compact_record.expand, compact_record.expand_in_python
    plain = _outcome(expand, record)
    assert plain == _outcome(expand_in_python, record)
    for length in ENDS:
        head = record[: length + compact_record.COMPACT_HEAD]
        found = _outcome(compact_record.expand_head, head, length)
        assert found == _outcome(compact_record.expand_head_in_python, head, length)
    for some in (record, plain):
        if isinstance(some, bytes):
            compact = _outcome(compact_record.compact, some)
            assert compact == _outcome(compact_record.compact_in_python, some)
            assert isinstance(compact, str) or expand(compact) == some


def _check_records(data: bytes) -> None:
    """Bounds, the offsets of a patch, of the counter and of the end of the head, the patch, and the records."""
    given, numbers, patch, *rest = (*parts(data), b"", b"", b"")
    at, counter_at, head, counter = struct.unpack("<HHHI", numbers[:10].ljust(10, b"\0"))
    bounds, records = array("q", given[: len(given) // 8 * 8] or bytes(8)), b"".join(rest)
    are_inside = all(0 <= start <= end <= len(records) for start, end in pairwise(bounds)) and bounds[0] >= 0
    compact = _outcome(compact_record.compact_rows, records, bounds)
    stamped, stamped_in_python = bytearray(records), bytearray(records)
    heads = _outcome(stamp_records, stamped, bounds, [(at, patch)], counter_at, counter, head)
    if not are_inside:
        assert isinstance(compact, str) and isinstance(heads, str)
        return
    compacted = _outcome(compact_record.compact_rows_in_python, records, bounds)
    assert compact == compacted or (isinstance(compact, str) and isinstance(compacted, str))
    expected = _outcome(stamp_in_python, stamped_in_python, bounds, [(at, patch)], counter_at, counter, head)
    if isinstance(heads, str):
        assert isinstance(expected, str) and stamped == records
    else:
        assert (heads, stamped) == (expected, stamped_in_python)


def fuzz_records_c(data: bytes) -> None:
    """An odd first byte selects many records, an even one a single record."""
    check = _check_records if data[:1] and data[0] % 2 else _check_form
    check(data[1:])


TARGETS: dict[str, Callable[[bytes], None]] = {"frames_c": fuzz_frames_c, "records_c": fuzz_records_c}
