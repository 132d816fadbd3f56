"""Arrow streams over TCP: equal to Arrow Flight; unknown, slow and vanished peers."""

from __future__ import annotations

import json
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from command_line import add_user
from daemon import Daemon, eventually
from flight.certificates import make_certificate
from flight.plane import Plane
from openmsmq.bulk.client import BulkClient
from openmsmq.flight import arrow_listener
from openmsmq.flight.arrow_listener import ArrowListener
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.shares import Shares


def ask(port: int, request: Any, host: str = "127.0.0.1") -> tuple[dict[str, Any], pa.Table | None, dict[str, Any]]:
    """Send a request; return the first line of the reply, the rows, and the last line."""
    line = request if isinstance(request, bytes) else json.dumps(request).encode() + b"\n"
    with socket.create_connection((host, port), 30) as connection, connection.makefile("rb") as file:
        connection.sendall(line)
        first = json.loads(file.readline())
        if first:
            assert not file.read()
            return first, None, first
        rows = pa.ipc.open_stream(pa.PythonFile(file, "r")).read_all()
        return first, rows, json.loads(file.readline())


def arrow_port(plane: Plane) -> int:
    port = plane.client.arrow_port()
    assert port is not None
    return port


def test_a_stream_has_the_same_rows_as_flight(plane: Plane) -> None:
    plane.send("abc")
    plane.send("d", recoverable=False)
    for columns in (None, ["label", "sequence"], ["sequence"]):
        _, rows, end = ask(arrow_port(plane), {"read": {"queue": plane.queue, "columns": columns}})
        expected = plane.table(columns=columns)
        assert rows == expected and rows.num_rows == 4 and end == {"messages": 4, "damaged": []}
    _, rows, end = ask(arrow_port(plane), {"read": {"queue": plane.queue, "end": 0}})
    assert rows is not None and rows.num_rows == 0 and end["messages"] == 0


def test_messages_are_selected_by_their_time_of_arrival(plane: Plane) -> None:
    plane.send("ab")
    time = int(plane.table(columns=["arrival_time"]).column(0)[0].as_py().timestamp())
    for limits, expected in (
        ({"arrived_from": time - 60}, 2),
        ({"arrived_from": time + 60}, 0),
        ({"arrived_until": time - 60}, 0),
        ({"arrived_from": time - 60, "arrived_until": time + 60}, 2),
    ):
        _, rows, end = ask(arrow_port(plane), {"read": {"queue": plane.queue, "columns": ["sequence"], **limits}})
        assert rows is not None and rows.num_rows == expected and end["messages"] == 2, limits


@pytest.mark.parametrize(
    ("request_", "hresult", "said"),
    [
        (b"hello\n", HResult.MQ_ERROR_INVALID_PARAMETER, "not JSON"),
        (b"[]\n", HResult.MQ_ERROR_INVALID_PARAMETER, "a JSON object"),
        ({}, HResult.MQ_ERROR_INVALID_PARAMETER, "allowed: read or write"),
        ({"read": []}, HResult.MQ_ERROR_INVALID_PARAMETER, "allowed: read"),
        ({"read": {"queue": "q"}, "op": 1}, HResult.MQ_ERROR_INVALID_PARAMETER, "a request of ['op', 'read']"),
        ({"read": {"queue": "q"}, "write": {}}, HResult.MQ_ERROR_INVALID_PARAMETER, "a request of ['read', 'write']"),
        ({"write": {"sink": "s"}}, HResult.MQ_ERROR_INVALID_PARAMETER, "batch"),
        ({"read": {"queue": "q", "color": 1}}, HResult.MQ_ERROR_INVALID_PARAMETER, "no argument 'color'"),
        ({"read": {"queue": "q", "start": -1}}, HResult.MQ_ERROR_INVALID_PARAMETER, "start is -1"),
        ({"read": {"queue": "q", "columns": ["x"]}}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, "columns 'x'"),
        ({"read": {"queue": "nowhere"}}, HResult.MQ_ERROR_QUEUE_NOT_FOUND, "nowhere"),
        ({"read": {"queue": "q"}, "user": 7}, HResult.MQ_ERROR_INVALID_PARAMETER, "user is 7"),
        ({"read": {"queue": "q"}, "user": "nobody"}, HResult.MQ_ERROR_ACCESS_DENIED, "nobody"),
        (b'{"read": {}}\nmore', HResult.MQ_ERROR_INVALID_PARAMETER, "bytes behind the request"),
    ],
)
def test_a_wrong_request_is_answered_with_the_reason(plane: Plane, request_: Any, hresult: int, said: str) -> None:
    error, rows, _ = ask(arrow_port(plane), request_)
    assert rows is None and error["hresult"] == hresult and said in error["detail"], error
    assert "Traceback" not in plane.daemon.log


