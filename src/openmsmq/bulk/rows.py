"""From rows to message records, a few thousand at once. What is the queue manager's to fill in stays zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from openmsmq.bulk.layout import FIXED, PART, VERSION
from openmsmq.bulk.schema import WRITE_COLUMNS
from openmsmq.model.constants import INFINITE, MAXIMUM_LABEL
from openmsmq.model.errors import HResult, IllegalPropertyValue, MsmqError, error_for
from openmsmq.model.message import NULL_IDENTIFIER, identifier_from_text
from openmsmq.model.names import parse_format_name

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
_FORMAT_NAMES = ("response_queue", "admin_queue")
_NOWHERE = (0, b"")  # the target of a row that is refused
_NO_QUEUE = IllegalPropertyValue(detail="neither destination_queue nor a queue for all rows is given")
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


def fail(row: int, error: MsmqError) -> None:
    """Raises why a row is refused, with its number."""
    raise error_for(error.hresult, f"row {row}: {error.detail}") from error


@dataclass(frozen=True, slots=True)
class Encoded:
    """Rows as records: their numbers in the stage, indices of their targets, records."""

    rows: list[int]
    targets: list[int]
    records: list[bytes]

    def part(self, start: int, end: int | None = None) -> Encoded:
        return Encoded(self.rows[start:end], self.targets[start:end], self.records[start:end])


class Encoder:
    """Makes the records of one stage."""

    def __init__(
        self,
        target: Callable[[str], tuple[int, str] | MsmqError],
        default: str | None,
        sender: bytes,
        refuse: Callable[[int, MsmqError], None] = fail,
    ) -> None:
        """
        Args:
            target: index and format name of a queue that a row names, or why it takes no rows.
            default: the queue of rows that name none.
            sender: security identifier of who sends, or nothing.
            refuse: is told of each row that is wrong, in order, by its number in the stage. Raises, or it is left out.
        """
        self._target = target
        self._default = default
        self._sender = sender
        self._tell = refuse
        self._known: dict[str, tuple[int, bytes]] = {}
        self._refused: dict[int, MsmqError] = {}  # of the batch that is being encoded
        self.rows = 0

    def _refuse(self, row: int, error: MsmqError) -> None:
        self._refused.setdefault(row, error)

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        """The rows that are not refused."""
        count = batch.num_rows
        self._refused.clear()
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
            for row in np.flatnonzero(columns["body"].is_null().to_numpy(zero_copy_only=False)).tolist():
                self._refuse(row, IllegalPropertyValue(detail="there is no body"))
        for name in _FORMAT_NAMES:
            self._check_format_names(name, columns.get(name))
        targets = self._targets(columns.get("destination_queue"), count)
        parts = {name: _Part(columns.get(name)) for name in _PARTS}
        self._check_labels(columns.get("label"), parts["label"].lengths(count))
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
        for row in sorted(self._refused):
            self._tell(self.rows + row, self._refused[row])
        kept = [row for row in range(count) if row not in self._refused] if self._refused else range(count)
        numbers = [self.rows + row for row in kept]
        self.rows += count
        if len(kept) < count:
            return Encoded(numbers, [targets[row][0] for row in kept], [records[row] for row in kept])
        return Encoded(numbers, [index for index, _ in targets], records)

    def _numbers(
        self, name: str, column: pa.Array | None, count: int, lowest: int, highest: int, default: int
    ) -> Array:
        if column is None:
            return np.full(count, default, np.int64)
        values: Array = column.cast(pa.int64()).fill_null(default).to_numpy(zero_copy_only=False)
        wrong = (values < lowest) | (values > highest)
        for row in np.flatnonzero(wrong).tolist():
            detail = f"{name} {values[row]}: {lowest} to {highest} are allowed"
            self._refuse(row, IllegalPropertyValue(detail=detail))
        return values

    def _correlations(self, column: pa.Array) -> Array:
        found = []
        for row, text in enumerate(column.to_pylist()):
            try:
                found.append(identifier_from_text(text) if text else NULL_IDENTIFIER)
            except ValueError as error:
                self._refuse(row, IllegalPropertyValue(detail=f"correlation_id {error}"))
                found.append(NULL_IDENTIFIER)
        return np.frombuffer(b"".join(found), "V20")

    def _check_labels(self, column: pa.Array | None, lengths: Array) -> None:
        """`lengths` in bytes: a label has no more characters than those."""
        if column is None:
            return
        for row in np.flatnonzero(lengths > MAXIMUM_LABEL).tolist():
            label = column[row].as_py()
            if len(label.encode("utf-16-le")) > 2 * MAXIMUM_LABEL:
                detail = f"a label has at most {MAXIMUM_LABEL} characters, this one {len(label)}"
                self._refuse(row, MsmqError(HResult.MQ_ERROR_LABEL_TOO_LONG, detail))

    def _targets(self, column: pa.Array | None, count: int) -> list[tuple[int, bytes]]:
        coded = (pa.nulls(count, pa.string()) if column is None else column).dictionary_encode("encode")
        places = coded.indices.to_numpy()
        wrong: dict[str, MsmqError] = {}  # asked for again with the next rows: nobody knows how many there will be
        found = []
        for place, name in enumerate(coded.dictionary.to_pylist()):
            text = name or self._default or ""
            if text not in self._known and (error := self._look_up(text, wrong)):
                for row in np.flatnonzero(places == place).tolist():
                    self._refuse(row, error)
            found.append(self._known.get(text, _NOWHERE))
        return [found[place] for place in places.tolist()]

    def _look_up(self, text: str, wrong: dict[str, MsmqError]) -> MsmqError | None:
        """Ask for a queue that is not known. Returns why its rows are refused, if they are."""
        if text in wrong:
            return wrong[text]
        answer = self._target(text) if text else _NO_QUEUE
        if isinstance(answer, MsmqError):
            wrong[text] = answer
            return answer
        index, name = answer
        self._known[text] = index, name.encode()
        return None

    def _check_format_names(self, name: str, column: pa.Array | None) -> None:
        """Readers would stumble over what is no format name."""
        if column is None:
            return
        for text in column.unique().to_pylist():
            try:
                if text:
                    parse_format_name(text)
            except MsmqError as error:
                for row in np.flatnonzero(pc.equal(column, text).fill_null(False).to_numpy(zero_copy_only=False)):
                    self._refuse(int(row), MsmqError(error.hresult, f"{name}: {error.detail}"))


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
