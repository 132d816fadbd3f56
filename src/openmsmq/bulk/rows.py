"""From rows to message records, a few thousand at once. What is the queue manager's to fill in stays zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from openmsmq.bulk.layout import FIXED, PART, VERSION
from openmsmq.bulk.schema import WRITE_COLUMNS
from openmsmq.model.constants import INFINITE, MAXIMUM_LABEL
from openmsmq.model.errors import HResult, IllegalPropertyValue, MsmqError
from openmsmq.model.message import NULL_IDENTIFIER, identifier_from_text

Array = npt.NDArray[Any]
_SID = 1  # PROPID_M_SENDERID_TYPE: a security identifier
#: Column -> field of the fixed part, lowest and highest value, default.
_NUMBERS = {
    "priority": ("priority", 0, 7, 3),
    "body_type": ("body_type", 0, 0xFFFF, 0),
    "acknowledgment": ("acknowledgements", 0, 0x0F, 0),
    "journaling": ("journaling", 0, 3, 0),
    "application_tag": ("application_tag", 0, 0xFFFFFFFF, 0),
    "time_to_reach_queue": ("time_to_reach_queue", 0, INFINITE, INFINITE),
    "time_to_be_received": ("time_to_be_received", 0, INFINITE, INFINITE),
}
_PARTS = {
    "body": "body", "extension": "extension", "label": "label", "response_queue": "response",
    "admin_queue": "administration",
}  # fmt: skip


def checked_schema(schema: pa.Schema) -> None:
    """Raises IllegalPropertyValue naming a column that is not written, of another type, or missing."""
    for field in schema:
        wanted = WRITE_COLUMNS.get(field.name)
        if wanted is None:
            raise IllegalPropertyValue(
                detail=f"column {field.name!r} is not one that is written; allowed: {', '.join(WRITE_COLUMNS)}"
            )
        if field.type != wanted:
            raise IllegalPropertyValue(detail=f"column {field.name!r} is {field.type}, it has to be {wanted}")
    if "body" not in schema.names:
        raise IllegalPropertyValue(detail="there is no column 'body'")


class Encoder:
    """Makes the records of one stage."""

    def __init__(self, target: Callable[[str], tuple[int, str]], default: str | None, sender: bytes) -> None:
        """
        Args:
            target: index and format name of a queue that a row names; raises MsmqError.
            default: the queue of rows that name none.
            sender: security identifier of who sends, or nothing.
        """
        self._target = target
        self._default = default
        self._sender = sender
        self._known: dict[str, tuple[int, bytes]] = {}
        self.rows = 0

    def encode(self, batch: pa.RecordBatch) -> tuple[list[int], list[bytes]]:
        """Indices of the targets, and the records. Raises MsmqError for the first row that is wrong."""
        count = batch.num_rows
        fixed = np.zeros(count, FIXED)
        fixed["version"] = VERSION
        columns = {name: batch.column(name) for name in batch.schema.names}
        for name, (field, lowest, highest, default) in _NUMBERS.items():
            fixed[field] = self._numbers(name, columns.get(name), count, lowest, highest, default)
        recoverable = columns.get("recoverable")
        fixed["delivery"] = 1 if recoverable is None else recoverable.fill_null(True).to_numpy(zero_copy_only=False)
        if "correlation_id" in columns:
            fixed["correlation"] = self._correlations(columns["correlation_id"])
        if columns["body"].null_count:
            row = columns["body"].is_null().to_pylist().index(True)
            raise IllegalPropertyValue(detail=f"row {self.rows + row}: there is no body")
        self._check_labels(columns.get("label"))
        targets = self._targets(columns.get("destination_queue"), count)
        parts = {name: _Part(columns.get(name)) for name in _PARTS}
        for name, part in parts.items():
            fixed["lengths"][:, PART[_PARTS[name]]] = part.lengths(count)
        fixed["lengths"][:, PART["sender"]] = len(self._sender)
        fixed["sender_type"] = _SID if self._sender else 0
        fixed["lengths"][:, PART["destination"]] = [len(name) for _, name in targets]
        heads, size, sender = fixed.tobytes(), FIXED.itemsize, self._sender
        take = {name: part.values(count) for name, part in parts.items()}
        records = [
            b"".join((heads[at : at + size], body, extension, sender, label, name, admin, response))
            for at, body, extension, label, (_, name), admin, response in zip(
                range(0, count * size, size), take["body"], take["extension"], take["label"], targets,
                take["admin_queue"], take["response_queue"], strict=True,
            )
        ]  # fmt: skip
        self.rows += count
        return [index for index, _ in targets], records

    def _numbers(
        self, name: str, column: pa.Array | None, count: int, lowest: int, highest: int, default: int
    ) -> Array:
        if column is None:
            return np.full(count, default, np.int64)
        values: Array = column.cast(pa.int64()).fill_null(default).to_numpy(zero_copy_only=False)
        wrong = (values < lowest) | (values > highest)
        if wrong.any():
            row = int(wrong.argmax())
            raise IllegalPropertyValue(
                detail=f"row {self.rows + row}: {name} {values[row]}: {lowest} to {highest} are allowed"
            )
        return values

    def _correlations(self, column: pa.Array) -> Array:
        found = []
        for row, text in enumerate(column.to_pylist()):
            try:
                found.append(identifier_from_text(text) if text else NULL_IDENTIFIER)
            except ValueError as error:
                raise IllegalPropertyValue(detail=f"row {self.rows + row}: correlation_id {error}") from error
        return np.frombuffer(b"".join(found), "V20")

    def _check_labels(self, column: pa.Array | None) -> None:
        if column is None:
            return
        for row, label in enumerate(column.to_pylist()):
            if label and len(label.encode("utf-16-le")) > 2 * MAXIMUM_LABEL:
                raise MsmqError(
                    HResult.MQ_ERROR_LABEL_TOO_LONG,
                    f"row {self.rows + row}: a label has at most {MAXIMUM_LABEL} characters, this one {len(label)}",
                )

    def _targets(self, column: pa.Array | None, count: int) -> list[tuple[int, bytes]]:
        names = [None] * count if column is None else column.to_pylist()
        found = []
        for row, name in enumerate(names):
            text = name or self._default
            if not text:
                raise IllegalPropertyValue(
                    detail=f"row {self.rows + row}: neither destination_queue nor a queue for all rows is given"
                )
            target = self._known.get(text)
            if target is None:
                try:
                    index, format_name = self._target(text)
                except MsmqError as error:
                    error.detail = f"row {self.rows + row}: {error.detail}"
                    raise
                target = self._known[text] = (index, format_name.encode())
            found.append(target)
        return found


class _Part:
    """The bytes of a column, null being empty."""

    def __init__(self, column: pa.Array | None) -> None:
        self._column = column

    def _offsets(self) -> Array:
        column = self._column
        assert column is not None
        offsets: Array = np.frombuffer(column.buffers()[1], np.int32)
        return offsets[column.offset : column.offset + len(column) + 1]

    def lengths(self, count: int) -> Array:
        if self._column is None:
            return np.zeros(count, np.int64)
        lengths: Array = np.diff(self._offsets())
        if self._column.null_count:
            lengths = np.where(self._column.is_null().to_numpy(zero_copy_only=False), 0, lengths)
        return lengths

    def values(self, count: int) -> list[memoryview]:
        if self._column is None or not (lengths := self.lengths(count)).any():
            return [memoryview(b"")] * count
        data = memoryview(self._column.buffers()[2])
        starts = self._offsets()[:-1].tolist()
        return [data[start : start + length] for start, length in zip(starts, lengths.tolist(), strict=True)]
