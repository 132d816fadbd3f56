"""`make demo`: real records through real queue managers, one of which is killed in the middle.

Several senders send one message for each file below /usr, some in transactions; meanwhile, the first queue manager is
killed with SIGKILL and restarted. Other processes receive everything: from the first queue manager by MS-MQMP, from the
second by two-phase receives of MS-MQRR, some of which are abandoned and redelivered. A second walk of the tree verifies
by content that nothing was lost or duplicated. Then Spark streaming jobs archive the journals of all queues as Parquet,
and a traffic report is written; both are compared with the sent records. Finally, two queue managers exchange
transactional messages while one of them is killed. DEMO=full uses every file, DEMO_FILES=n at most n files.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple, cast

import lake
import receiver
import senders
from exchange import exchange
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

import openmsmq
from files import Record, describe, spread, walk
from openmsmq.spark.jobs import Server

ROOT = Path(os.environ.get("DEMO_ROOT", "/usr"))
DEFAULT_FILES = 20_000
EXCHANGED = 2_000  # messages from one queue manager to another
REPORT = Path("demo-traffic.html")


class Target(NamedTuple):
    """A queue of the first (0) or second (1) queue manager."""

    queue: str
    transactional: bool = False
    manager: int = 0


TARGETS = (
    Target(".\\private$\\files0"),
    Target(".\\private$\\files1"),
    Target(".\\private$\\transactional", transactional=True),
    Target(".\\private$\\remote", manager=1),
)

console = Console(highlight=False)


class Daemon:
    """Runs `openmsmq serve` as a user would."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._ports: dict[str, int] = {}
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "openmsmq.cli", "serve", "--data-dir", str(self._directory / "data")]
        command += ["--endpoint-mapper-port", str(self._ports.get("ept", 0))]
        command += ["--message-port", str(self._ports.get("messages", 0))]
        command += ["--rpc-port", str(self._ports.get("qmcomm", 0)), "--log-level", "error"]
        command += ["--flight", "--flight-port", str(self._ports.get("flight", 0))]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the daemon did not start: {(self._directory / 'log').read_text()}")
        self.ready = json.loads(line)
        self._ports = {name: endpoint["port"] for name, endpoint in self.ready["endpoints"].items()}

    @property
    def port(self) -> int:
        return self._ports["qmcomm"]

    @property
    def server(self) -> Server:
        return Server(port=self.port, flight_port=self._ports["flight"])

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait()


def publish(daemons: list[Daemon], records: list[Record]) -> tuple[float, int]:
    """Send all records, with one process per queue, and kill the first daemon halfway.

    Returns the duration in seconds and the number of reconnections.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for index, target in enumerate(TARGETS):
        mine, theirs = context.Pipe(duplex=False)
        share = records[index :: len(TARGETS)]
        arguments = (daemons[target.manager].port, target.queue, target.transactional, share, theirs)
        process = context.Process(target=senders.run, args=arguments)
        process.start()
        theirs.close()
        pipes.append(mine)
        processes.append(process)
    started, done, reconnected, killed = time.monotonic(), 0, 0, False
    with progress_bar() as bar:
        task = bar.add_task("sending", total=len(records), rate="")
        while pipes:
            for pipe in cast(list[Connection], wait(pipes)):
                try:
                    count = pipe.recv()
                except EOFError:
                    pipes.remove(pipe)
                    continue
                if count < 0:
                    reconnected += -1 - count
                    continue
                done += count
                if done % 100 == 0:
                    bar.update(task, completed=done, rate=f"{done / (time.monotonic() - started):,.0f}/s")
                if not killed and done >= len(records) // 2:
                    killed = True
                    daemons[0].kill()
                    bar.console.print(f"  kill -9 after {done:,} acknowledged messages; starting again")
                    daemons[0].start()
        bar.update(task, completed=done)
    for process in processes:
        process.join()
        if process.exitcode:
            raise SystemExit("a sender failed")
    return time.monotonic() - started, reconnected


class Collected(NamedTuple):
    """Result of a receiver process: duration, received records, and number of abandoned reads."""

    seconds: float
    received: list[tuple[str, Record]]
    abandoned: int


def collect(run: Callable[..., None], daemon: Daemon, queues: dict[str, bool], expected: int) -> Collected:
    """Receive all messages of some queues in another process with `run`."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(daemon.port, queues, theirs))
    process.start()
    theirs.close()
    received: list[tuple[str, Record]] = []
    abandoned = 0
    started = time.monotonic()
    with progress_bar() as bar:
        task = bar.add_task("receiving", total=expected, rate="")
        with contextlib.suppress(EOFError):
            while (item := mine.recv()) is not None:
                if item == receiver.GIVEN_UP:
                    abandoned += 1
                    continue
                received.append(item)
                if len(received) % 100 == 0:
                    rate = f"{len(received) / (time.monotonic() - started):,.0f}/s"
                    bar.update(task, completed=len(received), rate=rate)
        bar.update(task, completed=len(received))
    process.join()
    if process.exitcode:
        raise SystemExit("a receiver failed")
    return Collected(time.monotonic() - started, received, abandoned)


