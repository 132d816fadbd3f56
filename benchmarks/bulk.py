"""Benchmark of the bulk plane: staging, browsing and receiving a million messages of 1 KiB over Arrow Flight, and the
latency of express sends meanwhile. Writes its own section of benchmarks/RESULTS.md.

.venv/bin/python benchmarks/bulk.py --messages 1000000
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import results

import openmsmq
from openmsmq.bulk.client import BulkClient, Range, Staged

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from daemon import Daemon

BODY = bytes(range(256)) * 4
PARTS = 2
QUEUE, EXPRESS = "bulk", "express"
SECONDS = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="bulk-bench-"))
    load = os.getloadavg()[0]
    try:
        with Daemon(directory / "data", "--flight", "--flight-port", "0") as daemon:
            text = measure(daemon, arguments.messages, load)
    finally:
        shutil.rmtree(directory)
    results.put(results.BULK, text)
    print(text)


def measure(daemon: Daemon, count: int, load: float) -> str:
    port = int(daemon.ready["endpoints"]["flight"]["port"])
    with daemon.connect() as manager:
        for name in (QUEUE, EXPRESS):
            manager.create_queue(f".\\private$\\{name}")
    client = BulkClient(port=port)
    rows: list[tuple[str, float]] = []

    def timed(what: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = work()
        rows.append((what, count / (time.perf_counter() - started)))
        return result

    with ProcessPoolExecutor(PARTS + 1, mp_context=get_context("spawn")) as pool:
        list(pool.map(time.sleep, [0.5] * (PARTS + 1)))

        def sink() -> None:
            stages = list(pool.map(stage, [port] * PARTS, range(PARTS), [count // PARTS] * PARTS))
            client.finalize("bench", 0, stages)

        def each(parts: tuple[Range, ...], options: dict[str, Any]) -> None:
            found = sum(pool.map(browse, [port] * len(parts), parts, [options] * len(parts)))
            assert found == count, found

        def receive() -> None:
            position = received = 0
            while (claim := client.claim(QUEUE, "bench", position, max_messages=100_000)).count:
                group = {"group": "bench", "token": claim.token}
                parts = client.plan(QUEUE, start=position, end=claim.end, partitions=PARTS, **group).ranges
                received += sum(pool.map(browse, [port] * len(parts), parts, [group] * len(parts)))
                position = claim.end
            assert received == count, received

        timed("sink: two stages, finalized", sink)
        parts = client.plan(QUEUE, partitions=PARTS).ranges
        timed("browse, all columns", lambda: each(parts, {}))
        timed("browse, body, label and sequence", lambda: each(parts, {"columns": ["body", "label", "sequence"]}))
        timed("browse without bodies", lambda: each(parts, {"include_body": False}))
        alone = pool.submit(latencies, daemon.port, SECONDS).result()
        readers = [pool.submit(browse_for, port, part, SECONDS + 1) for part in parts]
        time.sleep(0.5)
        loaded = pool.submit(latencies, daemon.port, SECONDS).result()
        streamed = sum(reader.result() for reader in readers) / (SECONDS + 1)
        timed("receive: claims of 100,000, removal included", receive)
    return report(count, load, rows, alone, loaded, streamed)


def report(
    count: int, load: float, rows: list[tuple[str, float]], alone: list[float], loaded: list[float], streamed: float
) -> str:
    lines = [
        results.BULK,
        "",
        f"Made by `benchmarks/bulk.py` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; do not edit.",
        f"{os.cpu_count()} × {platform.machine()}, Linux {platform.release()}, Python {platform.python_version()},",
        f"pyarrow {pa.__version__}. {count:,} recoverable messages of 1 KiB in one queue; two client processes, the",
        f"Flight process and the daemon share the processors. Load average when it began: {load:.1f}.",
        "",
        "| | rows per second |",
        "|---|--:|",
        *(f"| {what} | {rate:,.0f} |" for what, rate in rows),
        "",
        f"| express send, one connection, {SECONDS:.0f} s | sends per second | p50 µs | p99 µs | longest ms |",
        "|---|--:|--:|--:|--:|",
        _latency("alone", alone),
        _latency(f"while two readers stream ({streamed:,.0f} rows per second)", loaded),
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _latency(what: str, values: list[float]) -> str:
    ordered = sorted(values)
    p50, p99 = (ordered[int(len(ordered) * share)] * 1e6 for share in (0.5, 0.99))
    return f"| {what} | {len(values) / SECONDS:,.0f} | {p50:,.0f} | {p99:,.0f} | {ordered[-1] * 1e3:.1f} |"


# -- functions for child processes -----------------------------------------------------------------------------------


def stage(port: int, partition: int, count: int) -> Staged:
    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, count, 8192):
            rows = min(8192, count - start)
            yield pa.record_batch({"body": pa.array([BODY] * rows, pa.binary()), "label": pa.array(["order"] * rows)})

    with BulkClient(port=port) as client:
        return client.stage("bench", 0, partition, 0, batches(), default_queue=QUEUE)


def browse(port: int, part: Range, options: dict[str, Any]) -> int:
    with BulkClient(port=port) as client:
        return sum(batch.num_rows for batch in client.read(QUEUE, start=part.start, end=part.end, **options))


def browse_for(port: int, part: Range, seconds: float) -> int:
    """Stream repeatedly for some seconds."""
    count, deadline = 0, time.perf_counter() + seconds
    with BulkClient(port=port) as client:
        while True:
            for batch in client.read(QUEUE, start=part.start, end=part.end):
                count += batch.num_rows
                if time.perf_counter() >= deadline:
                    return count


def latencies(port: int, seconds: float) -> list[float]:
    found = []
    with openmsmq.connect("127.0.0.1", port) as manager, manager.open(f".\\private$\\{EXPRESS}", "send") as queue:
        deadline = time.perf_counter() + seconds
        while (started := time.perf_counter()) < deadline:
            queue.send(openmsmq.Message(body=b"x" * 100))
            found.append(time.perf_counter() - started)
    return found


if __name__ == "__main__":
    main()
