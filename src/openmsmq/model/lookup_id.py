"""Lookup identifiers ([MS-MQDMPR] 3.1.1.12): 7 - priority in the upper byte, then a sequence number of 56 bits.

Sequence numbers increase over the whole queue manager and are never reused; the order of lookup identifiers is the
order in a queue. Protocols that omit the upper byte (pSequenceId of MS-MQRR) use only the sequence number.
"""

from __future__ import annotations

from typing import Final

LAST_SEQUENCE: Final = 0x00FFFFFFFFFFFFFF  # also the mask of the sequence number
PRIORITY_STEP: Final = 0x0100000000000000
PRIORITY_PARTS: Final = range(0, 8 * PRIORITY_STEP, PRIORITY_STEP)  # values of the upper byte, highest priority first


def lookup_id(priority: int, sequence: int) -> int:
    """Return the lookup identifier of a message with a priority of 0 to 7."""
    return (7 - priority) * PRIORITY_STEP | sequence


def sequence_of(identifier: int) -> int:
    """Return the sequence number of a lookup identifier."""
    return identifier & LAST_SEQUENCE


def priority_part(identifier: int) -> int:
    """Return a lookup identifier with all bits but those of the upper byte cleared."""
    return identifier & ~LAST_SEQUENCE
