"""Real queue managers, some of them killed with SIGKILL while messages are in transit between them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import openmsmq
from daemon import Daemon, eventually, free_port
from openmsmq.model.constants import Journal
from seeds import chance


class QueueManagers:
    """Queue managers on separate addresses, all at one port."""

    def __init__(
        self,
        directory: Path,
        hosts: list[str],
        *options: str,
        port: int = 0,
        prepare: Callable[[int], Callable[[], None]] | None = None,
    ) -> None:
        """Start the queue managers. `prepare` returns for each the function that its process calls first. Without
        `port`, the port is one that is free on all hosts."""
        self.hosts = hosts
        shared = str(port or free_port(*hosts))
        self.daemons = [
            Daemon(
                directory / f"node{index}", "--listen", host, "--computer-name", f"NODE{index}",
                "--message-port", shared, "--peer-message-port", shared, *options,
                prepare=prepare(index) if prepare is not None else None,
            )
            for index, host in enumerate(self.hosts)
        ]  # fmt: skip
        try:
            for index, daemon in enumerate(self.daemons):
                daemon.start()
                with self.connect(index) as qm:
                    qm.create_queue(".\\private$\\tx", transactional=True)
                    qm.create_queue(".\\private$\\plain")
        except BaseException:
            self.stop()
            raise

    def connect(self, index: int) -> openmsmq.QueueManager:
        return openmsmq.connect(self.hosts[index], self.daemons[index].port)

    def name(self, index: int, queue: str) -> str:
        return f"DIRECT=TCP:{self.hosts[index]}\\private$\\{queue}"

    def restart(self, index: int) -> None:
        self.daemons[index].kill()
        time.sleep(0.2)
        self.daemons[index].start()

    def is_quiet(self) -> bool:
        for index in range(len(self.hosts)):
            with self.connect(index) as qm:
                if any(row["message_count"] for row in qm.outgoing()):
                    return False
        return True

    def stop(self) -> None:
        for daemon in self.daemons:
            daemon.kill() if daemon.alive else None


def on_loopback(count: int, net: int) -> list[str]:
    return [f"127.0.{net}.{index + 1}" for index in range(count)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[QueueManagers]:
    crowd = QueueManagers(tmp_path, on_loopback(2, 73))
    yield crowd
    crowd.stop()


def received(crowd: QueueManagers, index: int, queue: str) -> list[str]:
    with crowd.connect(index) as qm, qm.open(f".\\private$\\{queue}", "receive") as opened:
        count = qm.management(f".\\private$\\{queue}")["message_count"]
        return [opened.receive(timeout=5).label for _ in range(count)]


def send(
    crowd: QueueManagers, source: int, target: int, count: int, over: threading.Event, pause: float = 0
) -> list[str]:
    """Send transactions of three messages until stopped or done, `pause` seconds apart; returns the confirmed ones
    in order."""
    told: list[str] = []
    number = 0
    while number < count and not over.is_set():
        try:
            with crowd.connect(source) as qm, qm.open(crowd.name(target, "tx"), "send") as queue:
                while number < count and not over.is_set():
                    labels = [f"{source}-{number}.{k}" for k in range(3)]
                    number += 1  # a transaction with an unknown outcome is not repeated
                    with qm.transaction() as transaction:
                        for label in labels:
                            queue.send("x", label=label, transaction=transaction)
                    told += labels
                    time.sleep(pause)
        except (OSError, openmsmq.MsmqError):
            time.sleep(0.05)
    return told


def check(sent: list[str], arrived: list[str]) -> None:
    assert len(set(arrived)) == len(arrived), "more than once"
    assert set(sent) <= set(arrived), f"lost: {sorted(set(sent) - set(arrived))[:5]}"
    by_source: dict[str, list[tuple[int, int]]] = {}
    for label in arrived:
        source, _, rest = label.partition("-")
        number, _, part = rest.partition(".")
        by_source.setdefault(source, []).append((int(number), int(part)))
    assert all(numbers == sorted(numbers) for numbers in by_source.values()), "out of order"


@pytest.mark.slow
def test_both_sides_are_killed_and_everything_arrives_once_and_in_order(pair: QueueManagers) -> None:
    choose = chance("kills of two")
    over, told = threading.Event(), []
    sender = threading.Thread(target=lambda: told.extend(send(pair, 0, 1, 400, over)))
    sender.start()
    for _ in range(6):
        time.sleep(choose.uniform(0.05, 0.6))
        pair.restart(choose.randrange(2))
    over.set()
    sender.join(60)
    eventually(pair.is_quiet, 60)
    check(told, received(pair, 1, "tx"))
    assert "Traceback" not in "".join(daemon.log for daemon in pair.daemons)


def test_acknowledgments_and_journal_copies_are_in_the_right_queues_after_a_kill(pair: QueueManagers) -> None:
    with pair.connect(0) as qm:
        qm.create_queue(".\\private$\\admin")
        with qm.open(pair.name(1, "tx"), "send") as queue, qm.transaction() as transaction:
            queue.send(
                openmsmq.Message.of(
                    "m", journaling_requested=int(Journal.JOURNAL), acknowledgements_requested=2 | 1,
                    administration_queue_format_name=pair.name(0, "admin"),
                ),
                transaction=transaction,
            )  # fmt: skip
    eventually(pair.is_quiet, 30)
    pair.restart(1)
    pair.restart(0)
    assert len(received(pair, 1, "tx")) == 1

    def finished() -> bool:
        with pair.connect(0) as qm:
            return qm.management(".\\private$\\admin")["message_count"] == 2

    eventually(finished, 30)
    with pair.connect(0) as qm, qm.open("DIRECT=OS:.\\system$;JOURNAL", "peek") as journal:
        assert len(list(journal)) == 1


@pytest.mark.slow
def test_five_queue_managers_send_to_each_other_while_they_are_killed(tmp_path: Path) -> None:
    crowd = QueueManagers(tmp_path, on_loopback(5, 74))
    choose: random.Random = chance("kills of five")
    over = threading.Event()
    told: dict[tuple[int, int], list[str]] = {}

    def work(source: int, target: int) -> None:
        told[source, target] = send(crowd, source, target, 400, over)

    try:
        threads = [threading.Thread(target=work, args=(n, (n + step) % 5)) for n in range(5) for step in (1, 2)]
        for thread in threads:
            thread.start()
        for _ in range(25):
            time.sleep(choose.uniform(0.05, 1.0))
            crowd.restart(choose.randrange(5))
        over.set()
        for thread in threads:
            thread.join(120)
        eventually(crowd.is_quiet, 120)
        for target in range(5):
            arrived = received(crowd, target, "tx")
            for source in range(5):
                if (source, target) in told:
                    mine = [label for label in arrived if label.startswith(f"{source}-")]
                    check(told[source, target], mine)
    finally:
        crowd.stop()
