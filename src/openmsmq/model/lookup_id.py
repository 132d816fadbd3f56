"""Lookup identifiers ([MS-MQDMPR] 3.1.1.12): 7 - priority in the upper byte, below it a sequence number of 56 bits.

The sequence number rises over the whole queue manager and is never used twice; the order of lookup identifiers is the
order in a queue. Protocols that leave the upper byte out (pSequenceId of MS-MQRR) carry the sequence number alone.
"""

from __future__ import annotations

from typing import Final

LAST_SEQUENCE: Final = 0x00FFFFFFFFFFFFFF  # and the mask of the sequence number
PRIORITY_STEP: Final = 0x0100000000000000
PRIORITY_PARTS: Final = range(0, 8 * PRIORITY_STEP, PRIORITY_STEP)  # the upper bytes, from the highest priority on


def lookup_id(priority: int, sequence: int) -> int:
    """The lookup identifier of a message of this priority (0 to 7)."""
    return (7 - priority) * PRIORITY_STEP | sequence


def sequence_of(identifier: int) -> int:
    """The sequence number."""
    return identifier & LAST_SEQUENCE


def priority_part(identifier: int) -> int:
    """The upper byte, in its place."""
    return identifier & ~LAST_SEQUENCE
