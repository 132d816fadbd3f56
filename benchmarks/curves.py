"""Cost of operations as a size grows: queues, messages, waiting receives, connections, bodies, transactions.

    .venv/bin/python benchmarks/curves.py [--quick] [CURVE ...]

Costs are the server's CPU time, which depends little on other load on the machine. The slope is that of the cost over
the size on logarithmic scales, from the first to the last point: 0 is constant, 1 is linear. Writes its own section of
RESULTS.md and `curves.svg`; with names of curves, only their lines there.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import results
import systems
import uvloop
from load import load
from systems import Daemon

import openmsmq
from openmsmq import aio

HERE = Path(__file__).parent
ADDRESS = "127.0.0.1"
REPEATS = 2000  # operations per point, unless the curve has another number
ROUNDS = 5
EACH = 250  # waiting receives per connection
DEEP, SMALL = "deep", "small durable send"
IDLE_CPU = 0.02  # seconds of CPU time per second below which a server is idle
IDLE_SECONDS = 3
LONGEST_WAIT = 300  # seconds within which a server must become idle
LIMITS = (
    "--max-queues", "200000", "--max-queues-per-owner", "200000", "--max-connections", "20000",
    "--max-connections-per-peer", "20000",
)  # fmt: skip


class Point(NamedTuple):
    """A point: `cost` of an operation in microseconds of server CPU time, or memory per item in bytes."""

    size: int
    cost: float


class Line(NamedTuple):
    """A curve, which is a row of the table."""

    name: str
    unit: str
    points: list[Point]
    slope: float
    verdict: str


def measured(name: str, unit: str, points: list[Point], bound: float) -> Line:
    """Return the curve of points; `bound` is the largest acceptable slope."""
    first, last = points[0], points[-1]
    slope = 0.0
    if first.size != last.size:
        growth = max(last.size, 2) / max(first.size, 1)
        slope = math.log(max(last.cost, 0.1) / max(first.cost, 0.1)) / math.log(growth)
    return Line(name, unit, points, slope, "" if slope <= bound else f"**above {bound}**")


@contextmanager
def server(directory: Path, name: str) -> Iterator[Daemon]:
    with Daemon(directory / name, "--log-level", "error", *LIMITS) as daemon:
        yield daemon


def spent(daemon: Daemon, work: Callable[[], int]) -> float:
    """Return the server's CPU time in microseconds per operation; `work` returns the number of operations."""
    before = systems.cpu(daemon.pid)
    count = work()
    return (systems.cpu(daemon.pid) - before) * 1e6 / count


def settle(daemon: Daemon) -> None:
    """Wait until all data is on the disk and the server is idle, so that checkpoints and syncs for earlier messages are
    not attributed to the following operations."""
    os.sync()
    idle, before = 0, systems.cpu(daemon.pid)
    for _ in range(LONGEST_WAIT):
        time.sleep(1)
        now = systems.cpu(daemon.pid)
        idle = idle + 1 if now - before < IDLE_CPU else 0
        if idle == IDLE_SECONDS:
            return
        before = now
    raise RuntimeError(f"the server is still busy after {LONGEST_WAIT} s")


def sending(daemon: Daemon, queue: str, what: str = "express send") -> float:
    def work() -> int:
        result = load(port=daemon.port, what=what, queue=queue, connections=4, count=REPEATS * 4)
        assert not result["failed"], result
        return int(result["count"])

    return spent(daemon, work)


