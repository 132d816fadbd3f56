"""Offsets of a stream over Arrow Flight: per queue, the sequence reached, the planned number of messages of the batch
that ends there, and the incarnation of the store. So after a restart, a stream knows the size of a batch even if
messages are gone, and detects that the store was restored from a backup.

JSON form: `{"orders": {"sequence": 4711, "planned": 20, "store": "9f86d081884c7d65"}}`. `store` is missing with MS-MQRR
and in offsets of an earlier version; `{"orders": 4711}` is an initial offset, or one of a still earlier version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Offsets = Mapping[str, Any]


def offset(sequence: int, planned: int, store: str | None = None) -> dict[str, Any]:
    """Return the offset of a queue at the end of a batch."""
    known = {} if store is None else {"store": store}
    return {"sequence": sequence, "planned": planned, **known}


def sequence_of(value: Any) -> int:
    """Return the sequence of a queue's offset."""
    return int(value["sequence"] if isinstance(value, Mapping) else value)


def planned_of(value: Any) -> int | None:
    """Return the planned number of messages of the batch that ends there; None if unknown."""
    return int(value["planned"]) if isinstance(value, Mapping) else None


def store_of(value: Any) -> str | None:
    """Return the incarnation of the offset's store; None if unknown."""
    return value.get("store") if isinstance(value, Mapping) else None
