"""Run the benchmarks: every system in its own processes, alternating, on the same disk, in one run.

    make bench                          # everything; needs rabbitmq-server, redis-server, postgresql for comparison
    .venv/bin/python benchmarks/run.py --quick

Writes benchmarks/RESULTS.md and keeps the sections of other benchmarks. Absolute figures depend on the machine and its
load; ratios within a run are more meaningful.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import measures
import results
import systems
from comparison import Comparison
from load import ENDLESS, deliver, load

CONNECTIONS = (1, 8, 64)
Result = dict[str, Any]


class Bench:
    """Measurements of openmsmq alone: costs and durations."""

    def __init__(self, directory: Path, seconds: float) -> None:
        self.directory, self.seconds = directory, seconds
        self.results: dict[tuple[str, int], Result] = {}
        self.delivered: dict[str, Result] = {}
        self.express_under_load: Result = {}
        self.syncs: list[tuple[float, float]] = []

    def sync(self) -> None:
        self.syncs.append(measures.fdatasync(self.directory, min(1.0, self.seconds)))

    def operation(self, daemon: systems.Daemon, what: str, queue: str, connections: int, count: int = ENDLESS) -> None:
        before = systems.cpu(daemon.pid)
        result = load(
            port=daemon.port, what=what, queue=queue, connections=connections, seconds=self.seconds, count=count
        )
        result["server"] = systems.cpu(daemon.pid) - before
        assert not result["failed"], f"{what}: {result['failed']} failures"
        print(f"  openmsmq {what} x{connections}: {result['rate']:,.0f}/s", flush=True)
        self.results[what, connections] = result

    def receives(self, daemon: systems.Daemon, queue: str, connections: int) -> None:
        """Fill a queue and receive fewer messages than it has, so that no receive waits in vain."""
        filled = load(port=daemon.port, what="durable send", queue=queue, connections=64, seconds=2 * self.seconds)
        self.operation(daemon, "receive", queue, connections, max(1, filled["count"] - 200))

    def openmsmq(self) -> None:
        with systems.openmsmq(self.directory / "alone") as daemon:
            with daemon.connect() as manager:
                for name in ("express", "durable", "receive1", "receive8", "receive64", "deliver"):
                    manager.create_queue(f".\\private$\\{name}")
            for connections in CONNECTIONS:
                self.operation(daemon, "null", "", connections)
                self.operation(daemon, "express send", "express", connections)
                self.sync()
                self.operation(daemon, "durable send", "durable", connections)
                self.receives(daemon, f"receive{connections}", connections)
            for what in ("express send", "durable send"):
                self.delivered[what] = asyncio.run(deliver(daemon.port, what, "deliver", int(300 * self.seconds)))
            with ThreadPoolExecutor(1) as pool:
                senders = pool.submit(
                    load, port=daemon.port, what="durable send", queue="durable", connections=8,
                    seconds=self.seconds + 1.5,
                )  # fmt: skip
                time.sleep(0.8)
                self.express_under_load = load(
                    port=daemon.port, what="express send", queue="express", seconds=self.seconds
                )
                senders.result()


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
        bench = Bench(directory, seconds)
        bench.openmsmq()
        comparison = Comparison(directory, seconds)
        comparison.run()
        print("  codec", flush=True)
        codec = measures.codec()
        print(f"  {messages:,} stored messages", flush=True)
        stored = measures.stored(directory, messages)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    results.put(results.MAIN, write(bench, comparison, codec, stored), given.output)
    print(given.output.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
