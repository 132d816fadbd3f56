"""The benchmarks: every system as processes of its own, in turns on the same disk, in one run.

    make bench                          # all of it; needs rabbitmq-server, redis-server, postgresql for comparison
    .venv/bin/python benchmarks/run.py --quick

Writes benchmarks/RESULTS.md, and leaves the sections of other benchmarks there as they are. Figures of one machine
under changing load say little; the ratios within a run say more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import load as generator
import measures
import results
import systems
from load import ENDLESS
from load import load as native_load

ROUNDS = 3
CONNECTIONS = (1, 8, 64)
# Forms of the floor program, see floor.c; the last one computes for 20 µs for each message.
FLOORS = {"floor": ("in-place", 0), "floor, thread": ("thread", 0), "floor, 20 µs": ("in-place", 20_000)}
Result = dict[str, Any]


def load(**options: Any) -> Result:
    result = native_load(**options)
    print(f"  {options.get('system', 'openmsmq')} {options['what']} x{options.get('connections', 1)}: "
          f"{result['rate']:,.0f}/s, p50 {result['p50']:.0f}, p99 {result['p99']:.0f} us", flush=True)  # fmt: skip
    return result


class Bench:
    def __init__(self, directory: Path, seconds: float, messages: int) -> None:
        self.directory, self.seconds, self.messages = directory, seconds, messages
        self.results: dict[tuple[str, str, int], Result] = {}
        self.server_cpu: dict[tuple[str, int], float] = {}
        self.compared: dict[tuple[str, str, int], list[float]] = {}
        self.delivered: dict[str, Result] = {}
        self.express_under_load: Result = {}
        self.syncs: list[tuple[float, float]] = []
        self.missing: list[str] = []

    def sync(self) -> None:
        self.syncs.append(measures.fdatasync(self.directory, min(1.0, self.seconds)))

    def operation(self, system: str, port: int, what: str, queue: str, connections: int) -> Result:
        result = load(
            system=system, port=port, what=what, queue=queue, connections=connections, seconds=self.seconds,
            count=ENDLESS,
        )  # fmt: skip
        assert not result["failed"], f"{system} {what}: {result['failed']} failures"
        self.results[system, what, connections] = result
        return result

    def receives(self, system: str, port: int, queue: str, connections: int) -> None:
        """Receive what is put there before, less some: nobody waits for a message that does not come."""
        filled = load(
            system=system,
            port=port,
            what="durable send",
            queue=queue,
            connections=64,
            seconds=2 * self.seconds,
            count=ENDLESS,
        )["count"]
        result = load(
            system=system, port=port, what="receive", queue=queue, connections=connections, seconds=self.seconds,
            count=max(1, filled - 200),
        )  # fmt: skip
        self.results[system, "receive", connections] = result

    def openmsmq(self) -> None:
        with systems.openmsmq(self.directory / "alone") as daemon:
            with daemon.connect() as manager:
                for name in ("express", "durable", "receive1", "receive8", "receive64", "deliver"):
                    manager.create_queue(f".\\private$\\{name}")
            for connections in CONNECTIONS:
                self.operation("openmsmq", daemon.port, "null", "", connections)
                self.operation("openmsmq", daemon.port, "express send", "express", connections)
                self.sync()
                before = systems.cpu(daemon.pid)
                result = self.operation("openmsmq", daemon.port, "durable send", "durable", connections)
                self.server_cpu["durable send", connections] = (
                    (systems.cpu(daemon.pid) - before) / result["count"] * 1e6
                )
                self.receives("openmsmq", daemon.port, f"receive{connections}", connections)
            for what in ("express send", "durable send"):
                self.delivered[what] = asyncio.run(
                    generator.deliver(daemon.port, what, "deliver", int(300 * self.seconds))
                )
            with ThreadPoolExecutor(1) as pool:
                senders = pool.submit(
                    load, system="openmsmq", port=daemon.port, what="durable send", queue="durable", connections=8,
                    seconds=self.seconds + 1.5,
                )  # fmt: skip
                time.sleep(0.8)
                self.express_under_load = load(
                    system="openmsmq", port=daemon.port, what="express send", queue="express", connections=1,
                    seconds=self.seconds,
                )  # fmt: skip
                senders.result()

    def compare(self) -> None:
        """All systems in turns, several rounds: what else the machine does then hits them alike."""
        there = systems.installed()
        self.missing = [name for name, installed in there.items() if not installed]
        ports: dict[str, tuple[int, str]] = {}
        with contextlib.ExitStack() as stack:
            daemon = stack.enter_context(systems.openmsmq(self.directory))
            with daemon.connect() as manager:
                manager.create_queue(".\\private$\\compared")
            ports["openmsmq"] = daemon.port, "compared"
            if there["rabbitmq"]:
                port = stack.enter_context(systems.rabbitmq(self.directory))
                ports["rabbitmq classic"], ports["rabbitmq quorum"] = (port, "classic"), (port, "quorum")
            if there["redis"]:
                ports["redis"] = stack.enter_context(systems.redis(self.directory)), "compared"
            if there["postgresql"]:
                ports["postgresql"] = stack.enter_context(systems.postgresql(self.directory)), "compared"
            for _ in range(ROUNDS):
                for connections in CONNECTIONS:
                    self.sync()
                    for system, (port, queue) in ports.items():
                        self.turn(system, port, queue, connections)
                    for form, (options, work) in FLOORS.items():
                        self.floor_turn(form, options, work, connections)

    def floor_turn(self, name: str, form: str, work: int, connections: int) -> None:
        """What the same system calls alone make, in the same round."""
        for what, operation in systems.FLOOR_OPERATIONS.items():
            with systems.floor(self.directory, form, work, operation) as (port, _):
                result = generator.floor(port, operation.request, operation.answer, connections, self.seconds / ROUNDS)
            assert not result["failed"], f"{name} {what}: {result['failed']} failures"
            print(f"  {name} {what} x{connections}: {result['rate']:,.0f}/s", flush=True)
            self.compared.setdefault((name, what, connections), []).append(float(result["rate"]))

    def turn(self, system: str, port: int, queue: str, connections: int) -> None:
        """Send, put more there, and receive some of it."""
        cell = self.seconds / ROUNDS
        options: Result = {"system": system, "port": port, "queue": queue, "count": ENDLESS, "seconds": cell}
        sent = load(**options, what="durable send", connections=connections)
        filling = load(**options, what="fill" if system == "redis" else "durable send", connections=64)
        enough = max(1, int(0.9 * filling["count"]))
        received = load(**{**options, "count": enough}, what="receive", connections=connections)
        for what, result in (("durable send", sent), ("receive", received)):
            assert not result["failed"], f"{system} {what}: {result['failed']} failures"
            self.compared.setdefault((system, what, connections), []).append(float(result["rate"]))

    def rate(self, system: str, what: str, connections: int) -> float:
        """The median of the rounds of the comparison, 0 for what was not measured."""
        rounds = self.compared.get((system, what, connections))
        return statistics.median(rounds) if rounds else 0.0


def main() -> None:
    from report import write

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short rates and 50,000 messages")
    parser.add_argument("--messages", type=int, help="stored messages for the restart (default 1,000,000)")
    parser.add_argument("--seconds", type=float, help="duration of each rate (default 5)")
    parser.add_argument("--directory", help="where servers keep their files (default: the temporary directory)")
    parser.add_argument("--output", type=Path, default=results.RESULTS)
    given = parser.parse_args()
    seconds = given.seconds or (1.0 if given.quick else 5.0)
    messages = given.messages or (50_000 if given.quick else 1_000_000)
    directory = Path(tempfile.mkdtemp(prefix="openmsmq-bench-", dir=given.directory))
    directory.chmod(0o755)  # PostgreSQL runs as another user
    try:
        bench = Bench(directory, seconds, messages)
        bench.openmsmq()
        bench.compare()
        print("  codec", flush=True)
        codec = measures.codec()
        print(f"  {messages:,} stored messages", flush=True)
        stored = measures.stored(directory, messages)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    results.put(results.MAIN, write(bench, codec, stored, systems.machine()), given.output)
    print(given.output.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
