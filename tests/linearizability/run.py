"""Random clients of all entrances at one server, and a nemesis that kills, stops, cuts off and replaces it."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from daemon import PROGRAM, Daemon, free_port
from interop.test_failover import freeze, wake
from linearizability import clients, history
from linearizability.checker import Verdict, check
from linearizability.history import OK, UNKNOWN, Operation
from linearizability.partition import Partition
from openmsmq.server.supervision import FENCED
from tallies import tally
from waiting import eventually

PLAIN, MORE, ONE, TWO, BULK = "plain", "more", "one", "two", "bulk"
QUEUES = {PLAIN: False, MORE: False, ONE: True, TWO: True, BULK: True}
NEMESES = ("kill", "stop", "pause", "cut", "clock", "fail-over")
ENDING_SECONDS = 60.0  # for ending a claim or a stage, over all tries
PAUSE = 0.02  # seconds between operations of a client, at most
STEPPED = (str(Path(__file__).with_name("stepped.py")),)


class Recorder:
    """The operations of all clients. Several threads may append to the lists."""

    def __init__(self) -> None:
        self.history: list[Operation] = []
        self.errors: Counter[str] = Counter()

    def add(self, client: str, kind: str, call: int, outcome: str = OK, **details: Any) -> Operation:
        operation = Operation(client, kind, call, time.monotonic_ns(), outcome, **details)
        self.history.append(operation)
        return operation


class Server:
    """A data directory and the daemon that has it, behind proxies."""

    def __init__(self, directory: Path, program: Sequence[str] = PROGRAM, *options: str) -> None:
        self.directory, self.program, self.options = directory, program, options
        self.data = directory / "data"
        self.data.mkdir(parents=True)
        self.offset = directory / "offset"
        os.environ["CLOCK_OFFSET"] = str(self.offset)
        self.count = 0
        self.up = threading.Event()  # clients do not try to connect while nobody is there
        self.active = self._start()
        self.up.set()
        self.proxies = [Partition(self.active.port), Partition(self._messages)]

    def _start(self) -> Daemon:
        self.count += 1
        mounted = self.directory / f"node{self.count}"
        mounted.symlink_to(self.data)
        self.flight = free_port("127.0.0.1")
        options = ("--take-over", "--log-level", "warning", "--flight", "--flight-port", str(self.flight))
        # Anonymous clients send, receive and claim; a message from another queue manager is anonymous as well.
        return Daemon(mounted, *options, *self.options, program=self.program).start()

    def __enter__(self) -> Server:
        for proxy in self.proxies:
            proxy.__enter__()
        with self.active.connect() as manager:
            for name, transactional in QUEUES.items():
                manager.create_queue(f".\\private$\\{name}", transactional=transactional)
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in self.proxies:
            proxy.__exit__()
        if self.active.alive:
            self.active.stop()

    @property
    def _messages(self) -> int:
        return int(self.active.ready["endpoints"]["messages"]["port"])

    @property
    def rpc(self) -> int:
        return self.proxies[0].port

    @property
    def messages(self) -> int:
        return self.proxies[1].port

    @property
    def mapper(self) -> int:
        return self.active.mapper_port

    def restart(self, recorder: Recorder) -> None:
        self.up.clear()
        self.active.kill()
        recorder.add("nemesis", "crash", time.monotonic_ns(), argument="kill")
        self.active.start()
        self.up.set()

    def fail_over(self, recorder: Recorder, moment: float) -> None:
        """Another daemon takes the data while the first stands still; that one goes on then, and has to end."""
        earlier = self.active
        freeze(earlier)
        recorder.add("nemesis", "crash", time.monotonic_ns(), argument="fail-over")
        self.active = self._start()
        for proxy, target in zip(self.proxies, (self.active.port, self._messages), strict=True):
            proxy.target = target
            proxy.cut()
        time.sleep(moment)
        wake(earlier)
        assert earlier.wait() == FENCED, earlier.log

    def step(self, seconds: float) -> None:
        self.offset.write_text(str(seconds), encoding="ascii")


class Worker(threading.Thread):
    """A client that does things at random until it is told to stop."""

    def __init__(self, name: str, entrance: str, server: Server, recorder: Recorder, chance: random.Random) -> None:
        super().__init__(name=name, daemon=True)
        self.entrance, self.server, self.recorder, self.chance = entrance, server, recorder, chance
        self.stopping = threading.Event()
        self.count = 0
        self.client: Any = None
        self.failure: BaseException | None = None
        # The open transaction, and when the last of its operations returned.
        self.transaction: str | None = None
        self.since = 0
        self.queues = {
            "qmcomm": (PLAIN, MORE, ONE, TWO, BULK),
            "remote read": (PLAIN, MORE, ONE, TWO), "automation": (PLAIN, MORE),
            "transfer": (PLAIN, MORE), "flight": (BULK,),
        }[entrance]  # fmt: skip

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self._life()
        except BaseException as error:
            self.failure = error
        finally:
            self._leave()

    def _life(self) -> None:
        """From connecting to losing the connection."""
        if not self.server.up.wait(1):
            return
        try:
            self.client = clients.ENTRANCES[self.entrance](self.server)
            for queue in self.queues:
                self.client.prepare(queue)
        except Exception as error:  # impacket raises many kinds
            self._note("connecting", error)
            self._leave()
            self.stopping.wait(0.1)
            return
        turn: Callable[[], None] = getattr(self, "_" + self.entrance.replace(" ", "_"))
        try:
            while not self.stopping.is_set():
                turn()
                self.stopping.wait(self.chance.uniform(0, PAUSE))
            if self.transaction is not None and self.entrance != "flight":
                self._end(False)
        except _Lost:
            self.stopping.wait(self.chance.uniform(0, 0.1))
        finally:
            self._leave()

    def _leave(self) -> None:
        if self.client is not None:
            with suppress(Exception):
                self.client.close()
        self.client = None
        if self.transaction is not None and self.entrance != "flight":
            # The server ends it when it notices that the connection is gone.
            self.recorder.add(self.name, "abort", self.since, UNKNOWN, transaction=self.transaction)
            self.transaction = None

    def _note(self, what: str, error: BaseException) -> None:
        self.recorder.errors[f"{self.entrance}: {what}: {type(error).__name__} {error}"[:90]] += 1

    def _do(self, kind: str, work: Callable[[], Any], queue: str | None = None, **details: Any) -> Any:
        """Do an operation and record it. Raises _Lost if nobody knows whether it was done."""
        call = time.monotonic_ns()
        fields = {"queue": queue, "transaction": self.transaction, "entrance": self.entrance, **details}
        try:
            result = work()
        except Exception as error:  # impacket raises many kinds
            self.recorder.add(self.name, kind, call, UNKNOWN, **fields)
            self._note(kind, error)
            raise _Lost from error
        if kind in ("receive", "peek", "lock"):
            fields["result"] = result
        self.since = self.recorder.add(self.name, kind, call, **fields).returned
        return result

    def _value(self) -> str:
        self.count += 1
        return f"{self.name}-{self.count}"

    def _send(self, queue: str) -> None:
        value = self._value()
        priority = 0 if QUEUES[queue] else self.chance.choice((3, 3, 3, 3, 6))
        self._do("send", lambda: self.client.send(queue, value, priority), queue, argument=[value, priority])

    def _receive(self, queue: str, **options: Any) -> None:
        self._do("receive", lambda: self.client.receive(queue, **options), queue)

    def _peek(self, queue: str) -> None:
        self._do("peek", lambda: self.client.peek(queue), queue, transaction=None)

    def _end(self, committed: bool) -> None:
        self._do("commit" if committed else "abort", lambda: self.client.end(committed))
        self.transaction = None

    # -- what clients of each entrance do ------------------------------------------------------------------------------

    def _qmcomm(self) -> None:
        queue = self.chance.choice(self.queues)
        kind = self.chance.random()
        if queue == BULK:  # claims take what is there
            kind = self.chance.choice((0.1, 0.1, 0.1, 0.9))
        if kind < 0.15:
            self._peek(queue)
        elif QUEUES[queue] and (kind < 0.75 or queue == BULK):
            self._whole_transaction(queue)
        elif QUEUES[queue] or kind < (0.3 if _is_filling() else 0.75):
            self._receive(queue, timeout=self.chance.choice((0, 0, 20)))
        else:
            self._send(queue)

    def _whole_transaction(self, queue: str) -> None:
        self.transaction, self.since = self._value(), time.monotonic_ns()
        self._do("begin", self.client.begin)
        for _ in range(self.chance.randrange(1, 5)):
            if queue != BULK:
                queue = self.chance.choice((ONE, TWO))
            if queue == BULK or self.chance.random() < (0.7 if _is_filling() else 0.3):
                self._send(queue)
            else:
                self._receive(queue)
        self._end(self.chance.random() < 0.75)

    def _remote_read(self) -> None:
        queue = self.chance.choice(self.queues)
        if self.chance.random() < 0.2:
            self._peek(queue)
            return
        if _is_filling() and self.chance.random() < 0.6:
            return
        self.transaction, self.since = self._value(), time.monotonic_ns()
        found = self._do("lock", lambda: self.client.lock(queue), queue)
        if found is None:
            self.transaction = None
            return
        self.stopping.wait(self.chance.choice((0, 0, 0.01)))
        self._end(self.chance.random() < 0.7)

    def _automation(self) -> None:
        self.chance.choice((self._send, self._receive, self._receive, self._peek))(self.chance.choice(self.queues))

    def _transfer(self) -> None:
        self._send(self.chance.choice(self.queues))
        self.stopping.wait(self.chance.uniform(0, 0.05))

    def _flight(self) -> None:
        if self.chance.random() < 0.4:
            self._stage_some()
        else:
            self._claim_some()

    def _stage_some(self) -> None:
        values = [self._value() for _ in range(self.chance.randrange(1, 4))]
        self.transaction = f"stage {values[0]}"
        try:
            staged = self._do("stage", lambda: self.client.stage(BULK, values), BULK, argument=values, repeats=True)
            self._do("commit", lambda: self.client.finalize(values, staged), BULK, repeats=True)
            self.transaction = None
        except _Lost:
            self._until_it_ends(lambda: self.client.forget(values))

    def _claim_some(self) -> None:
        """If the answer to a claim is lost, only a release makes its outcome certain: it is repeated."""
        self.transaction, most = f"claim {self._value()}", self.chance.randrange(1, 4)
        details: dict[str, Any] = {
            "queue": BULK,
            "transaction": self.transaction,
            "entrance": self.entrance,
            "argument": most,
        }
        call = time.monotonic_ns()
        try:
            claim, values = self.client.claim(BULK, self.name, most)
        except Exception as error:  # pyarrow raises many kinds
            self._note("claim", error)
            self.recorder.add(self.name, "claim", call, UNKNOWN, repeats=True, **details)
            self.release()
            return
        self.recorder.add(self.name, "claim", call, result=values, **details)
        if not values:
            self.transaction = None
        elif self.chance.random() < 0.3:
            self.release()
        else:
            commit = {"argument": "in order", "repeats": True}
            try:
                self._do("commit", lambda: self.client.commit(BULK, self.name, claim), BULK, **commit)
                self.transaction = None
            except _Lost:
                self.release()

    def release(self) -> None:
        self._until_it_ends(lambda: self.client.release(BULK, self.name))

    def _until_it_ends(self, end: Callable[[], None]) -> None:
        """End a claim or a stage, and repeat that until it is answered: it has an effect at most once."""
        call = time.monotonic_ns()
        deadline = time.monotonic() + ENDING_SECONDS
        while True:
            try:
                end()
                break
            except Exception as error:  # pyarrow raises many kinds
                self._note("ending", error)
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)  # between two tries
                with suppress(Exception):
                    self.client.close()
                with suppress(Exception):
                    self.client = clients.Flight(self.server)
        self.recorder.add(
            self.name, "abort", call, transaction=self.transaction, argument="if open", entrance=self.entrance
        )
        self.transaction = None


def _is_filling() -> bool:
    """Whether clients send more than they receive: for two seconds, and then not. Errors of order need long queues."""
    return int(time.monotonic() / 2) % 2 == 0


class _Lost(Exception):
    """The outcome of an operation is unknown."""


class Nemesis(threading.Thread):
    """Does harm at random moments."""

    def __init__(self, server: Server, recorder: Recorder, chance: random.Random, harms: Sequence[str]) -> None:
        super().__init__(name="nemesis", daemon=True)
        self.server, self.recorder, self.chance, self.harms = server, recorder, chance, harms
        self.stopping = threading.Event()
        self.done: Counter[str] = Counter()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.wait(self.chance.uniform(0.3, 1.2)):
                harm = self.chance.choice(self.harms)
                self._do(harm)
                self.done[harm] += 1
        except BaseException as error:
            self.failure = error

    def _do(self, harm: str) -> None:
        chance, server = self.chance, self.server
        if harm == "kill":
            server.restart(self.recorder)
        elif harm == "stop":
            os.kill(server.active.pid, signal.SIGSTOP)
            self.stopping.wait(chance.uniform(0.05, 1))
            os.kill(server.active.pid, signal.SIGCONT)
        elif harm == "pause":
            proxy = chance.choice(server.proxies)
            proxy.pause()
            self.stopping.wait(chance.uniform(0.05, 1.5))
            chance.choice((proxy.resume, proxy.cut))()
            proxy.resume()
        elif harm == "cut":
            chance.choice(server.proxies).cut()
        elif harm == "clock":
            server.step(chance.choice((0, 3600, -3600, 86400, -86400 * 30)))
        elif harm == "fail-over":
            server.fail_over(self.recorder, chance.uniform(0, 0.3))


ENTRANCES_OF_A_RUN = ("qmcomm", "qmcomm", "qmcomm", "remote read", "remote read", "automation", "transfer", "flight")


def run(
    directory: Path,
    seconds: float,
    name: str,
    chance: random.Random,
    harms: Sequence[str] = NEMESES,
    entrances: Sequence[str] = ENTRANCES_OF_A_RUN,
    program: Sequence[str] = STEPPED,
) -> tuple[Recorder, Counter[str]]:
    """A history of clients at work for some seconds, with a drain at its end. `name` is part of all values."""
    recorder = Recorder()
    with Server(directory, program) as server:
        workers = [
            Worker(f"{name}{number}", entrance, server, recorder, random.Random(chance.random()))
            for number, entrance in enumerate(entrances)
        ]
        nemesis = Nemesis(server, recorder, random.Random(chance.random()), harms)
        for worker in workers:
            worker.start()
        eventually(lambda: {worker.entrance for worker in workers} <= {o.entrance for o in list(recorder.history)})
        if harms:
            nemesis.start()
        time.sleep(seconds)
        nemesis.stopping.set()
        if harms:
            nemesis.join(60)
        for worker in workers:
            worker.stopping.set()
        for worker in workers:
            worker.join(60)
            assert not worker.is_alive(), f"{worker.name} ({worker.entrance}) does not end"
        for failure in (nemesis.failure, *(worker.failure for worker in workers)):
            if failure is not None:
                raise failure
        server.restart(recorder)  # so that nobody holds anything
        drain(server, recorder)
        logs = "".join(path.read_text(errors="replace") for path in sorted(directory.glob("node*.log")))
        assert "Traceback" not in logs, logs[-3000:]
    return recorder, nemesis.done


def drain(server: Server, recorder: Recorder) -> None:
    """One client receives everything."""
    reader = clients.Qmcomm(server)
    for queue in QUEUES:
        reader.prepare(queue)
        while True:
            call = time.monotonic_ns()
            found = reader.receive(queue)
            recorder.add("drain", "receive", call, queue=queue, result=found, entrance="qmcomm")
            if found is None:
                break
    reader.close()


def verdicts(recorder: Recorder, harms: Counter[str], path: Path) -> list[Verdict]:
    """Check a history, which is written to `path`, and count it."""
    history.write(path, recorder.history)
    found = check(recorder.history)
    tally("operations", len(recorder.history))
    tally("unknown outcomes", sum(operation.outcome == UNKNOWN for operation in recorder.history))
    tally("histories")
    for harm, count in harms.items():
        if harm != "kill":  # Daemon.kill counts
            tally({"stop": "SIGSTOPs of running daemons"}.get(harm, f"harms by {harm}"), count)
    return found
