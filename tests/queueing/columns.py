"""Columns of a captured queue as arrays, so that tests can look into them."""

from __future__ import annotations

from array import array

from openmsmq.store import PackedColumns, QueueColumns


def unpacked(columns: PackedColumns) -> QueueColumns:
    return QueueColumns(
        array("Q", bytes(columns.keys)), array("Q", bytes(columns.locations)),
        array("I", bytes(columns.sizes)), array("Q", bytes(columns.deadlines)),
    )  # fmt: skip