def test_users_and_rights_are_those_of_the_queue_manager_and_tls_needs_a_certificate(
    tmp_path: Path,
) -> None:
    certificate, key = make_certificate(tmp_path)
    for name in ("alice", "bob"):
        add_user(tmp_path / "data", name, f"{name}'s secret")
    options = ("--flight", "--flight-port", "0", "--flight-certificate", str(certificate), "--flight-key", str(key))
    with Daemon(tmp_path / "data", *options, "--no-allow-anonymous", "--new-queue-access", "owner") as daemon:
        with daemon.connect(user="alice", password="alice's secret") as manager:
            manager.create_queue(".\\private$\\hers")
        given = {"user": "alice", "password": "alice's secret"}
        with BulkClient(port=daemon.ready["endpoints"]["flight"]["port"], tls_root=certificate, **given) as client:
            port = client.arrow_port()
        assert port is not None
        context = ssl.create_default_context(cafile=certificate)

        def first(login: dict[str, str]) -> dict[str, Any]:
            with context.wrap_socket(
                socket.create_connection(("127.0.0.1", port)), server_hostname="localhost"
            ) as peer:
                peer.sendall(json.dumps({"read": {"queue": "hers"}, **login}).encode() + b"\n")
                line: dict[str, Any] = json.loads(peer.makefile("rb").readline())
                return line

        assert first(given) == {}
        for login in ({}, given | {"password": "wrong"}, {"user": "bob", "password": "bob's secret"}):
            assert first(login)["hresult"] == HResult.MQ_ERROR_ACCESS_DENIED, login
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(b'{"read": {"queue": "hers"}}\n')
            eventually(lambda: is_closed(plain))


def test_a_text_column_exists_if_the_ticket_requests_decoding(plane: Plane) -> None:
    plane.send(["x"], body="Grüße".encode())
    plane.send(["y"], body=b"\xff\xff")
    request = {"queue": plane.queue, "decode": "text"}
    _, rows, end = ask(arrow_port(plane), {"read": {**request, "columns": ["text", "label"]}})
    assert rows is not None and rows.to_pydict() == {"text": ["Grüße", None], "label": ["x", "y"]} and end["odd"] == 1
    _, rows, _ = ask(arrow_port(plane), {"read": request})
    assert rows is not None and rows.column_names[-1] == "text" and rows.num_columns == plane.table().num_columns + 1
    _, rows, end = ask(arrow_port(plane), {"read": {**request, "columns": ["sequence"]}})
    assert rows is not None and rows.num_rows == 2 and "odd" not in end
    for wrong, said in (({"decode": "xml"}, "text or json"), ({"columns": ["x"]}, "'x': there are")):
        error, _, _ = ask(arrow_port(plane), {"read": {**request, **wrong}})
        assert said in error["detail"]


# -- uploads ------------------------------------------------------------------------------------------------------

ROWS = pa.table({"body": pa.array([b"1", b"22", b"333"]), "label": pa.array(list("abc"))})


def stage_of(plane: Plane, sink: str = "sink", **more: Any) -> dict[str, Any]:
    return {"sink": sink, "batch": 0, "partition": 0, "attempt": "0", "default_queue": plane.queue, **more}


