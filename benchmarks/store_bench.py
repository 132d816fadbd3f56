"""Benchmark of the store, compared with bare `fdatasync` in the same run.

.venv/bin/python benchmarks/store_bench.py --messages 1000000 --directory /var/tmp
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from openmsmq.store import QueueColumns, Remove, Store

PAYLOAD = bytes(range(256)) * 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000, help="messages of 1 KiB for restart and draining")
    parser.add_argument("--directory", help="where to put the files (default: the temporary directory)")
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of each rate")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="store-bench-", dir=arguments.directory))
    try:
        appends(directory / "append")
        rates(directory, arguments.seconds)
        restarts(directory / "restart", arguments.messages)
    finally:
        shutil.rmtree(directory)


def report(what: str, figure: str) -> None:
    print(f"{what:<58} {figure}", flush=True)


def appends(directory: Path) -> None:
    """Measure the CPU time of appends, without writes."""
    store = Store.open(directory)
    best = 1e9
    for run in range(5):
        begin = time.process_time()
        for key in range(2000):
            store.insert(1, run * 2000 + key + 1, 0, PAYLOAD)
        best = min(best, (time.process_time() - begin) / 2000)
        store.sync()
    report("insert of 1 KiB, CPU without the write", f"{best * 1e6:.2f} µs")
    places = [store.insert(1, 100_000 + key, 0, PAYLOAD) for key in range(2000)]
    begin = time.process_time()
    for key, place in enumerate(places):
        store.remove(100_000 + key, place)
    report("removal, CPU without the write", f"{(time.process_time() - begin) / 2000 * 1e6:.2f} µs")
    store.sync()
    begin = time.process_time()
    for place in places:
        store.read(place)
    report("read of 1 KiB from the page cache, CPU", f"{(time.process_time() - begin) / 2000 * 1e6:.2f} µs")
    store.close()


def rates(directory: Path, seconds: float) -> None:
    """Measure append + sync, alternating with bare pwrite + fdatasync of the same bytes."""
    for batch in (1, 8, 64):
        executor = ThreadPoolExecutor(1)
        store = Store.open(directory / f"rate{batch}", background=executor.submit)
        bare = Bare(directory / f"bare{batch}", PAYLOAD * batch)
        key = 0

        def one(store: Store = store, batch: int = batch) -> None:
            nonlocal key
            for _ in range(batch):
                key += 1
                store.insert(1, key, 0, PAYLOAD)
            store.sync()

        ours: list[float] = []
        theirs: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            ours += [timed(one) for _ in range(20)]
            theirs += [timed(bare.write) for _ in range(20)]
        store.close()
        executor.shutdown()
        bare.close()
        ours.sort()
        theirs.sort()
        ours_p50, theirs_p50 = ours[len(ours) // 2], theirs[len(theirs) // 2]
        ours_mean, theirs_mean = sum(ours) / len(ours), sum(theirs) / len(theirs)
        report(
            f"append + sync, batch of {batch}",
            f"{batch / ours_mean:9.0f} messages/s; p50 {ours_p50 * 1e6:.0f} µs against {theirs_p50 * 1e6:.0f} µs bare"
            f" ({ours_p50 / theirs_p50:.2f}×; mean {ours_mean / theirs_mean:.2f}×)",
        )


class Bare:
    """The baseline: writes the same bytes into a prewritten file."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.size = 16 << 20
        self.data = data
        self.offset = 0
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT)
        os.pwrite(self.handle, bytes(self.size), 0)
        os.fsync(self.handle)

    def write(self) -> None:
        if self.offset + len(self.data) > self.size:
            self.offset = 0
        os.pwrite(self.handle, self.data, self.offset)
        os.fdatasync(self.handle)
        self.offset += len(self.data)

    def close(self) -> None:
        os.close(self.handle)


def timed(call: Callable[[], None]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def restarts(directory: Path, messages: int) -> None:
    store = Store.open(directory)
    columns = QueueColumns()
    begin = time.perf_counter()
    for key in range(1, messages + 1):
        columns.append(key, store.insert(1, key, 0, PAYLOAD), len(PAYLOAD), 0)
        if key % 256 == 0:
            store.sync()
    store.sync()
    report(f"{messages} messages written, 256 a sync", f"{messages / (time.perf_counter() - begin):.0f} messages/s")
    store.close()
    disk = sum(path.stat().st_blocks * 512 for path in directory.iterdir())
    report("disk a message", f"{disk / messages / 1024:.3f} KiB")

    del store
    gc.collect()
    before = resident()
    begin = time.perf_counter()
    store = Store.open(directory)
    report("restart by reading the log", f"{time.perf_counter() - begin:.3f} s")
    assert len(store.recovered.queues[1]) == messages
    gc.collect()
    report("memory of the recovered columns", f"{(resident() - before) / messages:.0f} bytes a message")
    begin = time.perf_counter()
    store.checkpoint(store.recovered.queues)
    report("writing a checkpoint", f"{time.perf_counter() - begin:.3f} s")
    store.close()
    del store
    begin = time.perf_counter()
    store = Store.open(directory)
    report("restart from the checkpoint", f"{time.perf_counter() - begin:.3f} s")
    assert store.recovered.report.from_checkpoint

    columns = store.recovered.queues[1]
    begin = time.perf_counter()
    kept = {}
    for row, (key, place) in enumerate(zip(columns.keys, columns.locations, strict=True)):
        if row % 1000 == 0:
            kept[key] = place
        else:
            store.remove(key, place)
        if row % 256 == 0:
            store.sync()
    store.sync()
    report("removals, 256 a sync", f"{messages / (time.perf_counter() - begin):.0f} messages/s")
    report("segments with one message in a thousand left", str(len(list(directory.glob("segment-*")))))

    def relocated(queue: int, key: int, deadline: int, _: int, new: int) -> None:
        kept[key] = new

    begin = time.perf_counter()
    longest = 0.0
    steps = 0
    while True:
        step = time.perf_counter()
        more = store.compact_step(lambda queue, key, deadline, place: kept.get(key) == place, relocated)
        longest = max(longest, time.perf_counter() - step)
        steps += 1
        if steps % 8 == 0 or not more:
            store.sync()
        if not more:
            break
    report(
        "compaction",
        f"{time.perf_counter() - begin:.3f} s, longest step {longest * 1e3:.1f} ms,"
        f" then {len(list(directory.glob('segment-*')))} segments",
    )
    store.append([Remove(key, place) for key, place in kept.items()])
    store.sync()
    report("segments after draining", str(len(list(directory.glob("segment-*")))))
    store.close()


if __name__ == "__main__":
    main()
