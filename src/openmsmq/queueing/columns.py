"""Columns of many messages: what a checkpoint keeps of a queue, and what a data pipeline reads by. The event loop waits
for them, so machine code makes them where `packing.c` is compiled, in a fifth of the time."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from openmsmq.store import QueueColumns

try:
    from openmsmq.queueing import packing
except ImportError:  # not compiled, or not wanted: see openmsmq.compiled
    if not TYPE_CHECKING:
        packing = None

_LOCATION_BITS = 64
_LOCATION_MASK = (1 << _LOCATION_BITS) - 1
_SEQUENCE_MASK = (1 << 56) - 1


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
        keys=array("Q", [key & _SEQUENCE_MASK for key in keys]),
        locations=array("Q", [value & _LOCATION_MASK for value in values]),
        sizes=array("I", [value >> _LOCATION_BITS for value in values]),
        deadlines=array("Q", [key & ~_SEQUENCE_MASK | deadlines.get(key, 0) for key in keys]),
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
