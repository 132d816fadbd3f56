"""Offsets of a stream by Arrow Flight: for each queue the sequence that was reached, how many messages the batch that
ends there was planned with, and the incarnation of the store. So a restart knows what a batch had, however much of it
is gone, and that the store was restored from a backup meanwhile.

As JSON: `{"orders": {"sequence": 4711, "planned": 20, "store": "9f86d081884c7d65"}}`. There is no `store` by MS-MQRR
and in offsets of an earlier version; `{"orders": 4711}` is an initial offset, or one of a still earlier version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Offsets = Mapping[str, Any]


def offset(sequence: int, planned: int, store: str | None = None) -> dict[str, Any]:
    """The offset of a queue at the end of a batch."""
    known = {} if store is None else {"store": store}
    return {"sequence": sequence, "planned": planned, **known}


def sequence_of(value: Any) -> int:
    """The sequence of a queue's offset."""
    return int(value["sequence"] if isinstance(value, Mapping) else value)


def planned_of(value: Any) -> int | None:
    """How many messages the batch that ends there was planned with; None if that is not known."""
    return int(value["planned"]) if isinstance(value, Mapping) else None


def store_of(value: Any) -> str | None:
    """The incarnation of the store that the offset is of; None if that is not known."""
    return value.get("store") if isinstance(value, Mapping) else None
