"""Queues move and move back while programs send and receive all the time, and while both daemons and the operator's
commands are killed. The test compares the sent and received messages outside both daemons."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import openmsmq
from daemon import Daemon, eventually
from interop.moving import Move, connect, moving
from linearizability.broken import BROKEN
from seeds import chance

AWAY = (OSError, openmsmq.MsmqError)
LABEL = "{:06}"


@dataclass
class QueueTraffic:
    """One queue with its writer and its reader.

    Attributes:
        sent: labels whose send was confirmed, in order; `maybe_sent` are those that were cut off.
        read: labels whose receipt was confirmed, in order; `maybe_read` those that were cut off.
        source, target: where the writer sends and the reader reads; None while they pause.
    """

    name: str
    transactional: bool
    sent: list[str] = field(default_factory=list)
    maybe_sent: set[str] = field(default_factory=set)
    read: list[str] = field(default_factory=list)
    maybe_read: set[str] = field(default_factory=set)
    source: Daemon | None = None
    target: Daemon | None = None
    number: int = 0

    @property
    def path(self) -> str:
        return f".\\private$\\{self.name}"

    def write(self, over: threading.Event, pause: float) -> None:
        while not over.is_set():
            daemon = self.source
            if daemon is None:
                time.sleep(0.02)
                continue
            try:
                with connect(daemon) as manager, manager.open(self.path, "send") as queue:
                    while self.source is daemon and not over.is_set():
                        self.send(manager, queue)
                        time.sleep(pause)
            except AWAY:
                time.sleep(0.05)

    def send(self, manager: openmsmq.QueueManager, queue: openmsmq.MessageQueue) -> None:
        label = LABEL.format(self.number)
        self.number += 1
        self.maybe_sent.add(label)
        if self.transactional:
            with manager.transaction() as transaction:
                queue.send(b"x" * 200, label=label, transaction=transaction)
        else:
            queue.send(b"x" * 200, label=label, recoverable=True)
        self.maybe_sent.discard(label)
        self.sent.append(label)

    def take(self, over: threading.Event) -> None:
        while not over.is_set():
            daemon = self.target
            if daemon is None:
                time.sleep(0.02)
                continue
            try:
                with connect(daemon) as manager, manager.open(self.path, protocol="qmcomm") as queue:
                    while self.target is daemon and not over.is_set():
                        self.receive(manager, queue)
            except AWAY:
                time.sleep(0.05)

    def receive(self, manager: openmsmq.QueueManager, queue: openmsmq.MessageQueue) -> None:
        """Receive one message. Raises ReceiveTimeout if there is none."""
        transaction = manager.transaction()
        if not self.transactional:
            label = queue.peek(0.2).label
            self.maybe_read.add(label)
            queue.receive(0)  # the same message: no other client reads here
        else:
            with transaction:
                label = queue.receive(0.2, transaction=transaction).label
                self.maybe_read.add(label)
        self.maybe_read.discard(label)
        self.read.append(label)

    def check(self) -> None:
        """Check, once all messages were read, that none is lost or duplicated, and that transactional queues kept
        their order."""
        seen = Counter(self.read)
        lost = [label for label in self.sent if not seen[label] and label not in self.maybe_read]
        twice = [label for label, count in seen.items() if count > 1]
        unknown = seen.keys() - set(self.sent) - self.maybe_sent
        assert (lost, twice, unknown) == ([], [], set()), self.name
        if self.transactional:
            assert self.read == sorted(self.read), self.name


@contextmanager
def working(lines: list[QueueTraffic], pause: float) -> Iterator[threading.Event]:
    over = threading.Event()
    threads = [threading.Thread(target=line.write, args=(over, pause)) for line in lines]
    threads += [threading.Thread(target=line.take, args=(over,)) for line in lines]
    for thread in threads:
        thread.start()
    try:
        yield over
    finally:
        over.set()
        for thread in threads:
            thread.join()


class Operator:
    """Runs the steps, and kills daemons and commands.

    Attributes:
        command_kills: kills of commands for each step; if 0, commands are killed at random.
        killed_commands: number of commands that were killed while they were running.
    """

    def __init__(
        self, move: Move, lines: list[QueueTraffic], dice: random.Random, kills: int, command_kills: int = 0
    ) -> None:  # fmt: skip
        self.move, self.lines, self.dice, self.kills = move, lines, dice, kills
        self.command_kills, self.killed_commands = command_kills, 0

    def begin(self, line: QueueTraffic) -> None:
        """Start moving; the queues exist already, or `adopt run` creates them."""
        if not self.command_kills:
            self.step(line, "shadow", line.name, "--from", "old", state="shadow")
            return
        host = self.move.old.options[self.move.old.options.index("--listen") + 1]
        there = ("--there", host, "--port", str(self.move.old.port))
        self.step(line, "run", line.name, "--from", "old", *there, state="shadow")

    def kill_commands(self, words: tuple[str, ...]) -> None:
        wanted = self.command_kills or int(self.dice.random() < 0.3)
        for _ in range(wanted):
            self.killed_commands += self.move.run_and_kill(self.dice.random() * 0.5, "adopt", *words)

    def step(self, line: QueueTraffic, *words: str, state: str) -> None:
        """Run a step. If its outcome is unknown, repeat it unless the status shows that it was done."""
        self.kill_commands(words)

        def reached() -> bool:
            ended = self.move.run("adopt", *words)
            shown = self.move.run("adopt", "status", line.name, "--json")
            return ended.code == 0 or f'"state": "{state}"' in shown.stdout

        eventually(reached)

    def kill(self) -> None:
        if self.kills <= 0:
            return
        self.kills -= 1
        daemon = self.dice.choice([self.move.old, self.move.new])
        daemon.kill()
        time.sleep(self.dice.random() * 0.3)
        daemon.start()

    def spend(self, share: float) -> None:
        """Kill daemons until only this share of the kills is left."""
        keep = round(self.total * share)
        while self.kills > keep:
            time.sleep(self.dice.random() * 0.8)
            self.kill()

    @property
    def total(self) -> int:
        return self._total

    @total.setter
    def total(self, value: int) -> None:
        self._total = value

    def wait(self, line: QueueTraffic, look: Callable[[dict[str, object]], bool]) -> None:
        def reached() -> bool:
            try:
                return look(self.move.status(line.name))
            except (AssertionError, ValueError):
                return False

        eventually(reached)

    def drained(self, line: QueueTraffic) -> None:
        self.wait(line, lambda status: bool(status["empty_since"]) and not status["trouble"])


def left_in(move: Move, lines: list[QueueTraffic]) -> dict[str, int]:
    """Return the unread messages by machine and queue."""
    found = {}
    for daemon in (move.old, move.new):
        with connect(daemon) as manager:
            for line in lines:
                count = manager.counts(line.path)["message_count"]
                if count:
                    found[f"{daemon.directory.name} {line.name}"] = count
    return found


def whole_move(
    move: Move, lines: list[QueueTraffic], dice: random.Random, kills: int, first: int, pause: float,
    command_kills: int = 0,
) -> None:  # fmt: skip
    """Move there and back, with `kills` of daemons. With `command_kills` (kills of commands for each step), `adopt
    run` creates the queues."""
    operator = Operator(move, lines, dice, kills, command_kills)
    operator.total = kills
    for line in lines:
        for daemon in (move.old,) if command_kills else (move.old, move.new):
            with connect(daemon) as manager:
                manager.create_queue(line.path, transactional=line.transactional)
        with connect(move.old) as manager, manager.open(line.path, "send") as queue:
            for _number in range(first):
                line.send(manager, queue)
    with working(lines, pause):
        for line in lines:
            line.source, line.target = move.old, None
        for line in lines:
            operator.begin(line)
            line.target = move.new
        operator.spend(0.6)
        for line in lines:  # if order matters, programs pause while messages are in transit
            line.source = None if line.transactional else move.new
            operator.step(line, "switch", line.name, state="switched")
        for line in lines:
            operator.drained(line)
            line.source = move.new
        operator.spend(0.4)
        for line in lines:
            operator.drained(line)
            operator.step(line, "done", line.name, state="done")
        for line in lines:
            line.target = None
        time.sleep(0.5)
        operator.spend(0.2)
        for line in lines:
            operator.step(line, "back", line.name, state="returning")
            line.source = None if line.transactional else move.old
        operator.spend(0)
        for line in lines:
            operator.drained(line)
            line.source, line.target = move.old, move.old
        time.sleep(0.5)
        for line in lines:
            line.source = None
        for line in lines:
            operator.drained(line)

        deadline = time.monotonic() + 60 + first * len(lines) / 100
        while (left := left_in(move, lines)) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert not left
    for line in lines:
        line.check()
        assert line.read, line.name
    read = sum(len(line.read) for line in lines)
    print(f"{kills} kills of daemons, {operator.killed_commands} of commands at work, {read} messages read")


@pytest.mark.parametrize("transactional", [False, True])
def test_a_message_that_moves_back_is_in_one_place_only_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transactional: bool
) -> None:
    """The new machine writes to its disk a second late, and is killed as soon as the message is on the old one."""
    monkeypatch.setenv("BREAK", "slow")
    monkeypatch.setenv("SLOW", "1")
    line = QueueTraffic("back", transactional)
    with moving(tmp_path, 96, program=BROKEN) as move:
        for daemon in (move.old, move.new):
            with connect(daemon) as manager:
                manager.create_queue(line.path, transactional=transactional)
        with connect(move.new) as manager, manager.open(line.path, "send") as queue:
            line.send(manager, queue)
        move.done("adopt", "shadow", line.name, "--from", "old")
        with move.started("adopt", "back", line.name), connect(move.old) as manager:
            eventually(lambda: manager.counts(line.path)["message_count"] == 1)
            move.new.kill()
        monkeypatch.setenv("SLOW", "0")
        move.new.start()
        if move.status(line.name)["state"] == "shadow":  # the step is lost
            move.done("adopt", "back", line.name)
        move.when(line.name, empty_since=True)
        assert left_in(move, [line]) == {f"old {line.name}": 1}


@pytest.mark.parametrize(
    ("net", "kills", "command_kills"),
    [
        pytest.param(93, 10, 0, id="daemons"),
        pytest.param(95, 30, 5, id="daemons and commands", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_or_duplicated_when_daemons_and_commands_are_killed(
    tmp_path: Path, net: int, kills: int, command_kills: int
) -> None:
    dice = chance("moving")
    lines = [QueueTraffic(f"plain{number}", False) for number in range(2)]
    lines += [QueueTraffic(f"ordered{number}", True) for number in range(2)]
    with moving(tmp_path, net) as move:
        whole_move(move, lines, dice, kills, 50, 0.02, command_kills)


@pytest.mark.slow
def test_a_hundred_thousand_messages_of_twenty_queues_move_and_move_back(tmp_path: Path) -> None:
    dice = chance("moving by night")
    lines = [QueueTraffic(f"plain{number}", False) for number in range(10)]
    lines += [QueueTraffic(f"ordered{number}", True) for number in range(10)]
    with moving(tmp_path, 94) as move:
        whole_move(move, lines, dice, kills=200, first=5_000, pause=0.02, command_kills=1)
