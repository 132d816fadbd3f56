"""Dead letters are counted like by the client, and return to their destinations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon import Daemon, eventually
from openmsmq.client.dead_letters import DEAD_LETTER_QUEUES, Forwarding
from openmsmq.spark.jobs import PipelineError, Server, dead_letters, return_to_source


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose dead-letter queues no other test uses."""
    with Daemon(tmp_path / "data", "--flight", "--flight-port", "0") as daemon:
        yield daemon


def dead(qm: Any) -> list[Any]:
    found = []
    for name in DEAD_LETTER_QUEUES:
        with qm.open(name, "peek") as opened:
            found += list(opened)
    return found


def kill_some(qm: Any) -> None:
    """Make six dead letters: three expired, one expired in a transactional queue, two rejected."""
    for name, transactional in (("late", False), ("ledger", True), ("rejecting", True)):
        qm.create_queue(f".\\private$\\{name}", transactional=transactional)
    with qm.open(".\\private$\\late", "send") as sender:
        for number in range(3):
            sender.send("late", label=f"late {number}", time_to_be_received=1, journaling_requested=1)
    with qm.open(".\\private$\\ledger", "send") as sender, qm.transaction() as transaction:
        sender.send("x", label="tx", time_to_be_received=1, journaling_requested=1, transaction=transaction)
    path = ".\\private$\\rejecting"
    with qm.open(path, "send") as sender, qm.transaction() as transaction:
        for number in range(2):
            properties = {"label": "two", "journaling_requested": 1, "time_to_be_received": 1000}
            sender.send(f"rejected {number}", transaction=transaction, **properties)
    with qm.open(path, protocol="remoteread") as remote, qm.open(path, protocol="qmcomm") as receiver:
        for message in list(remote):
            with qm.transaction() as transaction:
                receiver.receive(0, transaction=transaction)
                remote.reject(message.lookup_identifier)
    eventually(lambda: len(dead(qm)) == 6)


@pytest.mark.parametrize("protocol", ["auto", pytest.param("remoteread", marks=pytest.mark.slow)])
def test_dead_letters_are_counted_and_returned(
    spark: Any, own: Daemon, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(port=own.port, flight_port=own.ready["endpoints"]["flight"]["port"], protocol=protocol)
    with own.connect() as qm:
        assert dead_letters(spark, server).messages == 0
        kill_some(qm)
        letters = dead(qm)
        report = dead_letters(spark, server)
        assert (report.messages, report.bytes) == (6, sum(len(m.body) for m in letters))
        expected = {
            "class": {"NACK_RECEIVE_TIMEOUT": 4, "NACK_RECEIVE_REJECTED": 2},
            "destination": Counter(m.destination_queue_format_name for m in letters),
            "label": Counter(m.label for m in letters),
            "sender": {"(anonymous)": 6},
            "age": {"under an hour": 6},
        }
        for aspect, counts in expected.items():
            assert {count.value: count.messages for count in report.by[aspect]} == dict(counts), aspect
        assert dead_letters(spark, server, "label = 'two'").messages == 2

        chosen = return_to_source(spark, server, "label = 'two' OR label = 'tx'", dry_run=True)
        assert Counter(letter.label for letter in chosen) == {"two": 2, "tx": 1}
        assert len(dead(qm)) == 6
        qm.delete_queue(".\\private$\\ledger")
        done = return_to_source(spark, server, "label = 'two' OR label = 'tx'")
        assert {(letter.label, letter.error is None) for letter in done} == {("two", True), ("tx", False)}
        assert sorted(m.label for m in dead(qm)) == ["late 0", "late 1", "late 2", "tx"]
        with qm.open(".\\private$\\rejecting", "peek") as opened:
            returned = list(opened)
        assert sorted(m.decode() for m in returned) == ["rejected 0", "rejected 1"]
        assert {m.time_to_be_received for m in returned} == {1000}  # as they were sent, not what was left

        send_back = Forwarding.send_back

        def fail_at(label: str, error: Exception) -> None:
            def send(self: Forwarding, cursor: Any, message: Any) -> Any:
                if message.label == label:
                    raise error
                return send_back(self, cursor, message)

            monkeypatch.setattr(Forwarding, "send_back", send)

        fail_at("late 0", ValueError("this one is odd"))
        done = return_to_source(spark, server, "label in ('late 0', 'late 1')")
        assert {letter.label: letter.error for letter in done} == {"late 0": "this one is odd", "late 1": None}
        fail_at("late 2", ConnectionError("the line is cut"))
        with pytest.raises(PipelineError, match=r"after [0-9] of [0-9] dead letters: the line is cut; run it again"):
            return_to_source(spark, server, "label like 'late%'")


def test_a_wrong_selection_is_one_line(spark: Any, server: Server, filled: Callable[..., str]) -> None:
    with pytest.raises(PipelineError, match="where 'color = 1'") as raised:
        dead_letters(spark, server, "color = 1")
    assert "\n" not in str(raised.value)