def upload(port: int, request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Send a request and then bytes. Returns the last line of the reply."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection, connection.makefile("rb") as file:
        connection.sendall(json.dumps({"write": request}).encode() + b"\n")
        first: dict[str, Any] = json.loads(file.readline())
        if first:
            return first
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        last: dict[str, Any] = json.loads(file.readline())
        assert not file.read()
        return last


def as_stream(rows: pa.Table, most: int = 2) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, rows.schema) as stream:
        stream.write_table(rows, max_chunksize=most)
    data: bytes = buffer.getvalue().to_pybytes()
    return data


def test_an_uploaded_stage_is_finalized_like_one_of_flight(plane: Plane) -> None:
    port = plane.client.arrow_port("write")
    assert port is not None
    first = upload(port, stage_of(plane), as_stream(ROWS))
    second = upload(port, stage_of(plane, partition=1), as_stream(ROWS.slice(2)))
    empty = upload(port, stage_of(plane, partition=2), as_stream(ROWS.slice(3)))
    assert [done["rows"] for done in (first, second, empty)] == [3, 1, 0] and not plane.labels()
    plane.client.finalize("sink", 0, [first["handle"], second["handle"], empty["handle"]])
    assert plane.labels() == list("abcc")
    assert plane.table(columns=["body"]).column(0).to_pylist() == [b"1", b"22", b"333", b"333"]


@pytest.mark.parametrize(
    ("data", "hresult", "said"),
    [
        (as_stream(ROWS)[:-8], HResult.MQ_ERROR_OPERATION_CANCELLED, "upload incomplete"),  # no end-of-stream marker
        (as_stream(ROWS)[:-100], HResult.MQ_ERROR_INVALID_PARAMETER, "not valid Arrow data"),
        (b"", HResult.MQ_ERROR_INVALID_PARAMETER, "not valid Arrow data"),
        (b"x" * 5_000_000, HResult.MQ_ERROR_INVALID_PARAMETER, "allowed: at most"),
        (as_stream(pa.table({"label": ["a"]})), HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, "'body' is missing"),
        (as_stream(pa.table({"body": ["a"]})), HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, "is string, expected binary"),
        (
            as_stream(ROWS.append_column("priority", pa.array([1, 9, 1], pa.int32()))) + bytes(5_000_000),
            HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, "row 1: priority 9",
        ),
    ],
)  # fmt: skip
def test_a_refused_upload_leaves_nothing_and_says_why(plane: Plane, data: bytes, hresult: int, said: str) -> None:
    error = upload(arrow_port(plane), stage_of(plane), data)
    assert error["hresult"] == hresult and said in error["detail"], error
    assert not plane.client.stages() and "Traceback" not in plane.daemon.log


def test_a_writer_that_dies_leaves_no_stage(plane: Plane) -> None:
    with socket.create_connection(("127.0.0.1", arrow_port(plane))) as dying:
        dying.sendall(json.dumps({"write": stage_of(plane)}).encode() + b"\n")
        dying.recv(100)
        dying.sendall(as_stream(ROWS)[:-8])
        eventually(plane.client.stages)
    eventually(lambda: not plane.client.stages())
    assert upload(arrow_port(plane), stage_of(plane, collect=True), b"")["detail"].startswith("collect is true")


def test_a_writer_that_sends_byte_by_byte_is_disconnected_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_listener, "_STALLED_SECONDS", 0.3)
    slow, ours = socket.socketpair()
    with slow, ours, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(arrow_listener._Incoming(ours).read, 1_000_000)

        def sends_one_more() -> bool:
            slow.send(b"x")
            return reading.done()

        eventually(sends_one_more)
        with pytest.raises(TimeoutError):
            reading.result()


# -- peers without a request --------------------------------------------------------------------------------------


class NoDaemon:
    """A link that must not be used: the daemon is not called before a peer has sent its request."""

    def call(self, operation: str, **values: Any) -> Any:
        raise AssertionError(operation)


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> ArrowListener:
    monkeypatch.setattr(arrow_listener, "MOST_WAITING", 3)
    monkeypatch.setattr(arrow_listener, "WAITING_OF_HOST", 3)
    monkeypatch.setattr(arrow_listener, "REQUEST_SECONDS", 1.0)
    listening = ArrowListener("127.0.0.1", 0, NoDaemon(), {})  # type: ignore[arg-type]
    listening.start()
    return listening