def sizes(largest: int, quick: bool) -> list[int]:
    """Return 1, 10, 100, ... up to `largest`, or up to 1% of it if `quick`."""
    largest = max(10, largest // 100) if quick else largest
    return [10**n for n in range(round(math.log10(largest)) + 1)]


def queues(directory: Path, quick: bool) -> Iterator[Line]:
    """Measure a send with that number of queues, and memory per queue."""
    costs, memory = [], []
    with server(directory, "queues") as daemon, daemon.connect() as manager:
        manager.create_queue(".\\private$\\target")
        sending(daemon, "target")  # so that one-time initialization is done
        made, base = 1, daemon.resident
        for size in sizes(100_000, quick):
            while made < size:
                manager.create_queue(f".\\private$\\q{made}")
                made += 1
            if size >= 1000:
                memory.append(Point(size, (daemon.resident - base) / size))
            costs.append(Point(size, sending(daemon, "target")))
    yield measured("send, by queues that are there", "µs", costs, 0.1)
    if memory:
        yield measured("memory of a queue", "bytes", memory, 0.1)


def messages(directory: Path, quick: bool) -> Iterator[Line]:
    """Measure a send to and a receive from a queue with that number of messages, and memory per message.

    Costs are the minimum of several rounds: while other programs use the disk, fewer calls share a sync.
    """
    sends, receives, memory = [], [], []
    with server(directory, "messages") as daemon, daemon.connect() as manager:
        manager.create_queue(f".\\private$\\{DEEP}")
        sending(daemon, DEEP, SMALL)
        sending(daemon, DEEP, "receive")
        held, base = 0, daemon.resident
        for size in sizes(10_000_000, quick)[3:]:
            # Concurrent requests also take memory, so use many only where filling would take minutes.
            depth = 1 if size <= 1_000_000 else 16
            load(port=daemon.port, what=SMALL, queue=DEEP, connections=32, depth=depth, count=size - held)
            held = size
            settle(daemon)
            if size >= 10_000:
                memory.append(Point(size, (daemon.resident - base) / size))
            rounds = [(sending(daemon, DEEP, SMALL), sending(daemon, DEEP, "receive")) for _ in range(ROUNDS)]
            sends.append(Point(size, min(send for send, _ in rounds)))
            receives.append(Point(size, min(receive for _, receive in rounds)))
    yield measured("durable send, by messages in the queue", "µs", sends, 0.1)
    yield measured("receive, by messages in the queue", "µs", receives, 0.1)
    if memory:
        yield measured("memory of a message", "bytes", memory, 0.1)


def waiting(directory: Path, quick: bool) -> Iterator[Line]:
    """Measure a send to another queue with that number of waiting receives, and a send to one of them."""
    aside: list[Point] = []
    woken: list[Point] = []

    async def measure(daemon: Daemon) -> None:
        first = await aio.connect(ADDRESS, daemon.port)
        for name in ("aside", "waited"):
            await first.create_queue(f".\\private$\\{name}")
        sender = await first.open(".\\private$\\waited", "send")
        managers: list[aio.QueueManager] = []
        reads: list[asyncio.Future[openmsmq.Message]] = []
        for size in sizes(100_000, quick):
            while len(reads) < size:
                manager = await aio.connect(ADDRESS, daemon.port)
                managers.append(manager)
                queue = await manager.open(".\\private$\\waited", "receive")
                reads += [asyncio.ensure_future(queue.receive()) for _ in range(min(EACH, size - len(reads)))]
            await asyncio.sleep(0.5 + size / 20_000)
            aside.append(Point(size, await asyncio.to_thread(sending, daemon, "aside")))
            count = min(size, REPEATS)
            before = systems.cpu(daemon.pid)
            for _ in range(count):
                await sender.send(b"x")
            done = 0
            while done < count:
                await asyncio.sleep(0.05)
                done = sum(read.done() for read in reads)
            woken.append(Point(size, (systems.cpu(daemon.pid) - before) * 1e6 / count))
            reads = [read for read in reads if not read.done()]
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
        for manager in managers:
            await manager.close()
        await first.close()

    with server(directory, "waiting") as daemon:
        uvloop.run(measure(daemon))
    yield measured("send, by receives that wait at another queue", "µs", aside, 0.1)
    yield measured("send that a waiting receive gets, by how many wait", "µs", woken[2:] or woken, 0.2)


def connections(directory: Path, quick: bool) -> Iterator[Line]:
    """Measure a send with that number of connections, each with an open queue; memory per connection."""
    costs, memory = [], []

    async def measure(daemon: Daemon) -> None:
        first = await aio.connect(ADDRESS, daemon.port)
        await first.create_queue(".\\private$\\target")
        managers = [first]
        await asyncio.to_thread(sending, daemon, "target")
        base = daemon.resident
        for size in sizes(10_000, quick):
            while len(managers) < size:
                manager = await aio.connect(ADDRESS, daemon.port)
                await manager.open(".\\private$\\target", "send")
                managers.append(manager)
            if size >= 100:
                memory.append(Point(size, (daemon.resident - base) / size))
            costs.append(Point(size, await asyncio.to_thread(sending, daemon, "target")))
        for manager in managers:
            await manager.close()

    with server(directory, "connections") as daemon:
        uvloop.run(measure(daemon))
    yield measured("send, by connections with an open queue", "µs", costs, 0.1)
    yield measured("memory of a connection with an open queue", "bytes", memory, 0.1)


def bodies(directory: Path, quick: bool) -> Iterator[Line]:
    """Measure a send and a receive of a body of that size in bytes."""
    sends, receives = [], []
    with server(directory, "bodies") as daemon, daemon.connect() as manager:
        manager.create_queue(".\\private$\\bodies")
        with manager.open(".\\private$\\bodies", "send") as to, manager.open(".\\private$\\bodies") as queue:
            for size in (0, 1 << 10, 1 << 14, 1 << 17, 1 << 20, (4 << 20) - (64 << 10)):
                body, count = bytes(size), max(20, min(1000, (100 << 20) // max(size, 1)))
                count = count // 10 if quick else count

                def fill(body: bytes = body, count: int = count) -> int:
                    for _ in range(count):
                        to.send(body)
                    return count

                def drain(count: int = count) -> int:
                    for _ in range(count):
                        queue.receive(timeout=10)
                    return count

                sends.append(Point(max(size, 1), spent(daemon, fill)))
                receives.append(Point(max(size, 1), spent(daemon, drain)))
    yield measured("send, by bytes of the body", "µs", sends, 1.0)
    yield measured("receive, by bytes of the body", "µs", receives, 1.0)


def priorities(directory: Path, quick: bool) -> Iterator[Line]:
    """Measure a send and a receive with that number of priorities in use."""
    costs = []
    count = REPEATS // (10 if quick else 1)
    with server(directory, "priorities") as daemon, daemon.connect() as manager:
        manager.create_queue(".\\private$\\mixed")
        with manager.open(".\\private$\\mixed", "send") as to, manager.open(".\\private$\\mixed") as queue:
            for kinds in (1, 2, 4, 8):

                def work(kinds: int = kinds) -> int:
                    for number in range(count):
                        to.send(b"x", priority=number * 5 % kinds)
                    for _ in range(count):
                        queue.receive(timeout=10)
                    return count

                costs.append(Point(kinds, spent(daemon, work)))
    yield measured("send and receive, by priorities", "µs", costs, 0.1)


def transactions(directory: Path, quick: bool) -> Iterator[Line]:
    """Measure a send in a transaction with that number of messages, and its commit."""
    sends, commits = [], []
    with server(directory, "transactions") as daemon, daemon.connect() as manager:
        manager.create_queue(".\\private$\\tx", transactional=True)
        with manager.open(".\\private$\\tx", "send") as queue:
            for size in sizes(100_000, quick):
                rounds = max(1, REPEATS // size)
                begun, ended = 0.0, 0.0
                for _ in range(rounds):
                    transaction = manager.transaction()
                    with transaction:
                        before = systems.cpu(daemon.pid)
                        for _ in range(size):
                            queue.send(b"x", transaction=transaction)
                        begun += systems.cpu(daemon.pid) - before
                        before = systems.cpu(daemon.pid)
                    time.sleep(0.02 if rounds == 1 else 0)
                    ended += systems.cpu(daemon.pid) - before
                sends.append(Point(size, begun * 1e6 / (rounds * size)))
                commits.append(Point(size, ended * 1e6 / (rounds * size)))
    yield measured("send in a transaction, by its messages", "µs", sends, 0.1)
    yield measured("commit for each message, by the transaction's messages", "µs", commits, 0.1)


CURVES: dict[str, Callable[[Path, bool], Iterator[Line]]] = {
    curve.__name__: curve
    for curve in (queues, messages, waiting, connections, bodies, priorities, transactions)
}  # fmt: skip


def table(lines: list[Line]) -> str:
    """Return the section of RESULTS.md, which `lines_in` parses."""
    rows = [
        f"{results.CURVES}\n", __doc__.partition("\n\n    ")[0] + " " + " ".join(__doc__.split("\n\n")[2].split()),
        "", "| | | slope | |", "|---|---|--:|---|",
    ]  # fmt: skip
    for line in lines:
        points = ", ".join(f"{point.size:,}: {point.cost:,.0f}" for point in line.points)
        rows.append(f"| {line.name}, {line.unit} | {points} | {line.slope:.2f} | {line.verdict} |")
    return "\n".join([*rows, "", "![Cost curves](curves.svg)"])


def lines_in(section: str) -> list[Line]:
    """Return the curves of an earlier run from the table."""
    lines = []
    for name, unit, points, slope, verdict in re.findall(
        r"^\| (.+), (\S+) \| (\d.+) \| (\S+) \| (.*) \|$", section, re.M
    ):
        pairs = re.findall(r"([\d,]+): ([\d,]+)(?:, |$)", points)
        numbers = [Point(*(int(number.replace(",", "")) for number in pair)) for pair in pairs]
        lines.append(Line(name, unit, numbers, float(slope), verdict))
    return lines


def plot(lines: list[Line], path: Path) -> None:
    """Draw a small chart for each curve, all in one file."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    across = 3
    figure, axes = pyplot.subplots(-(-len(lines) // across), across, figsize=(13, 3 * -(-len(lines) // across)))
    for axis in axes.flat[len(lines) :]:
        axis.axis("off")
    for axis, line in zip(axes.flat, lines, strict=False):
        axis.plot([p.size for p in line.points], [p.cost for p in line.points], marker="o")
        axis.set(xscale="log", title=f"{line.name} (slope {line.slope:.2f})", ylabel=line.unit)
        axis.title.set_size(8)
        axis.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="up to a hundredth, and nothing is written")
    parser.add_argument("curves", nargs="*", metavar="CURVE", choices=[*CURVES, []], help=", ".join(CURVES))
    given = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as directory:
        for name in given.curves or CURVES:
            for line in CURVES[name](Path(directory), given.quick):
                lines.append(line)
                print(f"{line.name}, {line.unit}: slope {line.slope:.2f}", *line.points, sep="\n  ", flush=True)
    if not given.quick:
        earlier = lines_in(results.section(results.CURVES)) if given.curves else []
        merged = list({line.name: line for line in [*earlier, *lines]}.values())
        results.put(results.CURVES, table(merged))
        plot(merged, HERE / "curves.svg")


if __name__ == "__main__":
    main()
