"""The operator's view of queues that move: alarms, metrics, and continuous status output."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from console.browser import ADMINISTRATOR, PASSWORD, ask, port_of
from daemon import eventually
from interop.moving import Move, connect, moving

SECONDS = ("--alarm-relay-seconds", "1", "--alarm-peer-seconds", "1")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Move]:
    with moving(tmp_path_factory.mktemp("alarms"), 96, *SECONDS) as move:
        yield move


def create(move: Move, name: str, count: int, size: int = 10, **properties: object) -> None:
    for daemon in (move.old, move.new):
        with connect(daemon) as manager:
            manager.create_queue(f".\\private$\\{name}", **properties)
    with connect(move.old) as manager, manager.open(name, "send") as queue:
        for _ in range(count):
            if properties.get("transactional"):
                with manager.transaction() as transaction:
                    queue.send(b"x" * size, transaction=transaction)
            else:
                queue.send(b"x" * size, recoverable=True)


def raised(move: Move) -> set[tuple[str, str]]:
    found = [json.loads(line) for line in move.done("alarms", "--json").splitlines()]
    return {(each["name"], each["queue"]) for each in found}


def samples(move: Move, path: str) -> dict[str, float]:
    login = base64.b64encode(f"{ADMINISTRATOR}:{PASSWORD}".encode()).decode()
    text = ask(move.new, "GET", path, None, {"Authorization": f"Basic {login}"}).text
    return {
        f"{sample.name} {' '.join(sample.labels.values())}".strip(): sample.value
        for family in text_string_to_metric_families(text) for sample in family.samples
    }  # fmt: skip


def test_refused_messages_raise_alarms_and_the_metrics_name_them(machines: Move) -> None:
    move = machines
    create(move, "full", 3, 20_000, transactional=True)
    with connect(move.new) as manager:
        manager.set_properties(r".\private$\full", quota=30)
    move.done("adopt", "shadow", "full", "--from", "old")
    queue = r".\private$\full"
    eventually(lambda: {("relay", queue), ("refused", queue)} <= raised(move))
    found = samples(move, "/metrics")
    assert found["openmsmq_relays shadow"] == 1
    assert found["openmsmq_relay_messages_moved_total"] == 1
    assert (found["openmsmq_relay_messages_left"], found["openmsmq_relay_messages_refused"]) == (2, 1)
    assert found["openmsmq_alarm_active refused"] == 1
    with connect(move.new) as manager:
        manager.set_properties(queue, quota=1000)
    eventually(lambda: not {("relay", queue), ("refused", queue)} & raised(move))
    move.when("full", moved=3, empty_since=True)
    own = samples(move, "/metrics/queues?family=relays&queue=full")
    assert own == {
        f"openmsmq_queue_relay_{name} {queue} old shadow": value
        for name, value in (
            ("messages_moved_total", 3), ("messages_left", 0), ("messages_refused", 0), ("lag_seconds", 0),
            ("working", 1),
        )
    }  # fmt: skip


def test_an_unreachable_machine_raises_an_alarm_until_it_is_reachable(machines: Move) -> None:
    move = machines
    for name in ("one", "two"):
        create(move, name, 0)
        move.done("adopt", "shadow", name, "--from", "old")
        move.when(name, empty_since=True)
    move.old.kill()
    eventually(lambda: ("peer", "old") in raised(move))
    assert "The machine old, whose queues are fetched, has not answered for" in move.done("alarms")
    assert "openmsmq connect-test old" in move.done("alarms")
    move.old.start()
    eventually(lambda: not [each for each in raised(move) if each[0] == "peer"], 200)


def test_the_status_is_updated_and_a_pipe_gets_a_line_for_each_change(machines: Move) -> None:
    move, queue = machines, r".\private$\watched"
    create(move, "watched", 2)
    move.done("adopt", "shadow", "watched", "--from", "old")
    move.when("watched", moved=2, waiting=0, unconfirmed=0, empty_since=True)
    with move.started("adopt", "status", "watched", "--watch", "--interval", "0.2") as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert f"{queue}: shadow, nothing left since " in first
        assert "2 moved" in first and "0 left" in first and "0 s behind" in first and "0 s to go" in first
        move.done("adopt", "switch", "watched")
        assert f"{queue}: switched" in process.stdout.readline()
        move.when("watched", empty_since=True)
        move.done("adopt", "done", "watched")
        lines = iter(process.stdout.readline, "")
        assert any(f"{queue}: done: 2 moved, " in line for line in lines)
        move.done("adopt", "forget", "watched")
        assert any(line.rstrip().endswith(f"{queue}: forgotten") for line in lines)
        process.send_signal(signal.SIGINT)
        assert (process.wait(60), process.stdout.read()) == (130, "")


def test_a_status_of_a_queue_without_relay_ends_at_once(machines: Move) -> None:
    assert machines.run("adopt", "status", "nowhere", "--watch").code == 3


def test_the_status_continues_while_the_daemon_is_down(machines: Move) -> None:
    move = machines
    create(move, "restarted", 1)
    move.done("adopt", "shadow", "restarted", "--from", "old")
    move.when("restarted", moved=1, waiting=0, unconfirmed=0, empty_since=True)
    port = ("--web-port", str(port_of(move.new)))
    move.new.stop()
    move.new.options = (*move.new.options, *port)
    move.new.start()
    move.when("restarted", empty_since=True, waiting=0)
    with move.started("adopt", "status", "restarted", "--watch", "--interval", "0.2", "--json") as process:
        assert process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline())["moved"] == 1
        move.new.kill()
        assert "retrying every 0.2 s" in process.stderr.readline()
        move.new.start()
        with connect(move.old) as manager, manager.open("restarted", "send") as queue:
            queue.send("more", recoverable=True)
        assert any(json.loads(line)["moved"] == 2 for line in iter(process.stdout.readline, ""))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
