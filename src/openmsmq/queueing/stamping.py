"""Complete the records of many messages that a data pipeline sends. This blocks the event loop; where `packing.c` is
compiled, it is five times faster."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING

try:
    from openmsmq.queueing import packing
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        packing = None


def stamp_records(
    records: bytearray, bounds: array[int], patches: list[tuple[int, bytes]], counter_at: int, counter: int, head: int
) -> bytes:
    """Write the same bytes and an increasing number into each of many records.

    Args:
        records: the records, concatenated.
        bounds: array('q') with the start of each record and the end of the last one.
        patches: (offset in a record, bytes to write).
        counter_at: offset of the number, u32.
        counter: number of the first record.
        head: number of leading bytes of each record to return.

    Returns:
        The first `head` bytes of all records, concatenated. Raises ValueError for a record that is too short.
    """
    if packing is None:
        return stamp_in_python(records, bounds, patches, counter_at, counter, head)
    return packing.stamp(records, bounds, patches, counter_at, counter & 0xFFFFFFFF, head)


def stamp_in_python(
    records: bytearray, bounds: array[int], patches: list[tuple[int, bytes]], counter_at: int, counter: int, head: int
) -> bytes:
    """Pure Python version of `stamp_records`."""
    longest = max([counter_at + 4, head, *(at + len(patch) for at, patch in patches)])
    heads = []
    for start, end in pairwise(bounds):
        if end - start < longest or end > len(records):
            raise ValueError(f"records must have at least {longest} bytes and be within the buffer")
        for at, patch in patches:
            records[start + at : start + at + len(patch)] = patch
        records[start + counter_at : start + counter_at + 4] = (counter & 0xFFFFFFFF).to_bytes(4, "little")
        heads.append(bytes(records[start : start + head]))
        counter += 1
    return b"".join(heads)
