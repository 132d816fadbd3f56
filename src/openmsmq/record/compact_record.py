"""The compact form of a message record, in which the store keeps it: a field that has its usual value is left out.

It takes about 40 bytes instead of the 208 of the plain form's fixed part. Memory and native code work with the plain
form (`fields`). All integers are little-endian:

    u8    2
    u32   bit i is set if the field FIELDS[i + 1] is present
    u16   bit i is set if the part PARTS[i] is not empty
          the fields that are present
          the length of each part that is not empty: 7 bits per byte, the lowest first; the upper bit means "continued"
          the parts and the tail, as in the plain form

A field usually has the value in `_USUAL`, or that of another field (`_AS`), otherwise zero. Unknown bits are refused.
`compacting.c` has the same functions.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

from openmsmq.model.constants import INFINITE
from openmsmq.record.fields import FIELDS, FIXED, OFFSET, PARTS
from openmsmq.record.fields import VERSION as PLAIN

try:
    from openmsmq.record import compacting
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        compacting = None

#: First byte of a record in compact form.
COMPACT: Final = 2
_USUAL: Final[dict[str, Any]] = {
    "version": PLAIN, "priority": 3, "delivery_guarantee": 1,
    "time_to_reach_queue": INFINITE, "time_to_be_received": INFINITE,
}  # fmt: skip
#: Field -> an earlier field of the same size or longer, whose first bytes are its usual value.
_AS: Final = {"arrival_time": "sent_time", "source_machine_identifier": "identifier"}
_HEAD: Final = struct.Struct("<BIH")
_LENGTHS_AT: Final = FIXED.size - 4 * len(PARTS)
_LENGTHS: Final = struct.Struct(f"<{len(PARTS)}I")
_MOST_FIELDS, _LONGEST_FIXED = 32, 256  # see compact_record.h

_TEMPLATE: Final = FIXED.pack(
    *(_USUAL.get(field.name, b"" if field.code.endswith("s") else 0) for field in FIELDS), *(0 for _ in PARTS)
)
#: (start, end, start of the field with the usual value, or its own start) of each field but the version.
_SLOTS: Final = tuple(
    (OFFSET[name], OFFSET[name] + struct.calcsize("<" + code), OFFSET[_AS.get(name, name)]) for name, code in FIELDS[1:]
)
#: `Description` of compact_record.h.
DESCRIPTION: Final = (
    struct.pack(
        "=5I",
        FIXED.size,
        _LENGTHS_AT,
        len(_SLOTS),
        len(PARTS),
        sum(1 << index for index, (start, _, usual) in enumerate(_SLOTS) if usual != start),
    )
    + b"".join(struct.pack("=3H", start, end - start, usual) for start, end, usual in _SLOTS).ljust(
        6 * _MOST_FIELDS, b"\0"
    )
    + _TEMPLATE.ljust(_LONGEST_FIXED, b"\0")
)


def compact_in_python(record: bytes | bytearray | memoryview) -> bytes:
    """Pure Python version of `compact`."""
    fixed = bytes(record[: FIXED.size])
    if len(fixed) < FIXED.size or fixed[0] != PLAIN:
        raise ValueError("a message record in its plain form is needed")
    mask = 0
    kept = bytearray(_HEAD.size)
    for index, (start, end, usual) in enumerate(_SLOTS):
        expected = _TEMPLATE[start:end] if usual == start else fixed[usual : usual + end - start]
        if fixed[start:end] != expected:
            mask |= 1 << index
            kept += fixed[start:end]
    parts = 0
    for index, length in enumerate(_LENGTHS.unpack_from(fixed, _LENGTHS_AT)):
        if length:
            parts |= 1 << index
            while length > 0x7F:
                kept.append(0x80 | length & 0x7F)
                length >>= 7
            kept.append(length)
    _HEAD.pack_into(kept, 0, COMPACT, mask, parts)
    return bytes(kept) + record[FIXED.size :]


def expand_in_python(record: bytes) -> bytes:
    """Pure Python version of `expand`."""
    if record[:1] != b"\x02":
        return record
    try:
        fixed, at = _expand_fields(record, FIXED.size)
        parts = _HEAD.unpack_from(record)[2]
        if parts >> len(PARTS):
            raise ValueError
        for index in range(len(PARTS)):
            if parts >> index & 1:
                length, at = _read_length(record, at)
                struct.pack_into("<I", fixed, _LENGTHS_AT + 4 * index, length)
    except (ValueError, IndexError, struct.error):
        raise ValueError(f"compact message record of {len(record)} bytes is not valid") from None
    return bytes(fixed) + record[at:]


def expand_head_in_python(head: bytes, length: int) -> bytes:
    """Pure Python version of `expand_head`."""
    if head[:1] != b"\x02":
        if not 0 <= length <= min(len(head), FIXED.size):
            raise ValueError("the head is too short")
        return head[:length]
    try:
        return bytes(_expand_fields(head, length)[0][:length])
    except (ValueError, struct.error):
        raise ValueError("compact message record is not valid") from None


def _expand_fields(record: bytes, until: int) -> tuple[bytearray, int]:
    """Return the fixed part with the fields that begin before offset `until`, and the offset after them in `record`.
    Raises ValueError and struct.error."""
    _, mask, _ = _HEAD.unpack_from(record)
    if mask >> len(_SLOTS):
        raise ValueError
    fixed, at = bytearray(_TEMPLATE), _HEAD.size
    for index, (start, end, usual) in enumerate(_SLOTS):
        if start >= until:
            break
        size = end - start
        if mask >> index & 1:
            value = record[at : at + size]
            if len(value) < size:
                raise ValueError
            fixed[start:end] = value
            at += size
        else:
            fixed[start:end] = fixed[usual : usual + size]
    return fixed, at


def _read_length(record: bytes, at: int) -> tuple[int, int]:
    """Return a length and the offset after it. Raises ValueError and IndexError."""
    length = 0
    for shift in range(0, 35, 7):
        byte = record[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            if length >> 32:
                break
            return length, at
    raise ValueError


def compact_rows_in_python(records: bytes | bytearray, bounds: array[int]) -> tuple[bytes, array[int], array[int]]:
    """Pure Python version of `compact_rows`."""
    if not all(0 <= start <= end <= len(records) for start, end in pairwise(bounds)):
        raise ValueError("message records in their plain form, within the buffer, are needed")
    rows = [compact_in_python(records[start:end]) for start, end in pairwise(bounds)]
    sizes = array("I", map(len, rows))
    return b"".join(rows), sizes, array("q", accumulate(sizes, initial=0))


def split_rows_in_python(buffer: Any, starts: Any, sizes: Any) -> tuple[bytes, array[int]]:
    """Pure Python version of `split_rows`."""
    view = memoryview(buffer)
    fixed, places = bytearray(), array("q")
    for start, size in zip(memoryview(starts).cast("B").cast("q"), memoryview(sizes).cast("B").cast("q"), strict=True):
        if not 0 <= start <= start + size <= len(view):
            raise ValueError("the records are not within the buffer")
        record, plain = bytes(view[start : start + size]), b""
        with suppress(ValueError):  # the reader reports it
            plain = expand_in_python(record)
        if plain[:1] != bytes([PLAIN]) or len(plain) < FIXED.size:
            fixed += bytes(FIXED.size)
            places.append(start)
        else:
            fixed += plain[: FIXED.size]
            places.append(start + size - (len(plain) - FIXED.size))
    return bytes(fixed), places


if compacting is not None:
    compacting.describe(DESCRIPTION)
#: Returns the compact form of a record in plain form. Raises ValueError if it is not one.
compact: Final[Callable[[bytes | bytearray | memoryview], bytes]] = (
    compact_in_python if compacting is None else compacting.compact
)
#: Returns the plain form of a record; one that is not in compact form is returned as it is. Raises ValueError if its
#: fixed part is not valid.
expand: Final[Callable[[bytes], bytes]] = expand_in_python if compacting is None else compacting.expand
#: (head, length): return the first `length` bytes of the plain form, which end with a field, from the first bytes of a
#: record in either form; at most COMPACT_HEAD more bytes than `length` are needed. Raises ValueError.
expand_head: Final[Callable[[bytes, int], bytes]] = (
    expand_head_in_python if compacting is None else compacting.expand_head
)
#: Bytes by which the head of a compact record may be longer than that of the plain form.
COMPACT_HEAD: Final = _HEAD.size - 1
#: (records, bounds): return the compact forms of many records in plain form, which are concatenated in `records`;
#: `bounds` is array('q') with the start of each and the end of the last one. Returns the compact records, concatenated;
#: array('I') with the size of each; their bounds, from 0 on. Raises ValueError if one is not in plain form, or not
#: within `records`.
compact_rows: Final[Callable[[bytes | bytearray, array[int]], tuple[bytes, array[int], array[int]]]] = (
    compact_rows_in_python if compacting is None else compacting.compact_rows
)
#: (buffer, starts, sizes): return the fixed parts of records in `buffer`, in either form. `starts` and `sizes` are
#: buffers with the start and the size of each, int64. Returns the fixed parts in plain form, concatenated, and
#: array('q') with the start of the parts of each record. If a record is not valid, its fixed part is zero and its parts
#: begin where it does. Raises ValueError if a record is not within `buffer`.
split_rows: Final[Callable[[Any, Any, Any], tuple[bytes, array[int]]]] = (
    split_rows_in_python if compacting is None else compacting.split_rows
)
