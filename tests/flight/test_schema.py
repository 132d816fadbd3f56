"""Columns: the documented table, the record layout, round trips."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.bulk.message_columns import COLUMNS, MESSAGE_SCHEMA, SOURCES, WRITE_COLUMNS
from openmsmq.flight.layout import FIXED, PARTS
from openmsmq.flight.record_columns import Records
from openmsmq.flight.rows import RowEncoder
from openmsmq.model.message import Message
from openmsmq.queueing import records, source_names
from openmsmq.record import fields
from openmsmq.record.message_record import decode_message, encode_message

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "bulk.md"
SPARK = {pa.string(), pa.binary(), pa.int32(), pa.int64(), pa.bool_(), pa.timestamp("us", tz="UTC")}


def table() -> str:
    lines = ["| column | type | meaning | null when | default when written |", "|---|---|---|---|---|"]
    for column in COLUMNS:
        default = "not written" if column.default is None else column.default
        lines.append(f"| `{column.name}` | {column.type} | {column.meaning} | {column.null or '–'} | {default} |")
    return "\n".join(lines)


def test_the_document_has_the_table_of_columns() -> None:
    found = DOCUMENT.read_text().partition("<!-- columns -->\n")[2].partition("<!-- end -->")[0]
    assert found.strip() == table()


def test_all_types_are_those_that_spark_has() -> None:
    assert {field.type for field in MESSAGE_SCHEMA} <= SPARK
    assert all(field.nullable for field in MESSAGE_SCHEMA)


def test_numpy_sees_a_record_as_the_queue_manager_writes_it() -> None:
    message = Message(
        body=b"b", label="l", priority=7, journaling_requested=2, acknowledgements_requested=4, move_count=3,
        application_tag=9, time_to_be_received=8, sent_time=1, arrival_time=2, last_move_time=3,
        sender_identifier_type=1,
        identifier=bytes(range(20)), transaction_identifier=bytes(range(20, 40)), last_in_transaction=True,
        sender_identifier=b"sid", authentication_provider_name="provider",
    )  # fmt: skip
    record = encode_message(message)
    (fixed,) = np.frombuffer(record, FIXED, 1)
    assert FIXED.itemsize == fields.FIXED.size
    assert len(record) == FIXED.itemsize + fixed["lengths"].sum()
    assert dict(zip(PARTS, fixed["lengths"].tolist(), strict=True))["authentication_provider_name"] == len("provider")
    for name, value in {
        "priority": 7, "journaling_requested": 2, "acknowledgements_requested": 4, "move_count": 3,
        "application_tag": 9, "time_to_be_received": 8, "sent_time": 1, "arrival_time": 2, "last_move_time": 3,
        "sender_identifier_type": 1, "flags": 2,
    }.items():  # fmt: skip
        assert fixed[name] == value, name
    assert fixed["identifier"].tobytes() == bytes(range(20))
    assert fixed["transaction_identifier"].tobytes() == bytes(range(20, 40))


def test_fields_filled_in_by_the_queue_manager_are_at_their_offsets() -> None:
    draft = bytearray(encode_message(Message(body=b"x", priority=6)))
    machine = bytes(range(16))
    assert records.stamp_draft(draft, 77, 5_250, machine, None, 0, 100) == 6
    message = decode_message(bytes(draft), 1 << 56 | 77)
    assert (message.identifier, message.source_machine_identifier) == (machine + (77).to_bytes(4, "little"), machine)
    assert (message.sent_time, message.arrival_time, message.time_to_reach_queue) == (5, 5, 100)
    assert message.sent_milliseconds == 250
    assert records.stamp_draft(draft, 78, 5_000, machine, bytes(range(20)), 3, 50) == 0
    message = decode_message(bytes(draft), 78)
    assert message.is_transactional and message.recoverable and message.time_to_reach_queue == 100
    assert message.first_in_transaction and message.last_in_transaction


texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=80)  # a NUL would end a label
queues = st.sampled_from(["", "DIRECT=OS:x\\private$\\é", "DIRECT=TCP:1.2.3.4\\q"])


@given(
    st.lists(
        st.tuples(st.binary(max_size=300), texts, st.binary(max_size=9), st.integers(0, 7), st.booleans(), queues),
        min_size=1, max_size=20,
    )
)  # fmt: skip
def test_rows_that_are_written_are_read_as_they_were(rows: list[tuple[bytes, str, bytes, int, bool, str]]) -> None:
    body, label, extension, priority, recoverable, response = map(list, zip(*rows, strict=True))
    columns = {
        "body": pa.array(body, pa.binary()), "label": pa.array(label, pa.string()),
        "extension": pa.array([value or None for value in extension], pa.binary()),
        "priority": pa.array(priority, pa.int32()), "recoverable": pa.array(recoverable, pa.bool_()),
        "response_queue": pa.array([value or None for value in response], pa.string()),
    }  # fmt: skip
    batch = pa.record_batch(columns)
    padded = pa.record_batch({name: pa.concat_arrays([a[:1], a]) for name, a in columns.items()}).slice(1)
    for given_batch in (batch, padded):  # slices can begin anywhere in their buffers
        encoded = RowEncoder(lambda name: (0, name), "q", b"").encode(given_batch)
        made = [bytes(encoded.data[start:end]) for start, end in pairwise(encoded.bounds.tolist())]
        lengths = np.array([len(record) for record in made])
        padded_lengths = (lengths + 7) & ~7
        buffer = np.frombuffer(b"".join(r + bytes(-len(r) % 8) for r in made), np.uint8)
        keys = np.arange(1, len(made) + 1, dtype=np.uint64)
        starts = np.cumsum(padded_lengths) - padded_lengths
        found = Records(keys, buffer, starts, lengths, "q", "queue")
        assert found.batch(list(columns)).to_pylist() == batch.to_pylist()
        backwards = Records(keys[::-1], buffer, starts[::-1], lengths[::-1], "q", "queue")
        assert backwards.batch(list(columns)).to_pylist() == batch.to_pylist()[::-1]
        assert found.batch(MESSAGE_SCHEMA.names).schema == MESSAGE_SCHEMA


def test_invalid_unicode_is_read_with_replacements() -> None:
    record = encode_message(Message(label="a\ud800b"))
    sizes = np.array([len(record)])
    buffer = np.frombuffer(record + bytes(-len(record) % 8), np.uint8)
    found = Records(np.array([1], np.uint64), buffer, np.array([0]), sizes, "q", "queue")
    assert found.batch(["label"]).to_pylist() == [{"label": "a\ufffdb"}]


@given(
    st.lists(
        st.tuples(st.sampled_from([bytes(16), bytes(range(16)), bytes(15) + b"x"]), st.sampled_from([0, 9, 1 << 31])),
        min_size=1, max_size=6,
    )
)  # fmt: skip
def test_identifiers_are_read_as_text_or_nothing(given_: list[tuple[bytes, int]]) -> None:
    made = [
        encode_message(Message(identifier=guid + number.to_bytes(4, "little"), source_machine_identifier=guid))
        for guid, number in given_
    ]
    sizes = np.array([len(record) for record in made])
    buffer = np.frombuffer(b"".join(record + bytes(-len(record) % 8) for record in made), np.uint8)
    starts = np.cumsum((sizes + 7) & ~7) - ((sizes + 7) & ~7)
    found = Records(np.arange(1, len(made) + 1, dtype=np.uint64), buffer, starts, sizes, "q", "queue")
    assert found.batch(["message_id", "source_machine"]).to_pylist() == [
        {
            "message_id": f"{{{UUID(bytes_le=guid)}}}\\{number}" if any(guid) or number else None,
            "source_machine": str(UUID(bytes_le=guid)),
        }
        for guid, number in given_
    ]


def test_client_and_queue_manager_know_the_same_sources() -> None:
    assert SOURCES == source_names.SOURCES


def test_every_column_that_is_written_is_one_that_is_read() -> None:
    assert all(MESSAGE_SCHEMA.field(name).type == kind for name, kind in WRITE_COLUMNS.items())
