"""The load generator, a process of its own: `python load.py JSON` repeats requests and prints what it measured.

Each connection has one request under way. An operation ends after `seconds` or `count` answers, whichever is first.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import uvloop
from wires import WIRES, Wire, openmsmq, openmsmq_waiting


class Caller(asyncio.Protocol):
    """Repeats the request of a wire on its connection."""

    def __init__(self, wire: Wire, run: Run) -> None:
        self.wire, self.run = wire, run
        self.rest = b""
        self.begun = 0.0
        self.answers = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def start(self) -> None:
        self.begun = time.perf_counter()
        self.transport.write(self.wire.request)

    def data_received(self, data: bytes) -> None:
        received = self.rest + data if self.rest else data
        count, failed, self.rest = self.wire.split(received)
        if not count and not failed:
            return
        now = time.perf_counter()
        self.answers += 1
        if self.answers % self.wire.steps and not failed:
            assert self.wire.follow is not None
            self.transport.write(self.wire.follow(received))
        elif self.run.note(now - self.begun, failed, now):
            self.begun = now
            self.transport.write(self.wire.follow(received) if self.wire.follow else self.wire.request)

    def connection_lost(self, error: Exception | None) -> None:
        self.run.over.set()


class Run:
    def __init__(self, seconds: float, count: int) -> None:
        self.seconds, self.count = seconds, count
        self.latencies: list[float] = []
        self.failed = 0
        self.over = asyncio.Event()
        self.end = self.last = 0.0

    def note(self, latency: float, failed: int, now: float) -> bool:
        """Whether to go on."""
        if failed:
            self.failed += failed
            self.over.set()
            return False
        self.latencies.append(latency)
        self.last = now
        if now >= self.end or len(self.latencies) >= self.count:
            self.over.set()
            return False
        return not self.over.is_set()


async def repeat(system: str, port: int, what: str, queue: str, connections: int, seconds: float, count: int) -> Run:
    run = Run(seconds, count)
    loop = asyncio.get_running_loop()
    callers = []
    for _ in range(connections):
        wire = WIRES[system](port, what, queue)
        wire.sock.setblocking(False)
        _, caller = await loop.create_connection(lambda wire=wire: Caller(wire, run), sock=wire.sock)
        callers.append(caller)
    begin = time.perf_counter()
    run.end = begin + seconds
    for caller in callers:
        caller.start()
    try:
        await asyncio.wait_for(run.over.wait(), seconds + 10)
    except TimeoutError:
        run.failed += 1
    run.seconds = run.last - begin
    return run


async def deliver(port: int, what: str, queue: str, count: int) -> Run:
    """From the send to the answer of a receive that waits on another connection."""
    run = Run(0, count)
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[int] = loop.create_future()

    class End(asyncio.Protocol):
        def __init__(self, wire: Wire, receives: bool) -> None:
            self.wire, self.receives, self.rest = wire, receives, b""
            self.done: asyncio.Future[float] = loop.create_future()

        def data_received(self, data: bytes) -> None:
            found, failed, self.rest = self.wire.split(self.rest + data)
            run.failed += failed
            if found and not self.done.done():
                self.done.set_result(time.perf_counter())

    ends = []
    for wire, receives in ((openmsmq_waiting(port, "receive", queue), True), (openmsmq(port, what, queue), False)):
        wire.sock.setblocking(False)
        transport, end = await loop.create_connection(lambda w=wire, r=receives: End(w, r), sock=wire.sock)
        ends.append((transport, end, wire))
    (receiving, receiver, asking), (sending, sender, giving) = ends
    begin = time.perf_counter()
    for _ in range(count):
        receiver.done, sender.done = loop.create_future(), loop.create_future()
        receiving.write(asking.request)
        await asyncio.sleep(0.002)  # the receive waits at the server
        sent = time.perf_counter()
        sending.write(giving.request)
        run.latencies.append(await receiver.done - sent)
        await sender.done
    run.seconds = time.perf_counter() - begin
    answered.cancel()
    return run


def main() -> None:
    options = json.loads(sys.argv[1])
    if options.pop("deliver", False):
        run = uvloop.run(deliver(**options))
    else:
        run = uvloop.run(repeat(**options))
    latencies = sorted(run.latencies) or [0.0]
    used = os.times()
    print(
        json.dumps(
            {
                "count": len(run.latencies),
                "rate": len(run.latencies) / run.seconds if run.seconds > 0 else 0,
                "p50": latencies[len(latencies) // 2] * 1e6,
                "p99": latencies[len(latencies) * 99 // 100] * 1e6,
                "failed": run.failed,
                "cpu": used.user + used.system,
            }
        )
    )


if __name__ == "__main__":
    main()
