"""The load generator: connections that repeat prepared requests. It is a native program (`load.c`, compiled on first
use) whose small CPU usage is the same for all servers.

    python benchmarks/load.py JSON      arguments of `load`, or of `deliver` with "deliver": true

An operation ends after `seconds` or `count` responses, whichever is first.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import uvloop
from wires import Wire, connect, openmsmq, openmsmq_waiting

HERE = Path(__file__).parent
ENDLESS = 10**9
Result = dict[str, Any]


@cache
def program(name: str) -> Path:
    """Compile a C program of this directory for this process and return its path. Raises CalledProcessError."""
    directory = tempfile.TemporaryDirectory(prefix="openmsmq-bench-")
    atexit.register(directory.cleanup)
    made = Path(directory.name, name)
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-pthread", HERE / f"{name}.c", "-o", made], check=True)
    return made


def load(
    *, port: int, what: str, queue: str = "", system: str = "openmsmq", connections: int = 1, seconds: float = 1e9,
    count: int = ENDLESS, depth: int = 1,
) -> Result:  # fmt: skip
    """Repeat an operation with `depth` concurrent requests on each connection.

    Returns:
        `count`, `rate` per second, `p50`, `p99` and `p999` in microseconds, `failed`, and `cpu` seconds of the load
        generator.
    """
    with opened(connect(system, port, what, queue, depth) for _ in range(connections)) as wires:
        return repeat(wires, seconds, count, depth)


@contextmanager
def opened(connections: Iterable[Wire]) -> Iterator[list[Wire]]:
    """Yield connections and close them at the end."""
    wires = list(connections)
    try:
        yield wires
    finally:
        for wire in wires:
            wire.sock.close()


def repeat(wires: list[Wire], seconds: float, count: int = ENDLESS, depth: int = 1) -> Result:
    """Do what `load` does on open connections, which can be for several operations. Raises RuntimeError."""
    kinds = list(dict.fromkeys(_kind(wire) for wire in wires))
    prepared = b""
    for wire in wires:
        wire.sock.setblocking(True)
        prepared += struct.pack("=iII", wire.sock.fileno(), kinds.index(_kind(wire)), len(wire.requests))
        prepared += b"".join(struct.pack("=I", len(request)) + request for request in wire.requests)
    command = [str(argument) for argument in (program("load"), seconds, count, depth, *kinds)]
    done = subprocess.run(
        command, input=prepared, capture_output=True, check=False, pass_fds=[wire.sock.fileno() for wire in wires]
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-2000:])
    result: Result = json.loads(done.stdout)
    return result


def _kind(wire: Wire) -> str:
    """Return the parameters of a connection for `load.c`."""
    return ",".join(str(part) for part in (wire.cut, wire.size, wire.steps, *wire.copies, int(wire.listens)))


class _End(asyncio.Protocol):
    """One side of a delivery: records when a response arrives."""

    def __init__(self) -> None:
        self.done: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self.done.done():
            self.done.set_result(time.perf_counter())


async def deliver(port: int, what: str, queue: str, count: int) -> Result:
    """Measure the time from a send to the response of a waiting receive on another connection."""
    loop = asyncio.get_running_loop()
    ends = []
    for wire in (openmsmq_waiting(port, "receive", queue), openmsmq(port, what, queue)):
        wire.sock.setblocking(False)
        _, end = await loop.create_connection(_End, sock=wire.sock)
        ends.append((end, wire))
    (receiver, asking), (sender, giving) = ends
    begin, latencies = time.perf_counter(), []
    for _ in range(count):
        receiver.done, sender.done = loop.create_future(), loop.create_future()
        receiver.transport.write(asking.requests[0])
        await asyncio.sleep(0.002)  # until the receive is waiting at the server
        sent = time.perf_counter()
        sender.transport.write(giving.requests[0])
        latencies.append(await receiver.done - sent)
        await sender.done
    seconds = time.perf_counter() - begin
    latencies.sort()
    p50, p99 = (latencies[int(count * share)] * 1e6 for share in (0.5, 0.99))
    return {"count": count, "rate": count / seconds, "p50": p50, "p99": p99, "failed": 0}


def main() -> None:
    options = json.loads(sys.argv[1])
    result = uvloop.run(deliver(**options)) if options.pop("deliver", False) else load(**options)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
