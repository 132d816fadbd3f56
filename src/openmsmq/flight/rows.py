"""Convert rows to message records, a few thousand at once. Fields that the queue manager fills in stay zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from openmsmq.bulk.message_columns import WRITE_COLUMNS
from openmsmq.flight.layout import FIXED, PART, VERSION
from openmsmq.model.admission import check_label, too_large
from openmsmq.model.constants import INFINITE, MAXIMUM_LABEL, MAXIMUM_MESSAGE_SIZE
from openmsmq.model.errors import IllegalPropertyValue, MsmqError, error_for
from openmsmq.model.message import NULL_IDENTIFIER, identifier_from_text
from openmsmq.model.names import parse_format_name
from openmsmq.processes.flight_requests import shown

Array = npt.NDArray[Any]
_BYTES = pa.large_binary()  # of any number
_SID = 1  # PROPID_M_SENDERID_TYPE: a security identifier
#: Column -> field of the fixed part, lowest and highest value, default.
_NUMBERS = {
    "priority": ("priority", 0, 7, 3),
    "body_type": ("body_type", 0, 0xFFFF, 0),
    "acknowledgment": ("acknowledgements_requested", 0, 0x0F, 0),
    "journaling": ("journaling_requested", 0, 3, 0),
    "application_tag": ("application_tag", 0, 0xFFFFFFFF, 0),
    "time_to_reach_queue": ("time_to_reach_queue", 0, INFINITE, INFINITE),
    "time_to_be_received": ("time_to_be_received", 0, INFINITE, INFINITE),
}
_FORMAT_NAMES = ("response_queue", "admin_queue")
_MOST_DETAIL = 500  # maximum characters of a value quoted in an error
_NOWHERE = (0, b"")  # target of a refused row
_NO_QUEUE = IllegalPropertyValue(detail="no destination: give destination_queue in each row, or a default queue")
_PARTS = {
    "body": "body", "extension": "extension", "label": "label", "response_queue": "response_queue_format_name",
    "admin_queue": "administration_queue_format_name",
}  # fmt: skip


def checked_schema(schema: pa.Schema) -> None:
    """Check a schema. Raises IllegalPropertyValue for a missing or unwritable column, or one of another type."""
    try:
        fields = [(field.name, field) for field in schema]
    except UnicodeDecodeError as error:
        raise IllegalPropertyValue(detail=f"the name of a column is not UTF-8: {error}") from error
    for name, field in fields:
        wanted = WRITE_COLUMNS.get(name)
        if wanted is None:
            raise IllegalPropertyValue(
                detail=f"column {shown(name)} cannot be written; allowed: {', '.join(WRITE_COLUMNS)}"
            )
        if field.type != wanted:
            raise IllegalPropertyValue(detail=f"column {shown(name)} is {field.type}, expected {wanted}")
        if len(schema.get_all_field_indices(name)) > 1:
            raise IllegalPropertyValue(detail=f"column {shown(name)} appears twice, allowed: once")
    if "body" not in schema.names:
        raise IllegalPropertyValue(detail="column 'body' is missing")


def validate(batch: pa.RecordBatch) -> None:
    """Raise IllegalPropertyValue unless all buffers of a batch are valid: sizes, offsets, null counts, UTF-8. Arrow's
    functions rely on that, and a wrong offset would make them read outside the buffers."""
    for name, checked in (*zip(batch.schema.names, batch.columns, strict=True), ("rows", batch)):
        try:
            checked.validate(full=True)
        except (pa.ArrowException, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise IllegalPropertyValue(detail=f"{name}: malformed Arrow data: {reason}") from error


def fail(row: int, error: MsmqError) -> None:
    """Raise the error of a refused row, with its number."""
    raise error_for(error.hresult, f"row {row}: {error.detail}") from error


@dataclass(frozen=True, slots=True)
class Encoded:
    """Rows encoded as concatenated records.

    Attributes:
        rows: row numbers in the stage, int64.
        targets: indices of the rows' targets, uint32.
        bounds: start of each record in `data`, and end of the last one, int64.
        data: bytes.
    """

    rows: Array
    targets: Array
    bounds: Array
    data: memoryview

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, end: int) -> Encoded:
        return Encoded(self.rows[start:end], self.targets[start:end], self.bounds[start : end + 1], self.data)

    @property
    def sizes(self) -> Array:
        """Return the size of each record in bytes, uint32."""
        return np.diff(self.bounds).astype(np.uint32)

    @property
    def records(self) -> memoryview:
        return self.data[int(self.bounds[0]) : int(self.bounds[-1])]


NOTHING = Encoded(np.empty(0, np.int64), np.empty(0, np.uint32), np.zeros(1, np.int64), memoryview(b""))


class RowEncoder:
    """Encodes the records of one stage."""

    def __init__(
        self,
        target: Callable[[str], tuple[int, str] | MsmqError],
        default: str | None,
        sender: bytes,
        refuse: Callable[[int, MsmqError], None] = fail,
    ) -> None:
        """
        Args:
            target: returns index and format name of a queue that a row names, or why it accepts no rows.
            default: queue of rows without a target.
            sender: security identifier of the sender, or empty.
            refuse: called with the number in the stage of each invalid row, in order. Unless it raises, the row is
            omitted.
        """
        self._target = target
        self._default = default
        self._sender = sender
        self._refuse_row = refuse
        self._known: dict[str, tuple[int, bytes]] = {}
        self._refused: dict[int, MsmqError] = {}  # of the batch being encoded
        self.rows = 0

    def _refuse(self, row: int, error: MsmqError) -> None:
        self._refused.setdefault(row, error)

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        """Encode the rows that are not refused."""
        count = batch.num_rows
        self._refused.clear()
        fixed = np.zeros(count, FIXED)
        fixed["version"] = VERSION
        columns = {name: batch.column(name) for name in batch.schema.names}
        for name, (field, lowest, highest, default) in _NUMBERS.items():
            fixed[field] = self._numbers(name, columns.get(name), count, lowest, highest, default)
        for limit in ("time_to_reach_queue", "time_to_be_received"):
            fixed[limit][fixed[limit] == 0] = INFINITE  # as in a send of MS-MQMP, deviation D-10
        recoverable = columns.get("recoverable")
        if recoverable is not None:
            recoverable = recoverable.fill_null(True).to_numpy(zero_copy_only=False)
        fixed["delivery_guarantee"] = 1 if recoverable is None else recoverable
        if "correlation_id" in columns:
            fixed["correlation_identifier"] = self._correlations(columns["correlation_id"])
        if columns["body"].null_count:
            for row in np.flatnonzero(columns["body"].is_null().to_numpy(zero_copy_only=False)).tolist():
                self._refuse(row, IllegalPropertyValue(detail="body is null"))
        for name in _FORMAT_NAMES:
            self._check_format_names(name, columns.get(name))
        targets, names = self._targets(columns.get("destination_queue"), count)
        parts = {name: columns[name].cast(_BYTES).fill_null(b"") for name in _PARTS if name in columns}
        lengths: dict[str, Any] = {_PARTS[name]: _lengths(part) for name, part in parts.items()}
        if "label" in columns:
            self._check_labels(columns["label"], lengths["label"])
        lengths["sender_identifier"], lengths["destination_queue_format_name"] = len(self._sender), _lengths(names)
        for name, length in lengths.items():
            fixed["lengths"][:, PART[name]] = length
        fixed["sender_identifier_type"] = _SID if self._sender else 0
        ends = pa.py_buffer(np.arange(0, (count + 1) * FIXED.itemsize, FIXED.itemsize))
        heads = pa.Array.from_buffers(_BYTES, count, [None, ends, pa.py_buffer(fixed.tobytes())])
        nothing = pa.scalar(b"", _BYTES)
        body, extension, label, admin, response = (
            parts.get(name, nothing) for name in ("body", "extension", "label", "admin_queue", "response_queue")
        )
        sender = pa.scalar(self._sender, _BYTES)
        records = pc.binary_join_element_wise(heads, body, extension, sender, label, names, admin, response, nothing)
        return self._kept(records, targets)

    def _kept(self, records: pa.LargeBinaryArray, targets: Array) -> Encoded:
        """Return the accepted rows. Report refused rows through `refuse`."""
        sizes = _lengths(records)
        for row in np.flatnonzero(sizes > MAXIMUM_MESSAGE_SIZE).tolist():
            self._refuse(row, too_large(int(sizes[row])))
        numbers = np.arange(self.rows, self.rows + len(records))
        for row in sorted(self._refused):
            self._refuse_row(self.rows + row, self._refused[row])
        self.rows += len(records)
        if self._refused:
            kept = np.ones(len(records), np.bool_)
            kept[list(self._refused)] = False
            numbers, targets, records = numbers[kept], targets[kept], records.filter(pa.array(kept))
        return Encoded(numbers, targets, _offsets(records), memoryview(records.buffers()[2] or b""))

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
            except (ValueError, OverflowError) as error:
                self._refuse(row, IllegalPropertyValue(detail=f"correlation_id {shown(text)}: {error}"[:_MOST_DETAIL]))
                found.append(NULL_IDENTIFIER)
        return np.frombuffer(b"".join(found), "V20")

    def _check_labels(self, column: pa.Array | None, lengths: Array) -> None:
        """Check labels. `lengths` are in bytes; a label has at most that many characters."""
        if column is None:
            return
        has_nul = pc.match_substring(column, "\0").fill_null(False).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero((lengths > MAXIMUM_LABEL) | has_nul).tolist():
            try:
                check_label(column[row].as_py())
            except MsmqError as error:
                self._refuse(row, error)

    def _targets(self, column: pa.Array | None, count: int) -> tuple[Array, pa.LargeBinaryArray]:
        """Return the indices and format names of the targets."""
        coded = (pa.nulls(count, pa.string()) if column is None else column).dictionary_encode("encode")
        places = coded.indices.to_numpy()
        wrong: dict[str, MsmqError] = {}  # looked up again for the next rows: the number of names is unlimited
        found = []
        for place, name in enumerate(coded.dictionary.to_pylist()):
            text = name or self._default or ""
            if text not in self._known and (error := self._look_up(text, wrong)):
                for row in np.flatnonzero(places == place).tolist():
                    self._refuse(row, error)
            found.append(self._known.get(text, _NOWHERE))
        indices = np.array([index for index, _ in found], np.uint32)[places]
        return indices, pa.array([name for _, name in found], _BYTES).take(pa.array(places))

    def _look_up(self, text: str, wrong: dict[str, MsmqError]) -> MsmqError | None:
        """Look up an unknown queue. Return the error with which its rows are refused, if any."""
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
        """Refuse invalid format names, which readers could not parse."""
        if column is None:
            return
        for text in column.unique().to_pylist():
            try:
                if text:
                    parse_format_name(text)
            except MsmqError as error:
                for row in np.flatnonzero(pc.equal(column, text).fill_null(False).to_numpy(zero_copy_only=False)):
                    self._refuse(int(row), MsmqError(error.hresult, f"{name}: {error.detail}"))


def _offsets(column: pa.LargeBinaryArray) -> Array:
    offsets: Array = np.frombuffer(column.buffers()[1], np.int64)
    return offsets[column.offset : column.offset + len(column) + 1]


def _lengths(column: pa.LargeBinaryArray) -> Array:
    return np.diff(_offsets(column))
