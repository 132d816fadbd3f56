"""Columns of many messages: what a checkpoint keeps of a queue, what a data pipeline reads by, and what it sends. The
event loop waits for them, so machine code makes them where `packing.c` is compiled, in a fifth of the time."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from openmsmq.model.lookup_id import LAST_SEQUENCE
from openmsmq.store import QueueColumns

try:
    from openmsmq.queueing import packing
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        packing = None

_LOCATION_BITS = 64
_LOCATION_MASK = (1 << _LOCATION_BITS) - 1


def columns_of(entries: dict[int, Any], left_out: set[int], deadlines: dict[int, int]) -> QueueColumns:
    """The store's columns for the stored messages of a queue, sorted by sequence number.

    Args:
        entries: by lookup identifier, size << 64 | location; anything but an integer is not in the store.
        left_out: lookup identifiers of those that are not committed.
        deadlines: times of expiry by lookup identifier, of those that have one.
    """
    if packing is None:
        return columns_in_python(entries, left_out, deadlines)
    keys, locations, sizes, words = packing.pack(entries, left_out, deadlines)
    return QueueColumns(array("Q", keys), array("Q", locations), array("I", sizes), array("Q", words))


def columns_in_python(entries: dict[int, Any], left_out: set[int], deadlines: dict[int, int]) -> QueueColumns:
    """The same without machine code."""
    keys = [key for key, entry in entries.items() if isinstance(entry, int) and key not in left_out]
    values = [entries[key] for key in keys]
    columns = QueueColumns(
        keys=array("Q", [key & LAST_SEQUENCE for key in keys]),
        locations=array("Q", [value & _LOCATION_MASK for value in values]),
        sizes=array("I", [value >> _LOCATION_BITS for value in values]),
        deadlines=array("Q", [key & ~LAST_SEQUENCE | deadlines.get(key, 0) for key in keys]),
    )
    columns.sort()
    return columns


def places_of(entries: dict[int, Any], keys: list[int], start: int, most: int, volume: int) -> tuple[bytes, bytes, int]:
    """Where messages are, up to the first one that is not in the store.

    Args:
        entries: as for `columns_of`.
        keys: lookup identifiers.
        start: index of the first of these.
        most, volume: end with so many messages, or with that one with which there are so many bytes.

    Returns:
        Locations, 8 bytes each, sizes, 4 bytes each, and how many bytes the messages have. Raises KeyError.
    """
    if packing is None:
        return places_in_python(entries, keys, start, most, volume)
    return packing.places(entries, keys, start, most, volume)


def places_in_python(
    entries: dict[int, Any], keys: list[int], start: int, most: int, volume: int
) -> tuple[bytes, bytes, int]:
    """The same without machine code."""
    locations, sizes, taken = array("Q"), array("I"), 0
    for key in keys[start : start + most]:
        entry = entries[key]
        if taken >= volume or not isinstance(entry, int):
            break
        locations.append(entry & _LOCATION_MASK)
        sizes.append(entry >> _LOCATION_BITS)
        taken += sizes[-1]
    return locations.tobytes(), sizes.tobytes(), taken


def stamp_records(
    records: bytearray, bounds: array[int], patches: list[tuple[int, bytes]], counter_at: int, counter: int, head: int
) -> bytes:
    """Write the same bytes into each of many records, and a number that rises.

    Args:
        records: end to end.
        bounds: array('q'); where each begins, and where the last one ends.
        patches: offset in a record, and the bytes.
        counter_at: offset of the number, u32.
        counter: that of the first record.
        head: how many bytes of each are wanted.

    Returns:
        The first bytes of all records, end to end. Raises ValueError for a record that is too short.
    """
    if packing is None:
        return stamp_in_python(records, bounds, patches, counter_at, counter, head)
    return packing.stamp(records, bounds, patches, counter_at, counter & 0xFFFFFFFF, head)


def stamp_in_python(
    records: bytearray, bounds: array[int], patches: list[tuple[int, bytes]], counter_at: int, counter: int, head: int
) -> bytes:
    """The same without machine code."""
    longest = max([counter_at + 4, head, *(at + len(patch) for at, patch in patches)])
    heads = []
    for start, end in pairwise(bounds):
        if end - start < longest or end > len(records):
            raise ValueError(f"records of at least {longest} bytes within the buffer are needed")
        for at, patch in patches:
            records[start + at : start + at + len(patch)] = patch
        records[start + counter_at : start + counter_at + 4] = (counter & 0xFFFFFFFF).to_bytes(4, "little")
        heads.append(bytes(records[start : start + head]))
        counter += 1
    return b"".join(heads)
