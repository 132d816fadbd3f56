"""Cost of waiting receives for the server: memory, CPU time, and the time to serve all of them.

.venv/bin/python benchmarks/waiters.py remoteread      # or qm2qm, qmcomm
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import uvloop
from systems import Daemon, cpu

from openmsmq import aio

QUEUE = ".\\private$\\waited"
CONNECTIONS, EACH = 200, 5


class Waiters(NamedTuple):
    """Costs. `connection` (with an open queue) and `waiter` are in bytes; `idle` is the server's CPU time in seconds
    per second of waiting; `served` is the time in seconds to serve all."""

    protocol: str
    connection: float
    waiter: float
    idle: float
    served: float


async def measure(daemon: Daemon, protocol: str, seconds: float) -> Waiters:
    """Measure 1,000 receives on 200 connections, each of which gets exactly one of 1,000 messages."""
    first = await aio.connect("127.0.0.1", daemon.port)
    await first.create_queue(QUEUE)
    sender = await first.open(QUEUE, "send")
    await serve_once(first, sender, protocol)
    before = daemon.resident
    managers = [await aio.connect("127.0.0.1", daemon.port) for _ in range(CONNECTIONS)]
    queues = [await manager.open(QUEUE, protocol=protocol) for manager in managers]
    opened = daemon.resident
    waiting = [asyncio.ensure_future(queue.receive()) for queue in queues for _ in range(EACH)]
    await asyncio.sleep(2)
    resident, spent = daemon.resident, cpu(daemon.pid)
    await asyncio.sleep(seconds)
    spent = cpu(daemon.pid) - spent
    begin = time.perf_counter()
    for number in range(len(waiting)):
        await sender.send(str(number))
    received = Counter([(await receive).decode() for receive in waiting])
    served = time.perf_counter() - begin
    assert received == Counter(map(str, range(len(waiting)))), "not each message reached exactly one waiter"
    for manager in [first, *managers]:
        await manager.close()
    return Waiters(
        protocol, (opened - before) / len(queues), (resident - opened) / len(waiting), spent / seconds, served
    )


async def serve_once(manager: aio.QueueManager, sender: aio.MessageQueue, protocol: str) -> None:
    """Serve one receive, so that one-time initialization of the server is done."""
    async with await manager.open(QUEUE, protocol=protocol) as queue:
        receiving = asyncio.ensure_future(queue.receive())
        await asyncio.sleep(0.1)
        await sender.send("first")
        await receiving


def waiters(directory: Path, protocol: str, seconds: float) -> Waiters:
    """Measure on a new server, since previously freed memory would hide the cost of waiters."""
    with Daemon(directory / f"waiters-{protocol}", "--log-level", "error") as daemon:
        return uvloop.run(measure(daemon, protocol, seconds))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for each in sys.argv[1:] or ("remoteread", "qm2qm", "qmcomm"):
            print(waiters(Path(temporary), each, 5))
