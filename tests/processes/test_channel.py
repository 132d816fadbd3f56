"""The daemon's end of the channel to a child process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from openmsmq.processes.channel import RequestChannel
from openmsmq.processes.framing import HEADER, MAXIMUM_BYTES, MAXIMUM_JSON, frame

PATIENCE = 5.0  # seconds

Received = list[tuple[int, Any, bytes]]


def with_channel(steps: Callable[[RequestChannel, socket.socket, Received], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        received: Received = []

        def receive(channel: RequestChannel, number: int, values: Any, data: bytearray) -> None:
            received.append((number, values, bytes(data)))

        channel = await RequestChannel.open(ours, receive, "test")
        with theirs:
            async with asyncio.timeout(PATIENCE):
                await steps(channel, theirs, received)
                channel.close()
                await channel.closed.wait()
                await channel.send(b"ignored: the channel is closed")

    asyncio.run(main())


def test_a_send_returns_when_the_transport_takes_more() -> None:
    async def steps(channel: RequestChannel, theirs: socket.socket, received: Received) -> None:
        await channel.send(b"first")
        assert await asyncio.get_running_loop().sock_recv(theirs, 100) == b"first"
        channel.pause_writing()
        sending = asyncio.create_task(channel.send(b"second"))
        assert await asyncio.get_running_loop().sock_recv(theirs, 100) == b"second"
        assert not sending.done()
        channel.resume_writing()
        await sending
        channel.pause_writing()
        sending = asyncio.create_task(channel.send(b"third"))
        await asyncio.sleep(0)
        assert not sending.done()
        channel.close()
        await sending

    with_channel(steps)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_frames_arrive_whole_however_they_are_split(size: int) -> None:
    async def steps(channel: RequestChannel, theirs: socket.socket, received: Received) -> None:
        data = frame(1, {"a": 1}, b"bytes") + frame(2, {}) + frame((1 << 64) - 1, {"b": []}, bytes(300))
        for start in range(0, len(data), size):
            await asyncio.get_running_loop().sock_sendall(theirs, data[start : start + size])
            await asyncio.sleep(0)
        while len(received) < 3:
            await asyncio.sleep(0)
        assert received == [(1, {"a": 1}, b"bytes"), (2, {}, b""), ((1 << 64) - 1, {"b": []}, bytes(300))]

    with_channel(steps)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (HEADER.pack(1, MAXIMUM_JSON + 1, 0), f"a part of {MAXIMUM_JSON + 1} bytes"),
        (HEADER.pack(1, 2, MAXIMUM_BYTES + 1) + b"{}", f"a part of {MAXIMUM_BYTES + 1} bytes"),
        (HEADER.pack(1, 2, 0) + b"{x", "not JSON"),
        (HEADER.pack(1, 200_000, 0) + b"[" * 200_000, "not JSON"),
    ],
)
def test_a_frame_that_breaks_the_rules_closes_the_channel(
    data: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(channel: RequestChannel, theirs: socket.socket, received: Received) -> None:
        await asyncio.get_running_loop().sock_sendall(theirs, data)
        await channel.closed.wait()
        assert not received

    with_channel(steps)
    assert said in caplog.text and "the test process" in caplog.text


def test_parts_of_the_maximum_size_are_accepted() -> None:
    async def steps(channel: RequestChannel, theirs: socket.socket, received: Received) -> None:
        await asyncio.get_running_loop().sock_sendall(theirs, HEADER.pack(1, MAXIMUM_JSON, MAXIMUM_BYTES))
        while len(channel._parts) < 2:
            await asyncio.sleep(0)
        assert len(channel._parts[-1]) == MAXIMUM_JSON
        await asyncio.get_running_loop().sock_sendall(theirs, b"{}".ljust(MAXIMUM_JSON))
        while len(channel._parts) < 3:
            await asyncio.sleep(0)
        assert len(channel._parts[-1]) == MAXIMUM_BYTES and not channel.closed.is_set()

    with_channel(steps)
