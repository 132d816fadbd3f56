"""Failures of peers are counted and limited per host, without effect on other hosts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rpc.accounts import acceptor
from rpc.test_connections import bind
from rpc.test_server import serve, until
from rpc.toys import ECHO, OTHER, REVERSE, Pair, Toy, counter_random

from msrpc.errors import RpcConnectionError
from msrpc.interfaces import ms_rpce_epm as epm
from msrpc.ndr import BadStubData
from msrpc.rpc import aio
from msrpc.rpc.bind_pdus import AlterContext, Bind, PresentationContext
from msrpc.rpc.call import RpcCaller
from msrpc.rpc.channel import Channel
from msrpc.rpc.client_connection import BindRefused, Bound, FaultReceived, ResponseReceived
from msrpc.rpc.dispatcher import SecurityPolicy
from msrpc.rpc.faults import RPC_S_ACCESS_DENIED, RpcFault
from msrpc.rpc.pdu import NDR, PFC_SUPPORT_HEADER_SIGN, AuthLevel
from msrpc.rpc.security import ANONYMOUS
from msrpc.rpc.server import RpcServer, ServerLimits
from msrpc.rpc.sockets import peer_has_closed
from msrpc.rpc.throttle import PERIOD, Attempt, FailureLimits, PeerFailures


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_host_is_refused_for_the_rest_of_the_period_and_no_other_host_or_attempt() -> None:
    clock = Clock()
    failures = PeerFailures(clock, FailureLimits(join=3))
    for _ in range(2):
        failures.count("a", Attempt.JOIN)
    assert not failures.refuses("a", Attempt.JOIN)
    failures.count("a", Attempt.JOIN)
    assert failures.refuses("a", Attempt.JOIN)
    assert not failures.refuses("a", Attempt.LOGIN) and not failures.refuses("b", Attempt.JOIN)
    clock.now += PERIOD
    assert not failures.refuses("a", Attempt.JOIN)
    failures.count("a", Attempt.JOIN)
    assert not failures.refuses("a", Attempt.JOIN)


@given(hosts=st.lists(st.integers(0, 10_000), max_size=300))
def test_the_memory_of_failures_is_bounded(hosts: list[int]) -> None:
    failures = PeerFailures(Clock())
    for host in [*hosts, *range(5000)]:
        failures.count(str(host), Attempt.LOGIN)
    assert len(failures._failures) <= 4096


def test_guessing_group_identifiers_ends_before_one_is_found_and_new_groups_are_made_all_the_same() -> None:
    pair = Pair()
    pair.server.failures = failures = PeerFailures(Clock(), FailureLimits(join=5))
    pair.server._binder._failures = failures
    known = pair.associations.join(0, "")
    assert known is not None
    for guess in range(1000, 1005):
        pair.client.assoc_group_id = guess
        pair.client.bind([ECHO])
        assert pair.exchange() == [BindRefused(0)]
    pair.client.assoc_group_id = known.group_id
    pair.client.bind([ECHO])
    assert pair.exchange() == [BindRefused(1)]  # temporary congestion, although the group exists
    pair.client.assoc_group_id = 0
    pair.client.bind([ECHO])
    assert pair.exchange() == [Bound((ECHO,), ())]


def test_after_many_wrong_passwords_the_right_one_has_to_wait_too() -> None:
    clock = Clock()
    failures = PeerFailures(clock, FailureLimits(login=3))

    def admitted(password: str) -> bool:
        pair = Pair(Toy(), acceptor=acceptor(counter_random()))
        pair.server._binder._failures = failures
        bind(pair, AuthLevel.PKT_INTEGRITY, password=password)
        call = pair.client.request(ECHO, REVERSE, b"ab") if pair.server.bound else None
        return pair.exchange() == [ResponseReceived(call, b"ba")]

    assert admitted("Passw0rd!")
    assert not any(admitted("wrong") for _ in range(3))
    assert not admitted("Passw0rd!")
    clock.now += PERIOD
    assert admitted("Passw0rd!")


def test_an_anonymous_login_has_no_level_of_protection() -> None:
    class Anonymous:
        complete, identity = True, ANONYMOUS

    pair = Pair(acceptor=acceptor(counter_random()))
    channel = Channel(10, AuthLevel.PKT_PRIVACY, 0, Anonymous())  # type: ignore[arg-type]
    caller = pair.server._channels.caller(channel)
    assert caller == RpcCaller(ANONYMOUS, AuthLevel.NONE)
    assert not SecurityPolicy(minimum_level=AuthLevel.PKT_PRIVACY).admits(caller, AuthLevel.NONE)


def test_header_signing_that_alter_context_agrees_on_holds_and_no_later_bind_takes_it_away() -> None:
    pair = Pair(Toy(), Toy(OTHER))
    plain = Bind(1, (PresentationContext(0, ECHO, (NDR,)),))
    pair.serve(plain.pack())
    assert not pair.server._binder.header_signing
    alter = AlterContext(2, (PresentationContext(1, OTHER, (NDR,)),), flags=3 | PFC_SUPPORT_HEADER_SIGN)
    pair.serve(alter.pack())
    assert pair.server._binder.header_signing
    pair.serve(plain.pack())
    assert pair.server._binder.header_signing


def test_requests_without_verifier_are_served_if_a_context_was_bound_without_authentication() -> None:
    pair = Pair(Toy(), Toy(OTHER), acceptor=acceptor(counter_random()))
    bind(pair, AuthLevel.NONE)
    call = pair.client.request(ECHO, REVERSE, b"ab")
    assert pair.exchange() == [ResponseReceived(call, b"ba")]
    protected = Pair(Toy(), acceptor=acceptor(counter_random()))
    bind(protected, AuthLevel.PKT_PRIVACY)
    protected.client.channel = None
    call = protected.client.request(ECHO, REVERSE, b"ab")
    assert protected.exchange() == [FaultReceived(call, RPC_S_ACCESS_DENIED)]


def test_one_host_does_not_take_all_connections() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        first = [await aio.connect("127.0.0.1", port) for _ in range(2)]
        third = await aio.connect("127.0.0.1", port)
        with pytest.raises(RpcConnectionError):
            await third.bind(ECHO.uuid, ECHO.version)
        assert server.peers == {"127.0.0.1": 2}
        first.pop().close()
        await until(lambda: server.peers == {"127.0.0.1": 1})
        again = await aio.connect("127.0.0.1", port)
        await again.bind(ECHO.uuid, ECHO.version)
        for connection in (*first, again, third):
            connection.close()
        await until(lambda: not server.peers)

    serve(scenario, server_limits=ServerLimits(max_connections_per_peer=2))


def test_fast_guessing_of_handles_ends_the_connection() -> None:
    async def scenario(server: RpcServer, toy: Toy, port: int) -> None:
        client = await aio.connect("127.0.0.1", port)
        await client.bind(ECHO.uuid, ECHO.version)
        with pytest.raises(RpcConnectionError):
            await tries(client)
        assert server.failures.refuses("127.0.0.1", Attempt.CALL)

    async def tries(client: Any) -> None:
        for _ in range(20):
            with pytest.raises(RpcFault, match="CONTEXT_MISMATCH"):
                await client.call(CLOSE, bytes(range(20)))

    serve(scenario, server_limits=ServerLimits(failures=FailureLimits(call=5)))


CLOSE = 6  # operation of the toy that closes a handle


@pytest.mark.parametrize("how", ["closed", "reset", "half closed"])
def test_a_peer_that_hung_up_is_noticed_before_its_last_bytes_are_read(how: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    hung_up: Callable[[], bool] = partial(peer_has_closed, server.fileno())
    client.send(b"a request")
    assert not hung_up()
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    if how == "half closed":
        client.shutdown(socket.SHUT_WR)
    else:
        client.close()

    async def seen() -> None:
        async with asyncio.timeout(10):
            await until(hung_up)

    asyncio.run(seen())
    server.close()
    client.close()


def test_one_full_pointer_for_an_object_and_for_a_tower_is_bad_stub_data() -> None:
    operation = epm.ept.operation("ept_map")
    stub = operation.encode_request(epm.ept_map_Request(bytes(16), epm.twr_t(4, b"abcd"), bytes(20), 4))
    first = int.from_bytes(stub[:4], "little")
    second = stub.index((first + 4).to_bytes(4, "little"))
    shared = stub[:second] + stub[:4] + stub[second + 4 :]
    with pytest.raises(BadStubData, match="full pointer"):
        operation.decode_request(shared, "<")
