"""End-to-end tests of the bulk plane (docs/bulk.md)."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

import fork_server
from command_line import add_user, invoke
from daemon import Daemon, eventually, meanwhile
from flight.certificates import make_certificate
from flight.plane import Plane
from openmsmq import AccessDenied, Message, MsmqError, QueueNotFound
from openmsmq.bulk.client import BulkClient
from openmsmq.bulk.message_columns import MESSAGE_SCHEMA
from openmsmq.bulk.row_stream import Refusal

# -- snapshots -------------------------------------------------------------------------------------------------------


def test_a_snapshot_has_every_property_of_express_and_recoverable_messages(plane: Plane) -> None:
    values: dict[str, Any] = {
        "body": b"\x00\xff" * 10, "body_type": 0x1011, "priority": 5, "application_tag": 0xFFFFFFFF,
        "extension": b"ext", "correlation_identifier": bytes(range(20)), "time_to_be_received": 1000,
        "response_queue_format_name": "DIRECT=OS:x\\private$\\r", "acknowledgements_requested": 2,
        "administration_queue_format_name": "DIRECT=OS:x\\private$\\a", "journaling_requested": 1,
    }  # fmt: skip
    for recoverable in (True, False):
        plane.send(["é\u4e2d"], recoverable=recoverable, **values)
    table = plane.table()
    assert table.schema == MESSAGE_SCHEMA
    with plane.manager.open(f".\\private$\\{plane.queue}", "peek") as queue:
        told = queue.peek()
    for row, recoverable in zip(table.to_pylist(), (True, False), strict=True):
        assert row["recoverable"] is recoverable
        for column, value in {
            "label": "é\u4e2d", "body": values["body"], "body_type": 0x1011, "body_size": 20, "priority": 5,
            "application_tag": 0xFFFFFFFF, "extension": b"ext", "time_to_be_received": 1000,
            "time_to_reach_queue": None, "response_queue": "DIRECT=OS:x\\private$\\r",
            "admin_queue": "DIRECT=OS:x\\private$\\a", "acknowledgment": 2, "journaling": 1, "class": 0,
            "transaction_id": None, "sender_id": None, "source": "queue", "authenticated": False,
            "correlation_id": "{03020100-0504-0706-0809-0a0b0c0d0e0f}\\319951120",
        }.items():  # fmt: skip
            assert row[column] == value, column
        assert row["queue"].endswith(f"\\private$\\{plane.queue}")
        assert row["lookup_id"] == 2 << 56 | row["sequence"]
    first = table.to_pylist()[0]
    assert (first["message_id"], first["lookup_id"]) == (told.id, told.lookup_identifier)
    assert first["sent_time"].timestamp() == told.sent_time


def test_abort_counts_equal_those_of_remote_read(own: Plane) -> None:
    own.create("t", transactional=True)
    path = ".\\private$\\t"
    with own.manager.open(path, "send") as queue, own.manager.transaction() as transaction:
        for label in "abc":
            queue.send(Message(label=label), transaction=transaction)
    assert own.table("t").column("abort_count").to_pylist() == [0, 0, 0]
    with own.manager.open(path) as queue:
        for times in (1, 2):
            transaction = own.manager.transaction()
            for _ in range(times):
                queue.receive(0, transaction=transaction)
            transaction.abort()
    with own.manager.open(path, "peek", protocol="remoteread") as queue:
        told = [message.abort_count for message in queue]
    for _ in range(2):
        found = own.table("t", columns=["abort_count", "label"])
        assert found.column("abort_count").to_pylist() == told == [2, 1, 0]
        own.client.claim("t", "g", 0)
        token = own.client.claim("t", "g", 0).token
        assert own.table("t", group="g", token=token).column("abort_count").to_pylist() == told
        own.client.release("t", "g", forget=True)
        own.restart()


def test_columns_and_bodies_are_read_on_demand(plane: Plane) -> None:
    plane.send("ab")
    table = plane.table(columns=["body_size", "label", "body"], include_body=False)
    assert table.to_pylist() == [
        {"body_size": 1, "label": "a", "body": None}, {"body_size": 1, "label": "b", "body": None},
    ]  # fmt: skip


def test_columns_read_without_records_equal_those_of_whole_rows(plane: Plane) -> None:
    plane.send("ab")
    plane.send("c", recoverable=False, priority=6)
    names = ["sequence", "queue", "lookup_id", "source"]
    assert plane.table(columns=names).to_pylist() == plane.table().select(names).to_pylist()


def test_messages_come_in_the_order_of_arrival_whatever_their_priority(plane: Plane) -> None:
    for priority in (1, 7, 4, 0):
        plane.send(str(priority), priority=priority)
    assert plane.labels() == ["1", "7", "4", "0"]
    position = plane.client.position(plane.queue)
    assert (position.count, position.last - position.first) == (4, 3)
    assert position.stable >= position.last


def test_ranges_of_a_plan_hold_everything_once(plane: Plane) -> None:
    plane.send(map(str, range(100)))
    plan = plane.client.plan(plane.queue, partitions=7)
    parts = [plane.labels(start=part.start, end=part.end) for part in plan.ranges]
    assert [label for part in parts for label in part] == [str(number) for number in range(100)]
    assert [part.count for part in plan.ranges] == list(map(len, parts))
    plan = plane.client.plan(plane.queue, partitions=2, max_messages=10)
    assert plane.labels(end=plan.end) == [str(number) for number in range(10)]


def test_journals_and_dead_letters_are_sources(plane: Plane) -> None:
    plane.create("journaled", journal=True)
    plane.send("j", "journaled")
    with plane.manager.open(".\\private$\\journaled", "receive") as queue:
        queue.receive()
    assert plane.labels("journaled", "journal") == ["j"]
    plane.send("x", time_to_be_received=1, journaling_requested=1)
    eventually(lambda: "x" in plane.labels("", "deadletter"))
    assert {("", "deadletter"), ("", "xactdeadletter"), ("", "journal")} <= {
        (info.queue, info.source) for info in plane.client.queues()
    }


def test_outgoing_queues_are_for_administrators(plane: Plane, own: Plane) -> None:
    far = "DIRECT=OS:far\\private$\\away"
    for there in (plane, own):
        with there.manager.open(far, "send") as queue:
            queue.send(Message(label="a"))
    assert own.labels(far, "outgoing") == ["a"]
    with pytest.raises(AccessDenied):
        plane.labels(far, "outgoing")
    with pytest.raises(MsmqError, match="can't be claimed"):
        own.client.claim(far, "g", 0, source="outgoing")


# -- claims ----------------------------------------------------------------------------------------------------------


def test_claimed_messages_are_read_by_the_latest_token_only_and_removed_by_the_commit(plane: Plane) -> None:
    client, queue = plane.client, plane.queue
    plane.send("abcd")
    assert client.cursor(queue, "g") is None
    old = client.claim(queue, "g", 0, max_messages=3)
    new = client.claim(queue, "g", 0)
    assert (new.start, new.end, new.count) == (0, old.end, 3)
    assert plane.labels(group="g", token=new.token) == ["a", "b", "c"]
    assert [part.count for part in client.plan(queue, partitions=3, group="g", token=new.token).ranges] == [1, 1, 1]
    with pytest.raises(MsmqError, match="fenced"):
        plane.labels(group="g", token=old.token)
    assert plane.labels() == ["d"]
    assert client.commit(queue, "g", new.end) == client.commit(queue, "g", new.end) == new.end
    assert client.cursor(queue, "g") == new.end
    assert plane.labels() == ["d"]


def test_a_reader_fenced_during_a_stream_gets_an_error(plane: Plane) -> None:
    count = 60_000
    rows = pa.record_batch({"body": pa.array([bytes(1000)] * count)})
    sink = f"filling {plane.queue}"
    plane.client.finalize(sink, 0, [plane.client.stage(sink, 0, 0, 0, [rows], default_queue=plane.queue)])
    claim = plane.client.claim(plane.queue, "g", 0)
    stream = plane.client.read(plane.queue, group="g", token=claim.token)
    next(stream)
    assert plane.client.claim(plane.queue, "g", 0).count == claim.count == count
    with pytest.raises(MsmqError, match="fenced") as refused:
        list(stream)
    assert refused.value.name == "MQ_ERROR_TRANSACTION_SEQUENCE"


def test_a_released_claim_gives_everything_back(plane: Plane) -> None:
    plane.send("ab")
    plane.client.claim(plane.queue, "g", 0)
    assert plane.client.release(plane.queue, "g") == 2
    assert plane.labels() == ["a", "b"]
    plane.client.release(plane.queue, "g", forget=True)
    assert plane.client.cursor(plane.queue, "g") is None


def test_a_claim_waits_for_the_first_message(plane: Plane) -> None:
    start = plane.client.position(plane.queue).stable
    began = time.monotonic()
    with meanwhile(0.2, lambda: plane.send(["a"])):
        claim = plane.client.claim(plane.queue, "g", start, wait_seconds=20)
    assert claim.count == 1 and time.monotonic() - began < 10
    assert plane.client.claim(plane.queue, "g", claim.end, wait_seconds=0.05).count == 0


def test_a_waiting_claim_whose_client_is_gone_does_not_fence_its_successor(plane: Plane) -> None:
    plane.client.claim(plane.queue, "g", 0)
    waiting = {"queue": plane.queue, "group": "g", "start": 0, "wait_seconds": 30}
    action = flight.Action("claim", json.dumps(waiting).encode())
    with pytest.raises(flight.FlightTimedOutError):
        list(flight.connect(f"grpc://127.0.0.1:{plane.port}").do_action(action, flight.FlightCallOptions(timeout=0.1)))
    token = plane.client.claim(plane.queue, "g", 0).token
    plane.client.claim(plane.queue, "g", 0, token=token, wait_seconds=0.8)  # longer than a turn of the lost one
    plane.send(["a"])
    plane.create(f"{plane.queue}-empty")
    plane.client.claim(f"{plane.queue}-empty", "g", 0, wait_seconds=0.1)  # the lost one looks every 20 ms
    assert plane.client.claim(plane.queue, "g", 0, token=token).count == 1


def test_claims_and_commits_survive_kill_9(own: Plane) -> None:
    own.send(map(str, range(3000)))
    claim = own.client.claim(own.queue, "g", 0, max_messages=2000)
    own.restart()
    assert own.labels(group="g", token=claim.token) == [str(number) for number in range(2000)]
    assert len(own.labels()) == 1000
    doomed = threading.Thread(target=_quietly, args=(own.client.commit, own.queue, "g", claim.end))
    doomed.start()
    own.restart()
    doomed.join()
    assert own.client.commit(own.queue, "g", claim.end) == claim.end
    assert own.labels() == [str(number) for number in range(2000, 3000)]


def _quietly(action: Any, *arguments: Any) -> None:
    with suppress(ConnectionError):
        action(*arguments)


# -- staged sends ----------------------------------------------------------------------------------------------------


def test_stages_become_visible_together_and_once(plane: Plane) -> None:
    first, second, dropped = plane.stage(0, "ab"), plane.stage(0, "cd"), plane.stage(0, "x")
    assert (first.rows, plane.labels()) == (2, [])
    for _ in range(2):
        plane.client.finalize(plane.queue, 0, [first, second])
    assert plane.labels() == ["a", "b", "c", "d"]
    assert plane.client.last_batch(plane.queue) == 0
    with pytest.raises(MsmqError, match=dropped.handle):
        plane.client.finalize(plane.queue, 1, [dropped])


def test_rows_that_were_read_can_be_written_again(plane: Plane) -> None:
    plane.create("copy")
    plane.send(
        "ab", priority=6, extension=b"e", application_tag=7, body_type=8, time_to_be_received=99,
        correlation_identifier=bytes(range(20)), response_queue_format_name="DIRECT=OS:x\\private$\\r",
        journaling_requested=1, acknowledgements_requested=4,
    )  # fmt: skip
    names = [
        "label", "body", "body_type", "priority", "extension", "application_tag", "time_to_be_received",
        "time_to_reach_queue", "correlation_id", "response_queue", "journaling", "acknowledgment", "recoverable",
    ]  # fmt: skip
    rows = plane.table(columns=names)
    staged = plane.client.stage("copying", 0, 0, 0, rows.to_batches(), default_queue="copy")
    plane.client.finalize("copying", 0, [staged])
    assert plane.table("copy", columns=names) == rows


def test_a_written_time_limit_of_0_is_none_as_in_other_sends(plane: Plane) -> None:
    rows = pa.record_batch({"body": [b"x"], "time_to_be_received": [0], "time_to_reach_queue": [0]})
    plane.client.finalize("s", 0, [plane.client.stage("s", 0, 0, 0, [rows], default_queue=plane.queue)])
    plane.send("y", time_to_be_received=0, time_to_reach_queue=0)
    limits = plane.table(columns=["time_to_be_received", "time_to_reach_queue"])
    assert limits.to_pylist() == [{"time_to_be_received": None, "time_to_reach_queue": None}] * 2


def test_rows_go_to_the_queue_they_name(plane: Plane) -> None:
    plane.create("t1", transactional=True)
    rows = pa.record_batch(
        {"body": pa.array([b"1", b"2", b"3"], pa.binary()), "destination_queue": pa.array([None, "t1", "t1"])}
    )
    staged = plane.client.stage("routing", 0, 0, 0, [rows], default_queue=plane.queue)
    plane.client.finalize("routing", 0, [staged])
    assert plane.table().column("body").to_pylist() == [b"1"]
    table = plane.table("t1")
    assert table.column("body").to_pylist() == [b"2", b"3"]
    assert table.column("last_in_transaction").to_pylist() == [False, True]
    assert None not in table.column("transaction_id").to_pylist()


def test_a_stage_larger_than_a_chunk_keeps_its_order(plane: Plane) -> None:
    count = 3000
    labels = [str(number) for number in range(count)]
    rows = pa.record_batch({"body": pa.array([bytes(number) for number in range(count)]), "label": pa.array(labels)})
    plane.client.finalize("large", 0, [plane.client.stage("large", 0, 0, 0, [rows], default_queue=plane.queue)])
    table = plane.table(columns=["label", "body_size"])
    assert table.to_pydict() == {"label": labels, "body_size": list(range(count))}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"body": [b"", b""], "priority": pa.array([3, 8], pa.int32())}, "row 1: priority 8: 0 to 7"),
        ({"body": [b"", None]}, "row 1: body is null"),
        ({"body": [b"", None], "label": ["é" * 250, ""]}, "row 0: a label"),
        ({"body": [b"", b""], "label": ["é" * 249, "😀" * 125]}, "row 1: a label has at most 249"),
        ({"body": [b""], "label": ["x" * 250]}, "row 0: a label has at most 249"),
        ({"body": [b""], "correlation_id": ["x"]}, "row 0: correlation_id"),
        ({"body": [b""], "destination_queue": ["nowhere"]}, "row 0: DIRECT=OS:.*nowhere"),
        ({"label": ["a"]}, "column 'body' is missing"),
        ({"body": [b""], "sequence": [1]}, "'sequence' cannot be written"),
        ({"body": ["text"]}, "'body' is string, expected binary"),
    ],
)
def test_invalid_rows_are_refused_by_number(plane: Plane, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(MsmqError, match=message):
        plane.client.stage("wrong", 0, 0, 0, [pa.record_batch(columns)], default_queue=plane.queue)
    assert plane.client.forget("wrong") == 0


def test_a_row_that_the_queue_manager_refuses_leaves_nothing_of_its_stage(plane: Plane) -> None:
    plane.create("small", quota=1)
    rows = pa.record_batch(
        {
            "body": pa.array([bytes(2000), *[b""] * 1000]),
            "destination_queue": ["small", *[plane.queue] * 1000],
        }
    )
    with pytest.raises(MsmqError, match=r"row 0: queue .*small: its quota") as refused:
        plane.client.stage("refused", 0, 0, 0, [rows])
    assert refused.value.name == "MQ_ERROR_INSUFFICIENT_RESOURCES"
    assert plane.client.stages() == []  # although its end was in transit when it was refused


def test_a_stage_whose_rows_break_off_is_dropped(plane: Plane) -> None:
    def rows() -> Any:
        yield pa.record_batch({"body": pa.array([b""] * 1000, pa.binary())})
        raise ValueError("no more rows")

    for collect in (None, lambda through, refused: None):
        with pytest.raises(ValueError, match="no more rows"):
            plane.client.stage("broken", 0, 0, 0, rows(), plane.queue, collect=collect)
        assert plane.client.stages() == []


def test_refused_rows_are_reported_by_number_while_others_are_sent(plane: Plane) -> None:
    """Rows refused by the encoder, by the queue manager, or both, in batches and chunks of several sizes."""
    plane.create("full", quota=1)
    expected, told, numbers = {}, [], []
    schema = pa.schema({"body": pa.binary(), "label": pa.string(), "destination_queue": pa.string()})
    number = 0

    def some(count: int) -> pa.RecordBatch:
        nonlocal number
        columns: dict[str, list[Any]] = {"body": [], "label": [], "destination_queue": []}
        for _ in range(count):
            kind = number % 97
            columns["label"].append(str(number) if kind != 5 else "x" * 300)
            columns["body"].append(None if kind == 7 else bytes(8000 if kind == 11 else 3))
            columns["destination_queue"].append({11: "full", 13: "nowhere"}.get(kind))
            if kind in (5, 7, 11, 13):
                expected[number] = {
                    5: "MQ_ERROR_LABEL_TOO_LONG", 7: "MQ_ERROR_ILLEGAL_PROPERTY_VALUE",
                    11: "MQ_ERROR_INSUFFICIENT_RESOURCES", 13: "MQ_ERROR_QUEUE_NOT_FOUND",
                }[kind]  # fmt: skip
            else:
                numbers.append(str(number))
            number += 1
        return pa.record_batch(columns, schema)

    def rows() -> Any:
        yield from map(some, (1, 300, 5, 2000, 256, 3, 1100))
        patience = time.monotonic() + 30
        while len(told) < 4 and time.monotonic() < patience:
            yield some(1)  # a writer receives errors while it writes

    def collect(through: int, refused: list[Refusal]) -> None:
        assert all(one.row < through for one in refused)
        assert not told or through >= told[-1][0]
        told.append((through, refused))

    staged = plane.client.stage("telling", 0, 0, 0, rows(), plane.queue, collect=collect)
    plane.client.finalize("telling", 0, [staged])
    found = [(one.row, one.error.name) for _, refused in told for one in refused]
    assert found == list(expected.items())
    assert len(told) > 3 and told[2][0] < number == told[-1][0]  # all but the last were reported during the upload
    assert plane.labels() == numbers and staged.rows == len(numbers)


def test_stages_survive_kill_9_and_those_that_were_not_complete_do_not(own: Plane) -> None:
    staged = own.stage(0, "ab")
    flowing, gone = threading.Event(), threading.Event()

    def endless() -> Any:
        while not gone.is_set():
            yield pa.record_batch({"body": pa.array([bytes(100)] * 2000)})
            flowing.set()

    doomed = threading.Thread(target=_quietly, args=(own.client.stage, "other", 0, 0, 0, endless(), own.queue))
    doomed.start()
    flowing.wait()
    own.daemon.kill()
    gone.set()
    doomed.join()
    own.restart()
    assert own.client.forget("other") == 0
    own.client.finalize(own.queue, 0, [staged])
    own.restart()
    own.client.finalize(own.queue, 0, [staged])
    assert own.labels() == ["a", "b"]
    position = own.client.position(own.queue)
    assert position.stable >= position.last


# -- the server ------------------------------------------------------------------------------------------------------


def test_users_and_access_checks_are_those_of_the_queue_manager(tmp_path: Path) -> None:
    for name in ("alice", "bob"):
        add_user(tmp_path / "data", name, f"{name}'s secret")
    options = ("--flight", "--flight-port", "0", "--no-allow-anonymous")
    with Daemon(tmp_path / "data", *options) as daemon:
        port = daemon.ready["endpoints"]["flight"]["port"]
        with daemon.connect(user="alice", password="alice's secret") as manager:
            manager.create_queue(".\\private$\\hers")
        with BulkClient(port=port, user="alice", password="alice's secret") as alice:
            rows = pa.record_batch({"body": pa.array([b"x"])})
            alice.finalize("s", 0, [alice.stage("s", 0, 0, 0, [rows], default_queue="hers")])
            (batch,) = alice.read("hers")
            assert batch.column("sender_id_type").to_pylist() == [1]
            assert batch.column("sender_id").to_pylist()[0].startswith(b"\x01")
        for user, password in ((None, ""), ("alice", "wrong"), ("carol", "")):
            with BulkClient(port=port, user=user, password=password) as refused, pytest.raises(AccessDenied):
                refused.queues()
        with BulkClient(port=port, user="bob", password="bob's secret") as bob:
            with pytest.raises(AccessDenied):
                bob.finalize("s", 1, [])


def test_an_unknown_queue_action_or_column_is_named(plane: Plane) -> None:
    with pytest.raises(QueueNotFound, match="nowhere"):
        plane.labels("nowhere")
    with pytest.raises(MsmqError, match=r"color.*there are queue"):
        plane.table(columns=["color"])
    with pytest.raises(MsmqError, match="source 'elsewhere'"):
        plane.labels(source="elsewhere")
    raw = flight.connect(f"grpc://127.0.0.1:{plane.port}")
    with pytest.raises(flight.FlightServerError, match="no action 'dance'"):
        list(raw.do_action(flight.Action("dance", b"")))
    with pytest.raises(flight.FlightServerError, match="no argument 'color'"):
        list(raw.do_action(flight.Action("position", b'{"color": 1}')))


def test_a_stream_continues_when_messages_are_taken_meanwhile(plane: Plane) -> None:
    count = 60_000
    rows = pa.record_batch({"body": pa.array([bytes(1000)] * count)})
    plane.client.finalize("much", 0, [plane.client.stage("much", 0, 0, 0, [rows], default_queue=plane.queue)])
    stream = plane.client.read(plane.queue)
    first = next(stream)
    with plane.manager.open(f".\\private$\\{plane.queue}", "receive") as queue:
        queue.purge()
    rest = sum(batch.num_rows for batch in stream)
    assert first.num_rows + rest < count


def test_a_stream_finds_messages_that_compaction_moves(own: Plane) -> None:
    """Every fourth message stays; compaction of a log of over 100 MB moves it during the read."""
    count = 90_000
    labels = [str(number) for number in range(count)]
    rows = pa.record_batch({"body": pa.array([bytes(1200)] * count), "label": pa.array(labels)})
    own.create("rest")
    names = pa.array(["rest" if number % 4 == 0 else own.queue for number in range(count)])
    rows = rows.append_column("destination_queue", names)
    own.client.finalize("much", 0, [own.client.stage("much", 0, 0, 0, [rows])])
    expected = labels[::4]
    assert own.labels("rest") == expected
    stream = own.client.read("rest", end=own.client.position("rest").last)
    first = next(stream)
    with own.manager.open(f".\\private$\\{own.queue}", "receive") as queue:
        queue.purge()
    store = own.daemon.directory / "store"
    before = set(store.iterdir())
    eventually(lambda: not before <= set(store.iterdir()))
    found = [label for batch in (first, *stream) for label in batch.column("label").to_pylist()]
    assert found == expected == own.labels("rest")


def test_tls_is_used_if_a_certificate_is_configured(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    options = ("--flight", "--flight-port", "0", "--flight-certificate", str(certificate), "--flight-key", str(key))
    with Daemon(tmp_path / "data", *options) as daemon:
        port = daemon.ready["endpoints"]["flight"]["port"]
        with BulkClient(port=port, tls_root=certificate) as client:
            assert client.queues()
        with BulkClient(port=port) as plain, pytest.raises(ConnectionError):
            plain.queues()


def flight_process(daemon: Daemon) -> int:
    (child,) = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    return fork_server.fork_of(int(child))


def test_a_server_may_take_a_while_to_answer_a_new_connection(own: Plane) -> None:
    process = flight_process(own.daemon)
    os.kill(process, signal.SIGSTOP)
    going_on = threading.Timer(1, os.kill, (process, signal.SIGCONT))
    going_on.start()
    try:
        with BulkClient(port=own.daemon.ready["endpoints"]["flight"]["port"]) as client:
            assert client.queues()
    finally:
        going_on.join()


def test_a_client_does_not_wait_forever_for_a_host_that_vanished(plane: Plane) -> None:
    """gRPC sets the socket's limit for unacknowledged data only with a keepalive time."""
    plane.client.queues()
    limits = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(descriptor))) as connection:
            if connection.getpeername()[1] == plane.port:
                limits.add(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    assert 20_000 in limits  # milliseconds


def test_a_flight_process_that_dies_is_started_again(own: Plane) -> None:
    own.send("a")
    assert own.labels() == ["a"]
    os.kill(flight_process(own.daemon), signal.SIGKILL)

    def works() -> bool:
        try:
            return own.labels() == ["a"]
        except ConnectionError:
            return False

    assert eventually(works)


def test_the_flight_process_ends_with_the_daemon(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", "--flight", "--flight-port", "0") as daemon:
        child = flight_process(daemon)
        daemon.kill()
    eventually(lambda: not Path(f"/proc/{child}").exists())


def test_plain_text_is_for_loopback_only(tmp_path: Path) -> None:
    done = invoke("serve", "--data-dir", str(tmp_path), "--flight", "--listen", "0.0.0.0")
    assert done.code == 2 and "flight_certificate" in done.stderr
