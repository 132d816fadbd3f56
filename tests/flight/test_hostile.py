"""Clients with invalid input: they get a clear error, and no other client is affected."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest

import fork_server
from daemon import eventually
from flight.plane import Plane
from openmsmq import MsmqError
from openmsmq.flight.rows import validate
from openmsmq.flight.server import Authentication
from openmsmq.model.errors import HResult, IllegalPropertyValue
from openmsmq.model.lookup_id import LAST_SEQUENCE
from openmsmq.store import Insert, Store


def refusal(call: Callable[[], Any]) -> str:
    """Return the error text of a refused call."""
    with pytest.raises(flight.FlightError) as caught:
        call()
    assert "Traceback" not in str(caught.value)
    information = json.loads(caught.value.extra_info)
    assert information["hresult"] == HResult.MQ_ERROR_INVALID_PARAMETER
    return str(information["detail"])


def raw(plane: Plane) -> flight.FlightClient:
    return flight.connect(f"grpc://127.0.0.1:{plane.port}")


def act(plane: Plane, action: str, body: bytes) -> list[Any]:
    return list(raw(plane).do_action(flight.Action(action, body)))


def test_credentials_that_are_not_ascii_are_refused() -> None:
    for value in ("Basic \xe9", "Basic a", "Basic //8="):
        with pytest.raises(flight.FlightUnauthenticatedError, match="has to be Basic"):
            Authentication().start_call(None, {"authorization": [value]})


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1" + "0" * 400, "-1", "true", '"1"', "[1]"])
def test_an_invalid_wait_is_refused_and_the_daemon_continues(plane: Plane, number: str) -> None:
    body = f'{{"queue": "{plane.queue}", "group": "g", "start": 0, "wait_seconds": {number}}}'
    refusal(lambda: act(plane, "claim", body.encode()))
    assert plane.client.position(plane.queue).count == 0
    assert not [group for group in plane.client.groups() if group.queue.endswith(f"\\{plane.queue}")]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"queue": "q", "group": "\\ud800", "start": 0}', "group is"),
        (b'{"queue": "q", "group": "g", "start": 0, "self": 1}', "no argument 'self'"),
        (b'{"queue": "q", "group": "g", "start": 0, "caller": ["S-1-5-18", "x", ""]}', "no argument 'caller'"),
        (b'{"queue": "q", "group": "g", "start": 0, "op": "describe"}', "no argument 'op'"),
        (b"[" * 50_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
    ],
)
def test_a_malformed_action_is_refused_and_leaves_nothing(plane: Plane, body: bytes, said: str) -> None:
    assert said in refusal(lambda: act(plane, "claim", body))
    assert all(group.group.isascii() for group in plane.client.groups())


@pytest.mark.parametrize(
    "ticket", [b'{"columns": 5}', b'{"columns": [5]}', b'{"self": 1}', b"", b"null", b'{"end": -1}']
)
def test_a_malformed_ticket_is_refused(plane: Plane, ticket: bytes) -> None:
    refusal(lambda: raw(plane).do_get(flight.Ticket(ticket)).read_all())


def upload(plane: Plane, batch: pa.RecordBatch, **values: Any) -> None:
    command = {
        "sink": plane.queue, "batch": 0, "partition": 0, "attempt": "0", "default_queue": plane.queue, **values
    }  # fmt: skip
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
    writer, _ = raw(plane).do_put(descriptor, batch.schema)
    writer.write_batch(batch)
    writer.write_metadata(b"end")
    writer.done_writing()
    writer.close()


def column(kind: pa.DataType, offsets: list[int], data: bytes, validity: bytes | None = None) -> pa.Array:
    """Return a column of three rows with these buffers, without checking them."""
    bitmap = None if validity is None else pa.py_buffer(validity)
    places = np.zeros(len(offsets), np.int32)
    made = pa.Array.from_buffers(kind, len(offsets) - 1, [bitmap, pa.py_buffer(places), pa.py_buffer(data)])
    places[:] = offsets  # set afterwards, because Arrow checks the last one
    return made


@pytest.mark.parametrize("back", [1, 5, 20, 64, 240, 100_000, 2_000_000_000])
def test_negative_offsets_are_refused_and_the_flight_process_lives(plane: Plane, back: int) -> None:
    before = flight_process(plane)
    with pytest.raises((flight.FlightError, pa.ArrowException), match="malformed Arrow data"):
        upload(plane, pa.record_batch({"body": column(pa.binary(), [0, -back, 3], b"abc")}))
    assert flight_process(plane) == before
    assert not [stage for stage in plane.client.stages() if stage.sink == plane.queue]
    assert plane.labels() == []


@pytest.mark.parametrize(
    "label", [column(pa.string(), [0, 1, 3], b"a\xff\xfe"), column(pa.string(), [0, 3, 6], b"\xed\xa0\x80abc")],
    ids=["no UTF-8", "a surrogate"],
)  # fmt: skip
def test_invalid_texts_are_refused(plane: Plane, label: pa.Array) -> None:
    with pytest.raises((flight.FlightError, pa.ArrowException), match="label: malformed Arrow data"):
        upload(plane, pa.record_batch({"body": pa.array([b"a", b"b"]), "label": label}))
    assert plane.labels() == []


@pytest.mark.parametrize("offsets", [[0, -5, 3], [0, 2, 100_000], [3, 2, 1], [-3, 0, 3]])
def test_invalid_arrow_data_is_detected(offsets: list[int]) -> None:
    places = np.zeros(3, np.int32)
    body = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(places), pa.py_buffer(b"abc")])
    batch = pa.record_batch({"body": body})
    places[:] = offsets
    with pytest.raises(IllegalPropertyValue, match="body: malformed Arrow data"):
        validate(batch)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (pa.record_batch({"body": pa.array([[b"a"]])}), "list"),
        (pa.record_batch({"body": pa.array([b"a"]).dictionary_encode()}), "dictionary"),
        (pa.record_batch({"body": pa.array([{"a": 1}])}), "struct"),
        (pa.record_batch({"body": pa.array([b"a"], pa.large_binary())}), "large_binary"),
        (pa.record_batch({"body": pa.array([b"a"], pa.binary_view())}), "binary_view"),
        (pa.RecordBatch.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["body", "body"]), "twice"),
        (pa.record_batch({"body": pa.array([b"a"]), "sender_id": pa.array([b"\x01"])}), "sender_id"),
    ],
    ids=["nested", "dictionary", "struct", "large", "view", "twice", "sender"],
)
def test_columns_of_other_types_are_refused(plane: Plane, batch: pa.RecordBatch, said: str) -> None:
    with pytest.raises(flight.FlightError, match=said):
        upload(plane, batch)


@pytest.mark.parametrize(
    "identifier", ["nonsense", "{x}\\1", "{00000000-0000-0000-0000-000000000000}\\" + "0" * 10 + "9" * 30, "a\\1" * 999]
)
def test_an_invalid_correlation_is_refused_by_its_row(plane: Plane, identifier: str) -> None:
    rows = pa.record_batch({"body": pa.array([b"a"]), "correlation_id": pa.array([identifier])})
    with pytest.raises(MsmqError, match="row 0: correlation_id"):
        plane.client.stage(plane.queue, 0, 0, 0, [rows], default_queue=plane.queue)


def test_a_row_that_is_too_large_does_not_reach_the_queue_manager(plane: Plane) -> None:
    rows = pa.record_batch({"body": pa.array([b"a", bytes(100 << 20)])})
    refused: list[int] = []
    staged = plane.client.stage(
        plane.queue, 0, 0, 0, [rows], plane.queue, collect=lambda _, some: refused.extend(one.row for one in some)
    )
    assert (staged.rows, refused) == (1, [1])
    plane.client.finalize(plane.queue, 0, [staged])


def flight_process(plane: Plane) -> int:
    pid = plane.daemon.pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return fork_server.fork_of(int(child))


def test_streams_of_a_flight_process_that_dies_fail_with_an_error_that_can_be_repeated(own: Plane) -> None:
    rows = pa.record_batch({"body": pa.array([bytes(1000)] * 30_000)})
    own.client.finalize("much", 0, [own.client.stage("much", 0, 0, 0, [rows], default_queue=own.queue)])
    stream = own.client.read(own.queue)
    next(stream)
    first = flight_process(own)
    os.kill(first, signal.SIGSEGV)
    with pytest.raises(ConnectionError):
        list(stream)
    eventually(lambda: _counted(own) == 30_000)
    assert "Arrow Flight process was ended by SIGSEGV" in own.daemon.log


def _counted(plane: Plane) -> int:
    try:
        return plane.client.position(plane.queue).count
    except ConnectionError:
        return -1


def test_a_record_that_cannot_be_decoded_is_left_out_and_reported(own: Plane, caplog: pytest.LogCaptureFixture) -> None:
    """An earlier version may have stored such a record."""
    own.send("ab")
    keys = own.table(columns=["lookup_id"]).column("lookup_id").to_pylist()
    own.daemon.stop()
    with closing(Store.open(own.daemon.directory / "store")) as store:
        (number,) = [number for number, columns in store.recovered.queues.items() if len(columns) == 2]
        bad = keys[-1] + 5
        store.append([Insert(number, bad & LAST_SEQUENCE, bad & ~LAST_SEQUENCE, b"not a message")])
        store.sync()
    own.daemon.start()
    own.client.close()
    own.connect()
    own.send("c")
    damaged: list[int] = []
    assert own.labels(on_damaged=damaged.extend) == ["a", "b", "c"]
    assert damaged == [bad]
    assert bad in own.table(columns=["queue", "lookup_id"])["lookup_id"].to_pylist(), "needs no record, so reads none"
    assert own.labels() == ["a", "b", "c"] and f"{bad:#x}" in caplog.text
    claim = own.client.claim(own.queue, "g", 0)
    assert claim.count == 4
    assert own.labels(group="g", token=claim.token) == ["a", "b", "c"]
    own.client.commit(own.queue, "g", claim.end)
    assert own.client.position(own.queue).count == 0
    assert f"message {bad:#x} can't be decoded" in own.daemon.log
