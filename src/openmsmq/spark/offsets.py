"""Offsets of a stream by Arrow Flight: for each queue the sequence that was reached, and how many messages the batch
that ends there was planned with. So a restart knows what a batch had, however much of it is gone.

As JSON: `{"orders": {"sequence": 4711, "planned": 20}}`, or `{"orders": 4711}` where no number is known: an initial
offset, or one of an earlier version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Offsets = Mapping[str, Any]


def offset(sequence: int, planned: int) -> dict[str, int]:
    """The offset of a queue at the end of a batch."""
    return {"sequence": sequence, "planned": planned}


def sequence_of(value: Any) -> int:
    """The sequence of a queue's offset."""
    return int(value["sequence"] if isinstance(value, Mapping) else value)


def planned_of(value: Any) -> int | None:
    """How many messages the batch that ends there was planned with; None if that is not known."""
    return int(value["planned"]) if isinstance(value, Mapping) else None
