"""Null calls over loopback, with server and clients in separate processes.

python benchmarks/rpc_loopback.py
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Coroutine
from typing import Any

import uvloop
from rpc_core import ECHO, Null, acceptor

from msrpc.rpc import aio, client
from msrpc.rpc.call import InterfaceTable
from msrpc.rpc.credentials import Credentials
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.server import RpcServer

SECONDS = 1.5


async def serve() -> None:
    server = RpcServer(InterfaceTable([Null()]), acceptor=acceptor())
    _, port = await server.listen("127.0.0.1", 0)
    print(port, flush=True)
    await asyncio.sleep(3600)


async def load(port: int, connections: int, depth: int, level: AuthLevel) -> tuple[float, float, float]:
    """Return calls per second, and the median and 99th percentile of the latency in microseconds."""
    credentials = Credentials("bench", "bench") if level > AuthLevel.NONE else None
    clients = [await aio.connect("127.0.0.1", port, credentials=credentials, level=level) for _ in range(connections)]
    for one in clients:
        await one.bind(ECHO.uuid, ECHO.version)
    latencies: list[float] = []
    end = time.perf_counter() + SECONDS

    async def caller(one: aio.AsyncConnection) -> None:
        before = time.perf_counter()
        while before < end:
            await one.call(0, b"")
            now = time.perf_counter()
            latencies.append(now - before)
            before = now

    begin = time.perf_counter()
    await asyncio.gather(*(caller(one) for one in clients for _ in range(depth)))
    rate = len(latencies) / (time.perf_counter() - begin)
    latencies.sort()
    return rate, latencies[len(latencies) // 2] * 1e6, latencies[len(latencies) * 99 // 100] * 1e6


def blocking(port: int) -> float:
    with client.connect("127.0.0.1", port) as connection:
        connection.bind(ECHO.uuid, ECHO.version)
        calls, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < SECONDS:
            for _ in range(100):
                connection.call(0, b"")
            calls += 100
        return calls / (time.perf_counter() - begin)


def run(coroutine: Coroutine[Any, Any, Any], loop: str) -> Any:
    return uvloop.run(coroutine) if loop == "uvloop" else asyncio.run(coroutine)


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        run(serve(), sys.argv[2])
        return
    for loop in ("asyncio", "uvloop"):
        with subprocess.Popen([sys.executable, __file__, "serve", loop], stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            for level in (AuthLevel.NONE, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY):
                for connections, depth in ((1, 1), (8, 1), (8, 8)):
                    rate, p50, p99 = run(load(port, connections, depth, level), loop)
                    what = f"{loop:8}{level.name:14} {connections} connections x {depth}"
                    print(f"{what}: {rate:7.0f} calls/s, p50 {p50:.0f} us, p99 {p99:.0f} us")
            print(f"{loop:8}blocking client, 1 connection: {blocking(port):.0f} calls/s")
            server.kill()


if __name__ == "__main__":
    main()
