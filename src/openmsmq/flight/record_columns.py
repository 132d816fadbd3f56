"""Convert message records to columns, a few thousand at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from openmsmq.bulk.message_columns import MESSAGE_SCHEMA
from openmsmq.flight.layout import FIXED, PART, VERSION
from openmsmq.model.lookup_id import LAST_SEQUENCE
from openmsmq.model.text import as_unicode
from openmsmq.record.compact_record import split_rows

Array = npt.NDArray[Any]
_INFINITE = 0xFFFFFFFF
_NULL_IDENTIFIER = bytes(20)


class Records:
    """The records of one slice, in one buffer.

    Attributes:
        damaged: lookup identifiers of records that cannot be parsed; they are omitted.
    """

    def __init__(
        self,
        keys: Array,
        buffer: Array,
        starts: Array,
        sizes: Array,
        queue: str,
        source: str,
        include_body: bool = True,
        aborts: Sequence[tuple[int, int]] = (),
    ) -> None:
        """
        Args:
            keys: lookup identifiers.
            buffer: bytes of the records, in plain or compact form.
            starts, sizes: location of each record in `buffer`.
            queue, source: values of these columns.
            include_body: False makes `body` null.
            aborts: lookup identifiers and abort counts of messages whose records lack the counts.
        """
        parts, begins = split_rows(buffer, np.ascontiguousarray(starts), np.ascontiguousarray(sizes))
        fixed, places = np.frombuffer(parts, FIXED), np.frombuffer(begins, np.int64)
        lengths = fixed["lengths"].sum(axis=1, dtype=np.int64) + fixed["tail_size"]
        sound = (fixed["version"] == VERSION) & (places + lengths == starts + sizes)
        self.damaged: Array = keys[~sound]
        if len(self.damaged):
            keys, fixed, places = keys[sound], fixed[sound], places[sound]
        self._buffer = buffer
        self._count = len(keys)
        self._keys = keys
        self._queue, self._source, self._include_body = queue, source, include_body
        self._aborts = dict(aborts)
        self._fixed = fixed
        self._lengths = np.ascontiguousarray(fixed["lengths"].T, np.int64)  # lengths of each part
        self._bounds = list(accumulate(self._lengths, initial=places))  # start of each part

    def __len__(self) -> int:
        return self._count

    def batch(self, names: Sequence[str]) -> pa.RecordBatch:
        """Return the named columns."""
        arrays = [self._column(name) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([MESSAGE_SCHEMA.field(name) for name in names]))

    def _column(self, name: str) -> pa.Array:
        maker = _MAKERS.get(name)
        if maker is not None:
            return maker(self)
        kind = MESSAGE_SCHEMA.field(name).type
        return _numbers(self._fixed[_PLAIN.get(name, name)], kind)

    # -- columns ------------------------------------------------------------------------------------------------

    def constant(self, text: str) -> pa.Array:
        return pa.repeat(pa.scalar(text, pa.string()), self._count)

    def part(self, name: str, kind: pa.DataType, *, nullable: bool = True) -> pa.Array:
        """Return a part of variable length; null if it is empty, if null is allowed."""
        index = PART[name]
        lengths = self._lengths[index]
        if nullable and not lengths.any():
            return pa.nulls(self._count, kind)
        parts = self._gathered(self._bounds[index], self._bounds[index + 1])
        _, offsets, data = parts.buffers()
        if kind == pa.string() and not _is_text(data):
            valid = [_text(part) for part in parts.to_pylist()]
            return pa.array([text or None if nullable else text for text in valid], kind)
        validity = pa.py_buffer(np.packbits(lengths > 0, bitorder="little")) if nullable else None
        return pa.Array.from_buffers(kind, self._count, [validity, offsets, data])

    def _gathered(self, starts: Array, ends: Array) -> pa.BinaryArray:
        """Return a part of all records, concatenated. Arrow selects it from an array that alternates, in buffer order,
        between the part of a record and the bytes up to the next part."""
        order = np.argsort(starts, kind="stable")
        bounds = np.empty(2 * self._count, np.int32)
        bounds[0::2], bounds[1::2] = starts[order], ends[order]
        places = np.empty(self._count, np.int64)
        places[order] = np.arange(0, 2 * self._count, 2)
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self._buffer)]
        return pa.Array.from_buffers(pa.binary(), 2 * self._count - 1, buffers).take(pa.array(places))

    def body(self) -> pa.Array:
        if not self._include_body:
            return pa.nulls(self._count, pa.binary())
        return self.part("body", pa.binary(), nullable=False)

    def seconds(self, name: str) -> pa.Array:
        """Return a time in seconds; null where it is 0 (never)."""
        values = self._fixed[name].astype(np.int64)
        return _numbers(values * 1_000_000, pa.timestamp("us", tz="UTC"), values != 0)

    def life(self, name: str) -> pa.Array:
        values = self._fixed[name]
        return _numbers(values, pa.int64(), values != _INFINITE)

    def identifiers(self, name: str) -> pa.Array:
        """Return `{guid}\\number`; null where all bytes are zero."""
        raw = np.ascontiguousarray(self._fixed[name])
        words = raw.view("<u4").reshape(self._count, 5)
        if not words.any():
            return pa.nulls(self._count, pa.string())
        guid = words[0, :4].tobytes()
        if all((words[:, place] == words[0, place]).all() for place in range(4)) and guid != bytes(16):
            # Usually all are from one queue manager.
            numbers = pc.cast(pa.array(words[:, 4]), pa.string())
            return pc.binary_join_element_wise(f"{{{UUID(bytes_le=guid)}}}\\", numbers, "")
        return pa.array([_identifier(value) for value in raw.tolist()], pa.string())

    def machine(self) -> pa.Array:
        raw = np.ascontiguousarray(self._fixed["source_machine_identifier"])
        words = raw.view("<u8").reshape(self._count, 2)
        if (words == words[0]).all():  # integers compare much faster than bytes
            return self.constant(str(UUID(bytes_le=raw[0].tobytes())))
        raw = raw.tolist()
        known = {value: str(UUID(bytes_le=bytes(value))) for value in set(raw)}
        return pa.array([known[value] for value in raw], pa.string())

    def abort_counts(self) -> pa.Array:
        """Return abort counts: of express messages from the record, of stored ones as reported by the queue manager."""
        values = self._fixed["abort_count"].astype(np.int32)
        if self._aborts:
            counted = np.fromiter(self._aborts, np.uint64, len(self._aborts))
            rows = np.flatnonzero(np.isin(self._keys, counted))
            values[rows] = [self._aborts[key] for key in self._keys[rows].tolist()]
        return _numbers(values, pa.int32())

    def flag(self, bit: int) -> pa.Array:
        return pa.array((self._fixed["flags"] & bit) != 0)

    @property
    def keys(self) -> Array:
        return self._keys

    @property
    def fixed(self) -> Array:
        return self._fixed

    @property
    def body_sizes(self) -> Array:
        sizes: Array = self._lengths[PART["body"]]
        return sizes

    @property
    def queue(self) -> str:
        return self._queue

    @property
    def source(self) -> str:
        return self._source


def key_columns(keys: Array, queue: str, source: str, names: Sequence[str]) -> pa.RecordBatch:
    """Return columns of KEY_COLUMNS, which need no records."""
    arrays = [_OF_KEYS[name](keys, queue, source) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([MESSAGE_SCHEMA.field(name) for name in names]))


def _text(part: bytes) -> str:
    """Return text for Arrow, with invalid Unicode replaced."""
    try:
        return as_unicode(part.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        return part.decode("utf-8", "replace")


def _is_text(data: pa.Buffer) -> bool:
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _identifier(value: bytes) -> str | None:
    if value == _NULL_IDENTIFIER:
        return None
    return f"{{{UUID(bytes_le=value[:16])}}}\\{int.from_bytes(value[16:], 'little')}"


def _numbers(values: Array, kind: pa.DataType, valid: Array | None = None) -> pa.Array:
    """Return an array of a fixed-width type; null where `valid` is false."""
    numbers = pa.py_buffer(np.ascontiguousarray(values, dtype=np.int32 if kind == pa.int32() else np.int64))
    validity = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [validity, numbers])


#: Columns that copy a number of the fixed part under another name.
_PLAIN = {
    "acknowledgment": "acknowledgements_requested", "class": "message_class", "journaling": "journaling_requested",
    "sender_id_type": "sender_identifier_type", "tracing": "tracing_requested",
}  # fmt: skip
_TEXTS = {
    "destination_queue": "destination_queue_format_name", "response_queue": "response_queue_format_name",
    "admin_queue": "administration_queue_format_name",
}  # fmt: skip
_BYTES = {
    "extension": "extension", "sender_id": "sender_identifier", "sender_certificate": "sender_certificate",
}  # fmt: skip
#: Columns that need no records: functions of lookup identifiers, queue and source.
_OF_KEYS: dict[str, Callable[[Array, str, str], pa.Array]] = {
    "queue": lambda keys, queue, _: pa.repeat(pa.scalar(queue, pa.string()), len(keys)),
    "source": lambda keys, _, source: pa.repeat(pa.scalar(source, pa.string()), len(keys)),
    "sequence": lambda keys, _, __: _numbers(keys & np.uint64(LAST_SEQUENCE), pa.int64()),
    "lookup_id": lambda keys, _, __: _numbers(keys, pa.int64()),
}
KEY_COLUMNS = frozenset(_OF_KEYS)
_MAKERS: dict[str, Callable[[Records], pa.Array]] = {
    **{name: (lambda r, m=maker: m(r.keys, r.queue, r.source)) for name, maker in _OF_KEYS.items()},  # type: ignore[misc]
    "message_id": lambda r: r.identifiers("identifier"),
    "correlation_id": lambda r: r.identifiers("correlation_identifier"),
    "transaction_id": lambda r: r.identifiers("transaction_identifier"),
    "sent_time": lambda r: r.seconds("sent_time"),
    "arrival_time": lambda r: r.seconds("arrival_time"),
    "last_move_time": lambda r: r.seconds("last_move_time"),
    "recoverable": lambda r: pa.array(r.fixed["delivery_guarantee"] != 0),
    "authenticated": lambda r: pa.array(r.fixed["authentication_level"] != 0),
    "label": lambda r: r.part("label", pa.string(), nullable=False),
    "body": lambda r: r.body(),
    "body_size": lambda r: _numbers(r.body_sizes, pa.int64()),
    "time_to_reach_queue": lambda r: r.life("time_to_reach_queue"),
    "time_to_be_received": lambda r: r.life("time_to_be_received"),
    "source_machine": lambda r: r.machine(),
    "abort_count": lambda r: r.abort_counts(),
    "first_in_transaction": lambda r: r.flag(1),
    "last_in_transaction": lambda r: r.flag(2),
    **{name: (lambda r, p=part: r.part(p, pa.string())) for name, part in _TEXTS.items()},  # type: ignore[misc]
    **{name: (lambda r, p=part: r.part(p, pa.binary())) for name, part in _BYTES.items()},  # type: ignore[misc]
}
