"""Records of many messages that a data pipeline sends. The event loop waits for them, so `packing.c` completes them
five times faster if it is compiled."""

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
    """Pure Python version of `stamp_records`."""
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
