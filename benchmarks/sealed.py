"""The cost of signing and sealing: the server's CPU time per operation, by authentication level (NTLM).

    python benchmarks/sealed.py [--seconds 3] [--rounds 3]

Clients of the library in one process send and receive recoverable messages of 1 KiB, with one call at a time on each
connection. They take more time than the server, so rates are not meaningful. Levels alternate; medians are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import turns
from systems import cpu

import openmsmq.aio
from msrpc.rpc.pdu import AuthLevel
from openmsmq.accounts.users import UsersFile
from openmsmq.model.errors import ReceiveTimeout

USER, PASSWORD = "bench", "a password for a benchmark"
LEVELS = (None, AuthLevel.CONNECT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY)
BODY = bytes(range(256)) * 4
Operation = Callable[[openmsmq.aio.MessageQueue], Awaitable[None]]


async def send(queue: openmsmq.aio.MessageQueue) -> None:
    await queue.send(BODY, recoverable=True)


async def receive(queue: openmsmq.aio.MessageQueue) -> None:
    await queue.receive(0)


OPERATIONS = (("durable send", "send", send), ("receive", "receive", receive))


async def measure(port: int, pid: int, level: AuthLevel | None, connections: int, seconds: float) -> dict[str, float]:
    """Return the server's CPU time per operation in microseconds, by name."""
    security = {} if level is None else {"user": USER, "password": PASSWORD, "level": level}
    managers = [await openmsmq.aio.connect("127.0.0.1", port, **security) for _ in range(connections)]
    found = {}
    for name, access, operation in OPERATIONS:
        queues = [await manager.open("sealed", access, protocol="qmcomm") for manager in managers]
        end, done = time.monotonic() + seconds, 0

        async def work(queue: openmsmq.aio.MessageQueue, operation=operation, end=end) -> int:
            count = 0
            try:
                while time.monotonic() < end:
                    await operation(queue)
                    count += 1
            except ReceiveTimeout:  # all messages were received
                pass
            return count

        before = cpu(pid)
        done = sum(await asyncio.gather(*map(work, queues)))
        found[name] = (cpu(pid) - before) / done * 1e6
        for queue in queues:
            await queue.close()
    for manager in managers:
        await manager.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    checkout = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "data"
        directory.mkdir(mode=0o700)
        UsersFile(directory / "users.json").add(USER, PASSWORD, administrator=True)
        with turns.daemon(checkout, directory) as (pid, ports):
            with openmsmq.connect("127.0.0.1", ports["qmcomm"], user=USER, password=PASSWORD) as manager:
                manager.create_queue(".\\private$\\sealed")
            print("| level | connections | " + " | ".join(name for name, _, _ in OPERATIONS) + " |")
            for connections in (8, 64):
                rounds = [
                    {
                        level: asyncio.run(measure(ports["qmcomm"], pid, level, connections, arguments.seconds))
                        for level in LEVELS
                    }
                    for _ in range(arguments.rounds)
                ]
                for level in LEVELS:
                    cells = [
                        f"{statistics.median(each[level][name] for each in rounds):.0f}" for name, _, _ in OPERATIONS
                    ]
                    print(f"| {'anonymous' if level is None else level.name} | {connections} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