def prove(wanted: list[str], received: list[tuple[str, Record]]) -> tuple[int, int, int]:
    """Compare received records with a second walk. Returns the numbers of lost and duplicate records, and of files
    changed on disk meanwhile."""
    counts = Counter(record.path for _, record in received)
    contents = {record.path: record for _, record in received}
    lost = changed = 0
    still_there = set(walk(ROOT))
    for path in wanted:
        record = describe(path) if path in still_there else None
        if record is None:
            changed += 1
        elif record.path not in contents:
            lost += 1
        elif contents[record.path] != record:
            changed += 1
    duplicated = sum(count - 1 for count in counts.values())
    return lost, duplicated, changed


def progress_bar() -> Progress:
    columns = (
        TextColumn("  {task.description:10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    return Progress(*columns, console=console, transient=True)


def main() -> int:
    full = os.environ.get("DEMO") == "full"
    count = 0 if full else int(os.environ.get("DEMO_FILES", DEFAULT_FILES))
    directory = Path(tempfile.mkdtemp(prefix="openmsmq-demo-"))
    try:
        return run(directory, count)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run(directory: Path, count: int) -> int:
    started = time.monotonic()
    console.print(f"walking {ROOT} …")
    wanted = spread(list(walk(ROOT)), count)
    records = [record for record in map(describe, wanted) if record is not None]
    console.print(f"  {len(records):,} files to publish")
    daemons: list[Daemon] = []
    try:
        for name in ("first", "second"):
            daemons.append(Daemon(directory / name))
        for target in TARGETS:
            with openmsmq.connect("127.0.0.1", daemons[target.manager].port) as manager:
                manager.create_queue(target.queue, transactional=target.transactional, journal=True)
        sending, reconnected = publish(daemons, records)
        console.print(f"  sent; {reconnected} reconnections; restart took {daemons[0].ready['restart_seconds']:.2f} s")
        shares = [sum(len(records[i :: len(TARGETS)]) for i, t in enumerate(TARGETS) if t.manager == n) for n in (0, 1)]
        queues = [{t.queue: t.transactional for t in TARGETS if t.manager == n} for n in (0, 1)]
        near = collect(receiver.run, daemons[0], queues[0], shares[0])
        far = collect(receiver.run_in_two_phases, daemons[1], queues[1], shares[1])
        console.print("archiving the journals with Spark …")
        begun = time.monotonic()
        archived = lake.archive(
            {daemon.server: list(names) for daemon, names in zip(daemons, queues, strict=True)},
            directory / "lake", REPORT,
        )  # fmt: skip
        archiving = time.monotonic() - begun
    finally:
        codes = [daemon.stop() for daemon in daemons]
    console.print("from one queue manager to another, which is killed on the way …")
    texts = [record.path for record in records[:EXCHANGED]]
    arrived, exchanging = exchange(directory / "exchange", texts)
    received = near.received + far.received
    console.print(f"  received {len(received):,} messages; walking {ROOT} again …")
    lost, duplicated, changed = prove(wanted, received)
    by_target = {
        target.queue.rpartition(chr(92))[2]: records[index :: len(TARGETS)] for index, target in enumerate(TARGETS)
    }
    faults = lake.compare(directory / "lake", REPORT, by_target)
    table = Table(box=None, pad_edge=False)
    for title in ("", "messages", "seconds", "per second"):
        table.add_column(title, justify="left" if not title else "right")
    for name, count, seconds in (
        (f"sent, durable, {len(TARGETS)} senders, one kill -9", len(records), sending),
        ("received through MS-MQMP, durable, 1 receiver", len(near.received), near.seconds),
        (f"received through MS-MQRR, {far.abandoned} reads abandoned", len(far.received), far.seconds),
        ("journals to Parquet, including the start of Spark", archived, archiving),
        ("transferred through MS-MQQB, in transactions, one kill -9", len(arrived), exchanging),
    ):
        table.add_row(name, f"{count:,}", f"{seconds:.1f}", f"{count / seconds:,.0f}")
    console.print(table)
    by_queue = Counter(queue for queue, _ in received)
    console.print("by queue: " + ", ".join(f"{q.rpartition(chr(92))[2]} {n:,}" for q, n in by_queue.items()))
    console.print(f"files changed on disk meanwhile: {changed}")
    outcome = "all, once and in order" if arrived == texts else f"{len(arrived)} of {len(texts)}"
    console.print(f"transferred: {outcome}")
    console.print(f"traffic report: {REPORT}; archive and report " + ("; ".join(faults) or "match the records"))
    passed = not lost and not duplicated and len(received) == len(records) and far.abandoned > 0 and not any(codes)
    passed = passed and not faults and arrived == texts
    verdict = "PASSED" if passed else "FAILED"
    console.print(f"demo {verdict}: {lost} lost, {duplicated} duplicated, in {time.monotonic() - started:.0f} s")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
