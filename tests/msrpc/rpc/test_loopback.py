"""The asyncio server and the blocking client over TCP."""

from __future__ import annotations

import asyncio
import time

import pytest
from rpc.toys import BIG, CLOSE, CRASH, ECHO, NULL, OPEN, OTHER, REVERSE, WAIT, Toy, running_server

from msrpc.errors import BindError, LocalProtocolError, RpcConnectionError
from msrpc.rpc import aio
from msrpc.rpc.call import Call, InterfaceTable
from msrpc.rpc.client import connect
from msrpc.rpc.faults import (
    NCA_S_FAULT_CONTEXT_MISMATCH,
    NCA_S_FAULT_REMOTE_NO_MEMORY,
    NCA_S_FAULT_UNSPEC,
    NCA_S_OP_RNG_ERROR,
    RpcFault,
)
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.server import RpcServer


def test_a_call_comes_back_with_its_answer_and_faults_with_their_status() -> None:
    with running_server(Toy(), Toy(OTHER)) as (_, port), connect("127.0.0.1", port) as connection:
        connection.bind(ECHO.uuid, ECHO.version)
        assert connection.call(NULL, b"") == b""
        assert connection.call(REVERSE, bytes(range(256)) * 100) == bytes(reversed(range(256))) * 100
        assert len(connection.call(BIG, (100_000).to_bytes(4, "little"))) == 100_000
        with pytest.raises(RpcFault) as fault:
            connection.call(99, b"")
        assert fault.value.status == NCA_S_OP_RNG_ERROR
        with pytest.raises(RpcFault) as fault:
            connection.call(CRASH, b"")
        assert fault.value.status == NCA_S_FAULT_UNSPEC
        connection.bind(OTHER.uuid, (2, 1))
        assert connection.call(REVERSE, b"abc") == b"cba"


def test_without_memory_a_call_gets_that_fault_and_others_continue(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    toy = Toy()
    served = toy.call

    def call(call: Call) -> None:
        if call.opnum == CRASH:
            raise MemoryError
        served(call)

    monkeypatch.setattr(toy, "call", call)
    with running_server(toy) as (_, port), connect("127.0.0.1", port) as connection:
        connection.bind(ECHO.uuid, ECHO.version)
        with pytest.raises(RpcFault) as fault:
            connection.call(CRASH, b"")
        assert fault.value.status == NCA_S_FAULT_REMOTE_NO_MEMORY
        assert connection.call(REVERSE, b"abc") == b"cba"
    assert "out of memory" in caplog.text and "Traceback" not in caplog.text


def test_an_interface_that_is_not_offered_cannot_be_bound() -> None:
    with running_server(Toy()) as (_, port), connect("127.0.0.1", port) as connection, pytest.raises(BindError):
        connection.bind(OTHER.uuid, OTHER.version)


def test_a_lost_connection_runs_its_context_handles_down() -> None:
    toy = Toy()
    with running_server(toy) as (_, port):
        with connect("127.0.0.1", port) as connection:
            connection.bind(ECHO.uuid, ECHO.version)
            kept, closed = connection.call(OPEN, b""), connection.call(OPEN, b"")
            assert len(kept) == 20
            assert connection.call(CLOSE, closed) == bytes(20)
            with pytest.raises(RpcFault) as fault:
                connection.call(CLOSE, closed)
            assert fault.value.status == NCA_S_FAULT_CONTEXT_MISMATCH
        deadline = time.monotonic() + 2
        while not toy.rundowns and time.monotonic() < deadline:
            time.sleep(0.01)
        assert toy.rundowns == ["object"]


def test_a_connection_may_join_the_association_of_another_and_use_its_handles() -> None:
    toy = Toy()
    with running_server(toy) as (_, port), connect("127.0.0.1", port) as first:
        first.bind(ECHO.uuid, ECHO.version)
        handle = first.call(OPEN, b"")
        with connect("127.0.0.1", port) as stranger:
            stranger.bind(ECHO.uuid, ECHO.version)
            with pytest.raises(RpcFault) as fault:
                stranger.call(CLOSE, handle)
        assert fault.value.status == NCA_S_FAULT_CONTEXT_MISMATCH
        with connect("127.0.0.1", port, assoc_group_id=first.core.assoc_group_id) as second:
            second.bind(ECHO.uuid, ECHO.version)
            assert second.call(CLOSE, handle) == bytes(20)


def test_a_server_that_does_not_answer_in_time_is_given_up() -> None:
    with running_server(Toy()) as (_, port), connect("127.0.0.1", port) as connection:
        connection.bind(ECHO.uuid, ECHO.version)
        with pytest.raises(RpcConnectionError, match="in time"):
            connection.call(WAIT, b"", timeout=0.05)
        with pytest.raises(RpcConnectionError):
            connection.call(NULL, b"")


def test_a_server_that_is_not_there_or_goes_away_is_a_connection_error() -> None:
    with running_server(Toy()) as (_, port):
        connection = connect("127.0.0.1", port)
        connection.bind(ECHO.uuid, ECHO.version)
    with pytest.raises(RpcConnectionError):
        connection.call(NULL, b"")
    connection.close()
    with pytest.raises(RpcConnectionError):
        connect("127.0.0.1", port, timeout=1)


def test_a_call_before_a_bind_and_a_level_without_credentials_are_our_own_mistake() -> None:
    with running_server(Toy()) as (_, port), connect("127.0.0.1", port) as connection:
        with pytest.raises(LocalProtocolError):
            connection.call(NULL, b"")
        with pytest.raises(LocalProtocolError):
            connect("127.0.0.1", port, level=AuthLevel.PKT_PRIVACY)


def test_the_server_can_be_reached_over_ipv6() -> None:
    with running_server(Toy(), host="::1") as (_, port), connect("::1", port) as connection:
        connection.bind(ECHO.uuid, ECHO.version)
        assert connection.call(REVERSE, b"ab") == b"ba"


def test_an_asynchronous_connection_is_open_until_one_side_closes_it() -> None:
    async def use() -> None:
        server = RpcServer(InterfaceTable([Toy()]))
        _, port = await server.listen("127.0.0.1", 0)
        async with await aio.connect("127.0.0.1", port) as first:
            assert first.is_open
        assert not first.is_open
        async with await aio.connect("127.0.0.1", port) as second:
            assert second.is_open
            server.close()
            async with asyncio.timeout(10):
                while second.is_open:
                    await asyncio.sleep(0.01)

    asyncio.run(use())
