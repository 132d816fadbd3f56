"""Reading from another machine: rates of two-phase reads, management calls, and the cost of waiting receives.

    .venv/bin/python benchmarks/remote_reading.py [--quick | --seconds 5]

Writes its own section of benchmarks/RESULTS.md; the section of run.py is kept.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import measures
import results
import systems
from waiters import CONNECTIONS, EACH, Waiters, waiters

Load = Callable[..., dict[str, Any]]
WAITER_BAR = 4096  # bytes
PARALLEL = (1, 8, 64)
KIB, MIB = 1 << 10, 1 << 20
LARGE = 300  # messages of 1 MiB per rate
ENDLESS = 10**9
SPARE = 200  # messages that remain, so that no receive waits in vain
# Protocol, size of the body.
READS = (("remoteread", KIB), ("qm2qm", KIB), ("remoteread", MIB))
NOTES = """\
A receive with its acknowledgment is two calls, R_StartReceive and R_EndReceive of MS-MQRR or RemoteQMStartReceive2 and
RemoteQMEndReceive of MS-MQQP, of recoverable messages; the second one is answered after `fdatasync`. A management call
is R_QMMgmtGetInfo with all 27 properties of one queue. One operation under way on each connection.
"""


class Rate(NamedTuple):
    """A rate. `cpu` is the server's CPU time per operation in microseconds."""

    what: str
    connections: int
    result: dict[str, Any]
    cpu: float


def rates(directory: Path, seconds: float, load: Load) -> Iterator[Rate]:
    with systems.openmsmq(directory / "remote") as daemon:

        def rate(name: str, connections: int, **options: Any) -> Rate:
            before = systems.cpu(daemon.pid)
            result = load(port=daemon.port, connections=connections, seconds=seconds, **options)
            assert not result["failed"], f"{name}: {result['failed']} failures"
            return Rate(name, connections, result, (systems.cpu(daemon.pid) - before) / result["count"] * 1e6)

        for protocol, size in READS:
            name = f"{protocol}, {'1 KiB' if size == KIB else '1 MiB'}"
            for connections in PARALLEL:
                queue = f"{protocol}{size}x{connections}"
                count = fill(daemon, queue, size, seconds, load)
                yield rate(name, connections, system="two phases", what=protocol, queue=queue, count=count)
        with daemon.connect() as manager:
            manager.create_queue(".\\private$\\managed")
        for connections in PARALLEL:
            what = "R_QMMgmtGetInfo"
            yield rate(what, connections, system="management", what=what, queue="managed", count=ENDLESS)


def fill(daemon: systems.Daemon, queue: str, size: int, seconds: float, load: Load) -> int:
    """Fill a queue with more messages than will be received. Returns how many may be received."""
    with daemon.connect() as manager:
        manager.create_queue(f".\\private$\\{queue}")
        if size > KIB:
            with manager.open(f".\\private$\\{queue}", "send") as sender, ThreadPoolExecutor(8) as threads:
                body = bytes(size)
                for sent in [threads.submit(sender.send, body, recoverable=True) for _ in range(LARGE + 64)]:
                    sent.result()
            return LARGE
    filled = load(
        system="openmsmq", port=daemon.port, what="durable send", queue=queue, connections=64, seconds=seconds,
        count=ENDLESS,
    )["count"]  # fmt: skip
    return max(1, filled - SPARE)


class Surroundings(NamedTuple):
    """The load average of the machine, and the p50 of a bare write and `fdatasync` in microseconds."""

    load: float
    sync: float

    @classmethod
    def measure(cls, directory: Path) -> Surroundings:
        return cls(os.getloadavg()[0], measures.fdatasync(directory, 1.0)[0])


def section(
    measured: list[Rate], waited: list[Waiters], seconds: float, around: tuple[Surroundings, Surroundings]
) -> str:
    return "\n".join(_lines(measured, waited, seconds, around)) + "\n"


def _lines(
    measured: list[Rate], waited: list[Waiters], seconds: float, around: tuple[Surroundings, Surroundings]
) -> Iterator[str]:
    before, after = around
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    yield (
        f"{results.REMOTE}\n\nMade by `benchmarks/remote_reading.py` on {when}; do not edit. {systems.machine()}, "
        f"Python {platform.python_version()}; {seconds:g} s for each rate. Before the rates and after them the load "
        f"average of the machine was {before.load:.1f} and {after.load:.1f}, and the p50 of a bare write and "
        f"`fdatasync` of 1.2 KiB {before.sync:.0f} and {after.sync:.0f} µs.\n\n{NOTES}"
    )
    yield "| | connections | per second | p50 µs | p99 µs | server CPU µs |\n|---|--:|--:|--:|--:|--:|"
    for what, connections, result, cpu in measured:
        yield (
            f"| {what} | {connections} | {result['rate']:,.0f} | {result['p50']:,.0f} | {result['p99']:,.0f} "
            f"| {cpu:,.0f} |"
        )
    yield (
        f"\n{CONNECTIONS * EACH:,} receives that wait, {EACH} on each of {CONNECTIONS} connections, and then as many "
        "express sends from one connection; each message reached exactly one of them. Memory is the growth of the "
        "resident set; a connection is measured with its open queue, before the receives.\n\n"
        "| | a connection, bytes | a waiter, bytes | bar | | CPU while waiting, s per 10 s | all served, s |\n"
        "|---|--:|--:|--:|---|--:|--:|"
    )
    for each in waited:
        met = "met" if each.waiter <= WAITER_BAR else "**missed**"
        yield (
            f"| {each.protocol} | {each.connection:,.0f} | {each.waiter:,.0f} | ≤ {WAITER_BAR:,} | {met} "
            f"| {10 * each.idle:.2f} | {each.served:.2f} |"
        )


def main() -> None:
    from run import load

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 s for each rate")
    parser.add_argument("--seconds", type=float, help="duration of each rate (default 5)")
    parser.add_argument("--output", type=Path, default=results.RESULTS)
    given = parser.parse_args()
    seconds = given.seconds or (1.0 if given.quick else 5.0)
    with tempfile.TemporaryDirectory(prefix="openmsmq-bench-") as temporary:
        directory = Path(temporary)
        before = Surroundings.measure(directory)
        measured = list(rates(directory, seconds, load))
        after = Surroundings.measure(directory)
        waited = [waiters(directory, protocol, 10) for protocol in ("remoteread", "qm2qm", "qmcomm")]
    written = section(measured, waited, seconds, (before, after))
    results.put(results.REMOTE, written, given.output)
    print(written)


if __name__ == "__main__":
    main()
