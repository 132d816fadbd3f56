"""Requests read and answered by native code through an event loop and real sockets: many peers, slow peers, and peers
that disconnect."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from compiled.test_fast_path import (
    OPEN,
    SEND,
    LocalServer,
)
from compiled.test_requests import express, request
from msrpc.rpc.client_connection import ClientConnection
from msrpc.rpc.connection_states import REPLIES_BLOCKED
from msrpc.rpc.pdu import SyntaxId
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces import ms_mqrr
from openmsmq.model.constants import Access
from protocols.clients import queue_format
from waiting import until


class Stream:
    """A TCP client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, address: tuple[str, int], room: int = 1 << 16) -> Stream:
        """Connect with a receive buffer of `room` bytes, and bind."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
        stream, core = cls(*await asyncio.open_connection(sock=sock)), ClientConnection()
        interfaces = (m.qmcomm, m.qmcomm2, ms_mqrr.RemoteRead)
        core.bind([SyntaxId(interface.uuid, interface.version) for interface in interfaces])
        stream.writer.write(core.data_to_send())
        core.receive_data(await stream.pdu())
        return stream

    async def pdu(self) -> bytes:
        head = await self.reader.readexactly(16)
        return head + await self.reader.readexactly(int.from_bytes(head[8:10], "little") - len(head))

    async def ask(self, opnum: int, stub: bytes, call: int) -> bytes:
        self.writer.write(request(1, opnum, stub, call))
        answer = await asyncio.wait_for(self.pdu(), 10)
        assert answer[2] == 2 and answer[12] == call
        return answer

    async def ready(self) -> None:
        """Open a queue, so that native code reads this connection."""
        target = queue_format("a")
        opening = m.rpc_QMOpenQueueInternal_Request(target, Access.SEND, 0, 0, None, 0, bytes(16), "", 0, 0)
        self.writer.write(request(0, OPEN.opnum, OPEN.encode_request(opening), 1))
        answer = await asyncio.wait_for(self.pdu(), 10)
        self.handle = OPEN.decode_response(answer[24:]).phQueue
        await self.send(2)

    async def send(self, call: int) -> None:
        """Send an express message."""
        answer = await self.ask(SEND.opnum, express(self.handle), call)
        assert answer[-4:] == bytes(4)


def through_a_loop(scenario: Callable[[LocalServer, tuple[str, int]], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario with a listening server."""

    async def run() -> None:
        local, loop = LocalServer(True), asyncio.get_running_loop()

        def when_durable(callback: Callable[[], object], calls: int = 1) -> None:
            loop.call_soon(synced, callback)

        def synced(callback: Callable[[], object]) -> None:
            callback()
            local.rpc.flush()

        local.server.environment.when_durable = when_durable
        address = await local.rpc.listen("127.0.0.1", 0)
        try:
            await scenario(local, address)
        finally:
            local.rpc.close()
            await until(lambda: not local.rpc.connections)

    asyncio.run(run())


def test_all_sockets_are_read_even_if_one_poll_does_not_return_them_all() -> None:
    async def scenario(local: LocalServer, address: tuple[str, int]) -> None:
        streams = [await Stream.open(address) for _ in range(150)]
        for stream in streams:
            await stream.ready()
        before = len(local.server.world.queue("a"))
        await asyncio.gather(*(stream.send(5) for stream in streams))
        assert len(local.server.world.queue("a")) == before + 150
        for stream in streams:
            stream.writer.close()
        await until(lambda: not local.rpc.connections)

    through_a_loop(scenario)


@pytest.mark.parametrize("rude", [False, True])
def test_a_disconnected_peer_is_removed_and_the_others_are_served(rude: bool) -> None:
    async def scenario(local: LocalServer, address: tuple[str, int]) -> None:
        going, staying = await Stream.open(address), await Stream.open(address)
        for stream in (going, staying):
            await stream.ready()
        if rude:
            sock = going.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        going.writer.close()
        await until(lambda: len(local.rpc.connections) == 1)
        for call in range(5):
            await staying.send(call + 3)
        staying.writer.write_eof()
        assert await asyncio.wait_for(staying.reader.read(), 10) == b""
        await until(lambda: not local.rpc.connections)

    through_a_loop(scenario)


def test_a_fragmented_request_and_whole_ones_after_it_are_answered() -> None:
    async def scenario(local: LocalServer, address: tuple[str, int]) -> None:
        stream = await Stream.open(address)
        await stream.ready()
        pdus = b"".join(request(1, SEND.opnum, express(stream.handle), 10 + call) for call in range(6))
        for end in (5, 30, 700, 701, len(pdus)):
            read = local.rpc.statistics.packets_in
            stream.writer.write(pdus[:end])
            pdus = pdus[end:]
            await until(lambda read=read: local.rpc.statistics.packets_in > read)  # type: ignore[misc]
        answers = [(await asyncio.wait_for(stream.pdu(), 10))[12] for _ in range(6)]
        assert answers == list(range(10, 16))
        await stream.send(77)
        stream.writer.close()

    through_a_loop(scenario)


def test_nothing_is_read_from_a_peer_that_does_not_read_until_it_does() -> None:
    async def scenario(local: LocalServer, address: tuple[str, int]) -> None:
        stream = await Stream.open(address, room=4096)
        await stream.ready()
        (connection,) = local.rpc.connections
        transport: Any = connection._transport
        transport.set_write_buffer_limits(high=0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        stream.reader._transport.pause_reading()  # type: ignore[attr-defined]
        count = 6000
        for call in range(count):
            stream.writer.write(request(1, SEND.opnum, express(stream.handle), 100 + call))
        seen: list[int] = []

        def is_still() -> bool:
            """Whether the queue has not grown in 100 checks and the connection is paused."""
            seen.append(len(local.server.world.queue("a")))
            return connection._read_state & REPLIES_BLOCKED and seen[-100:] == [seen[-1]] * 100

        await until(is_still)
        assert seen[-1] < count
        stream.reader._transport.resume_reading()  # type: ignore[attr-defined]
        calls = [int.from_bytes((await asyncio.wait_for(stream.pdu(), 10))[12:16], "little") for _ in range(count)]
        assert calls == list(range(100, 100 + count))
        stream.writer.close()

    through_a_loop(scenario)