def is_closed(peer: socket.socket) -> bool:
    peer.settimeout(0.01)
    try:
        return not peer.recv(1)
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_the_oldest_idle_peer_is_disconnected_above_the_limit(listener: ArrowListener) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection(("127.0.0.1", listener.port))) for _ in range(5)]
        eventually(lambda: is_closed(peers[0]) and is_closed(peers[1]))
        assert not any(is_closed(peer) for peer in peers[2:])


def test_a_host_displaces_its_own_idle_peers_first(listener: ArrowListener) -> None:
    listener._waiting = Shares(4, 2)
    with ExitStack() as stack:
        other = stack.enter_context(
            socket.create_connection(("127.0.0.1", listener.port), source_address=("127.0.0.9", 0))
        )
        peers = [stack.enter_context(socket.create_connection(("127.0.0.1", listener.port))) for _ in range(3)]
        eventually(lambda: is_closed(peers[0]))
        assert not any(is_closed(peer) for peer in (other, *peers[1:]))


def test_a_peer_that_sends_no_request_in_time_is_disconnected(listener: ArrowListener) -> None:
    with socket.create_connection(("127.0.0.1", listener.port)) as silent:
        silent.sendall(b'{"read"')
        assert not is_closed(silent)
        eventually(lambda: is_closed(silent))


def test_a_request_without_an_end_is_disconnected(listener: ArrowListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_listener, "REQUEST_SECONDS", 600.0)
    with socket.create_connection(("127.0.0.1", listener.port)) as endless:
        for _ in range(7):  # more than 64 KiB
            endless.sendall(b"x" * 10_000)
        eventually(lambda: is_closed(endless))


def test_reads_above_the_limit_are_told_to_retry(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_listener, "MOST_READS", 3)
    monkeypatch.setattr(arrow_listener, "READS_OF_HOST", 2)
    listening = ArrowListener("127.0.0.1", 0, NoDaemon(), {})  # type: ignore[arg-type]
    listening.start()
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(listening._place("read", "127.0.0.1"))
        error, _, _ = ask(listening.port, {"read": {"queue": "q"}})
        assert error["hresult"] == HResult.MQ_ERROR_INSUFFICIENT_RESOURCES
        assert error["detail"].startswith("2 Arrow streams (read) of host 127.0.0.1 are being served, try again")
        assert error["retry"] is True
        stack.enter_context(listening._place("read", "127.0.0.2"))  # another host has room
        with pytest.raises(MsmqError, match=r": 3 Arrow streams \(read\) are"), listening._place("read", "127.0.0.3"):
            pass
        stack.enter_context(listening._place("write", "127.0.0.1"))
    for _ in range(2):  # an upload slot is free again after an error
        with pytest.raises(AssertionError):  # NoDaemon was called
            listening._answer(arrow_listener._Peer(socket.socket(), "", 0, bytearray(b'{"write": {}}\n')), None)  # type: ignore[arg-type]


def test_a_stalled_or_vanished_reader_blocks_nobody(plane: Plane) -> None:
    count = 20_000
    rows = pa.record_batch({"body": pa.array([bytes(1000)] * count)})
    plane.client.finalize(plane.queue, 0, [plane.client.stage(plane.queue, 0, 0, 0, [rows], default_queue=plane.queue)])
    request = json.dumps({"read": {"queue": plane.queue}}).encode() + b"\n"
    with ExitStack() as stack:
        port = arrow_port(plane)
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(20)]
        for peer in slow:
            peer.sendall(request)
        with socket.create_connection(("127.0.0.1", port)) as dying:
            dying.sendall(request)
            dying.recv(1000)
        _, found, _ = ask(port, {"read": {"queue": plane.queue}})
        assert found is not None and found.num_rows == count
    assert "Traceback" not in plane.daemon.log
