"""The asyncio server with correct, faulty and silent clients."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest
from rpc.accounts import TESTER, acceptor
from rpc.toys import BIG, ECHO, OPEN, REVERSE, WAIT, WHO, Toy

from msrpc.errors import LoginRefused, RpcConnectionError
from msrpc.rpc import aio
from msrpc.rpc.bind_pdus import Bind, PresentationContext
from msrpc.rpc.call import InterfaceTable
from msrpc.rpc.call_pdus import RequestPdu
from msrpc.rpc.credentials import Credentials, filetime
from msrpc.rpc.faults import RpcFault
from msrpc.rpc.limits import RpcLimits
from msrpc.rpc.pdu import NDR, AuthLevel
from msrpc.rpc.server import BY_POLLER, RpcServer, ServerLimits, _Connection
from waiting import until

BIND = Bind(1, (PresentationContext(0, ECHO, (NDR,)),)).pack()


def serve(scenario: Callable[[RpcServer, Toy, int], Awaitable[None]], **arguments: Any) -> None:
    """Run the scenario against a server in the same loop."""

    async def run() -> None:
        toy = Toy()
        server = RpcServer(InterfaceTable([toy]), acceptor=acceptor(os.urandom, filetime), **arguments)
        _, port = await server.listen("127.0.0.1", 0)
        try:
            async with asyncio.timeout(10):
                await scenario(server, toy, port)
        finally:
            server.close()
            await asyncio.sleep(0)

    asyncio.run(run())


@pytest.mark.parametrize("level", [None, *list(AuthLevel)[2:3], *list(AuthLevel)[4:]])
@pytest.mark.parametrize("spnego", [False, True])
def test_many_calls_share_a_connection_at_every_level(level: AuthLevel | None, spnego: bool) -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        credentials = TESTER if level else None
        async with await aio.connect("127.0.0.1", port, credentials=credentials, level=level, spnego=spnego) as client:
            await client.bind(ECHO.uuid, ECHO.version)
            stubs = [bytes([n]) * n * 100 for n in range(40)]
            assert await asyncio.gather(*(client.call(REVERSE, stub) for stub in stubs)) == stubs
            assert (b"tester" in await client.call(WHO, b"")) == bool(level)

    serve(scenario)


def test_a_call_that_waits_does_not_hold_up_others_and_can_be_cancelled() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        client = await aio.connect("127.0.0.1", port)
        await client.bind(ECHO.uuid, ECHO.version)
        waiting = asyncio.create_task(client.call(WAIT, b""))
        answered = asyncio.create_task(client.call(WAIT, b""))
        assert await client.call(REVERSE, b"ab") == b"ba"
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: toy.cancelled)
        assert toy.cancelled == toy.waiting[:1]
        toy.waiting[1].reply(b"late")
        assert await answered == b"late"
        assert await client.call(REVERSE, b"ab") == b"ba"

    serve(scenario)


def test_the_answer_to_a_cancelled_call_with_patience_is_kept() -> None:
    """C706 9.1.1.4: a canceled call may still be carried out; its answer tells."""
    late: list[bytes] = []

    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        client = await aio.connect("127.0.0.1", port)
        await client.bind(ECHO.uuid, ECHO.version)
        for patience, acts in (
            (5.0, lambda call: call.reply(b"late")), (5.0, lambda call: call.fault(1)), (0.01, lambda call: None)
        ):  # fmt: skip
            toy.waiting.clear()
            waiting = asyncio.create_task(client.exchange(WAIT, b"", patience=patience))
            await until(lambda: toy.waiting)
            toy.waiting[0].on_cancel = partial(acts, toy.waiting[0])
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError) as ended:
                await waiting
            late.append(ended.value.response.stub if isinstance(ended.value, aio.AnsweredLate) else b"")
        assert late == [b"late", b"", b""]
        toy.waiting[0].reply(b"too late")
        assert await client.call(REVERSE, b"ab") == b"ba"

    serve(scenario)


def test_a_lost_connection_cancels_its_calls_before_handles_run_down() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        client = await aio.connect("127.0.0.1", port)
        await client.bind(ECHO.uuid, ECHO.version)
        await client.call(OPEN, b"")
        task = asyncio.create_task(client.call(WAIT, b""))
        await until(lambda: toy.waiting)
        client.close()
        with pytest.raises(RpcConnectionError):
            await task
        await until(lambda: toy.rundowns)
        assert toy.cancelled == toy.waiting
        assert len(server.associations) == 0
        assert not server.connections

    serve(scenario)


def test_a_wrong_password_shows_at_the_first_call() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        client = await aio.connect("127.0.0.1", port, credentials=Credentials("tester", "wrong"))
        await client.bind(ECHO.uuid, ECHO.version)
        with pytest.raises(LoginRefused, match=f"127.0.0.1:{port} refused the login of user tester"):
            await client.call(REVERSE, b"x")

    serve(scenario)


@pytest.mark.parametrize("sent", [b"", b"\x05\x00\x0b", BIND[:40], BIND + RequestPdu(2, 0, 1, b"x", flags=1).pack()])
def test_a_connection_that_does_not_finish_what_it_began_is_closed(sent: bytes) -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        try:
            while await reader.read(1000):
                pass
        except ConnectionResetError:
            pass
        await until(lambda: not server.connections)
        writer.close()

    serve(scenario, server_limits=ServerLimits(first_pdu=0.05, incomplete_pdu=0.05), sweep_period=0.02)


def test_a_request_that_arrives_slowly_but_steadily_is_served() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(BIND)
        for n in range(12):
            writer.write(RequestPdu(2, 0, REVERSE, b"x" * 8, flags=(n == 0) | 2 * (n == 11)).pack())
            await asyncio.sleep(0.03)
        await reader.readexactly(60)
        assert toy.calls[0].stub == b"x" * 96
        writer.close()

    serve(scenario, server_limits=ServerLimits(incomplete_pdu=0.15), sweep_period=0.02)


def test_a_peer_that_never_reads_is_not_served_further_and_then_closed() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(BIND)
        size = 1_000_000
        for call in range(200):
            writer.write(RequestPdu(call + 2, 0, BIG, size.to_bytes(4, "little")).pack())
            await asyncio.sleep(0)
        await until(lambda: not server.connections)
        assert len(toy.calls) < 20
        writer.close()
        del reader

    serve(scenario, server_limits=ServerLimits(unread_replies=0.1), sweep_period=0.02)


def test_late_answers_that_nobody_reads_are_bounded() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        client = await aio.connect("127.0.0.1", port)
        await client.bind(ECHO.uuid, ECHO.version)
        tasks = [asyncio.create_task(client.call(WAIT, b"")) for _ in range(100)]
        await until(lambda: len(toy.waiting) == 100)
        client._transport.pause_reading()
        for call in toy.waiting:
            if not call.over:
                call.reply(bytes(1_000_000))
                await asyncio.sleep(0)
        await until(lambda: not server.connections)
        assert len(toy.cancelled) > 50
        client.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    serve(scenario, server_limits=ServerLimits(unread_bytes=10_000_000))


def test_a_peer_that_reads_late_gets_every_answer() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        client = await aio.connect("127.0.0.1", port)
        await client.bind(ECHO.uuid, ECHO.version)
        calls = [asyncio.create_task(client.call(BIG, (100_000).to_bytes(4, "little"))) for _ in range(300)]
        await asyncio.sleep(0)
        client._transport.pause_reading()
        await asyncio.sleep(0.05)
        assert len(toy.calls) < 200
        client._transport.resume_reading()
        assert {len(answer) for answer in await asyncio.gather(*calls)} == {100_000}

    serve(scenario)


def test_thousands_of_requests_at_once_are_all_answered() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        client = await aio.connect("127.0.0.1", port)
        await client.bind(ECHO.uuid, ECHO.version)
        answers = await asyncio.gather(*(client.call(REVERSE, b"ab") for _ in range(3000)))
        assert set(answers) == {b"ba"}

    serve(scenario)


def test_more_connections_than_allowed_are_refused() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        clients = [await aio.connect("127.0.0.1", port) for _ in range(3)]
        for client in clients[:2]:
            await client.bind(ECHO.uuid, ECHO.version)
        with pytest.raises(RpcConnectionError):
            await clients[2].bind(ECHO.uuid, ECHO.version)
        assert await clients[0].call(REVERSE, b"ab") == b"ba"

    serve(scenario, server_limits=ServerLimits(max_connections=2))


def test_a_call_that_is_too_big_is_refused_and_the_connection_continues() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        client = await aio.connect("127.0.0.1", port)
        await client.bind(ECHO.uuid, ECHO.version)
        with pytest.raises(RpcFault):
            await client.call(REVERSE, bytes(20_000))
        assert await client.call(REVERSE, bytes(9_000)) == bytes(9_000)

    serve(scenario, limits=RpcLimits(max_call_size=10_000))


def test_garbage_on_one_connection_does_not_disturb_another() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        client = await aio.connect("127.0.0.1", port)
        await client.bind(ECHO.uuid, ECHO.version)
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(64), os.urandom(4096), BIND + bytes(100)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(garbage)
            await reader.read(-1)
            writer.close()
        assert await client.call(REVERSE, b"ab") == b"ba"

    serve(scenario)


def test_what_a_server_has_answered_still_leaves_when_it_shuts_down() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        client = await aio.connect("127.0.0.1", port)
        await client.bind(ECHO.uuid, ECHO.version)
        task = asyncio.create_task(client.call(WAIT, b""))
        await until(lambda: len(toy.waiting) == 1)
        answer = bytes(3_000_000)
        toy.waiting[0].reply(answer)
        await server.shut_down(0.1)
        assert await task == answer
        await until(lambda: not server.connections)

    serve(scenario)


@pytest.mark.parametrize("waits", [False, True])
def test_a_server_that_may_not_answer_closes_the_connection_instead(waits: bool) -> None:
    """Whether the reply is made immediately or later."""

    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        async with await aio.connect("127.0.0.1", port) as client:
            await client.bind(ECHO.uuid, ECHO.version)
            assert await client.call(REVERSE, b"ab") == b"ba"
            server.may_answer = lambda: False
            calling = asyncio.create_task(client.call(WAIT if waits else REVERSE, b"ab"))
            if waits:
                await until(lambda: toy.waiting)
                toy.waiting[0].reply(b"late")
            with pytest.raises(RpcConnectionError):
                await calling
            await until(lambda: not server.connections)

    serve(scenario)


def test_a_server_that_shuts_down_lets_calls_end_but_does_not_wait_for_ever() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        client = await aio.connect("127.0.0.1", port)
        await client.bind(ECHO.uuid, ECHO.version)
        tasks = [asyncio.create_task(client.call(WAIT, b"")) for _ in range(2)]
        await until(lambda: len(toy.waiting) == 2)
        ending = asyncio.create_task(server.shut_down(0.1))
        await asyncio.sleep(0.01)
        with pytest.raises(RpcConnectionError):
            await aio.connect("127.0.0.1", port)
        toy.waiting[0].reply(b"done")
        assert await tasks[0] == b"done"
        with pytest.raises(RpcConnectionError):
            await tasks[1]
        await ending
        await until(lambda: not server.connections)

    serve(scenario)


def test_a_connection_that_the_poller_reads_is_no_longer_watched_when_it_ends() -> None:
    """Only the compiled modules have a poller."""
    poller = mock.Mock()
    connection = _Connection.__new__(_Connection)
    source: Any = object()
    connection._server = mock.Mock(poller=poller)
    connection._reader, connection._source = BY_POLLER, source
    connection._stop_polling()
    connection._stop_polling()
    assert poller.mock_calls == [mock.call.remove(source)]
