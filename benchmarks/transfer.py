"""Messages from one queue manager to another, on two loopback addresses of this machine.

    python benchmarks/transfer.py [--count 50000] [--kind express recoverable transactional] [--size 1024]

Messages are sent while the other queue manager is down, so that only the session is measured: from its opening until
the outgoing queue is empty. The rate at which eight local clients sent the same messages is also printed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from systems import cpu

import openmsmq

SENDERS, RECEIVERS = "127.0.81.1", "127.0.81.2"
CLIENTS = 8


@contextmanager
def daemon(directory: Path, address: str, name: str) -> Iterator[tuple[int, int]]:
    """Run a daemon; yields its process identifier and RPC port."""
    command = [sys.executable, "-m", "openmsmq.cli", "serve", "--data-dir", str(directory), "--listen", address]
    command += ["--endpoint-mapper-port", "0", "--rpc-port", "0", "--computer-name", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        try:
            yield process.pid, ready["endpoints"]["qmcomm"]["port"]
        finally:
            process.terminate()


def fill(port: int, name: str, kind: str, size: int, count: int) -> float:
    """Send from several clients concurrently. Returns the duration in seconds."""
    body = bytes(size)

    def send(share: int) -> None:
        with openmsmq.connect(SENDERS, port) as qm, qm.open(name, "send") as queue:
            if kind == "transactional":
                for start in range(0, share, 50):
                    with qm.transaction() as transaction:
                        for _ in range(min(50, share - start)):
                            queue.send(body, transaction=transaction)
            else:
                for _ in range(share):
                    queue.send(body, recoverable=kind == "recoverable")

    threads = [threading.Thread(target=send, args=(count // CLIENTS,)) for _ in range(CLIENTS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


def measure(kind: str, size: int, count: int) -> dict[str, Any]:
    """Measure one kind of message: seconds and rates."""
    count -= count % CLIENTS
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        queue = "tx" if kind == "transactional" else "plain"
        name = f"DIRECT=TCP:{RECEIVERS}\\private$\\{queue}"
        with daemon(directory / "b", RECEIVERS, "BETA") as (_, port), openmsmq.connect(RECEIVERS, port) as qm:
            qm.create_queue(f".\\private$\\{queue}", transactional=queue == "tx")
        with daemon(directory / "a", SENDERS, "ALPHA") as (sender, port), openmsmq.connect(SENDERS, port) as qm:
            local = fill(port, name, kind, size, count)
            with daemon(directory / "b", RECEIVERS, "BETA") as (receiver, other):
                path = f".\\private$\\{queue}"
                with openmsmq.connect(RECEIVERS, other) as far:
                    while not (already := int(far.management(path)["message_count"])):
                        time.sleep(0.002)
                    started, before = time.perf_counter(), (cpu(sender), cpu(receiver))
                    while (arrived := int(far.management(path)["message_count"])) < count:
                        time.sleep(0.02)
                seconds = time.perf_counter() - started
                assert arrived == count
                left = count - already
                spent = [after - then for after, then in zip((cpu(sender), cpu(receiver)), before, strict=True)]
    return {
        "kind": kind, "size": size, "messages": left, "local_per_second": round(count / local),
        "per_second": round(left / seconds), "megabytes_per_second": round(left * size / seconds / 1e6, 1),
        "sender_us": round(spent[0] * 1e6 / left, 1), "receiver_us": round(spent[1] * 1e6 / left, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--size", type=int, nargs="+", default=[1024])
    parser.add_argument("--kind", nargs="+", default=["express", "recoverable", "transactional"])
    given = parser.parse_args()
    for size in given.size:
        for kind in given.kind:
            count = given.count if size < 100_000 else max(given.count // 100, 8)
            print(json.dumps(measure(kind, size, count)), flush=True)


if __name__ == "__main__":
    main()
