"""Calls to client processes: addresses, limits, and lifetime of connections."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from msrpc.dcom import remote
from msrpc.dcom.bindings import TCP, Bindings
from msrpc.dcom.budget import ObjectBudget
from msrpc.dcom.exporter import Exporter
from msrpc.dcom.objref import StandardReference
from msrpc.dcom.orpc import interfaces_of
from msrpc.dcom.remote import HostPort, RemoteProcesses, places
from msrpc.dcom.resolver import resolver_services
from msrpc.dcom.server import ComServer
from msrpc.errors import ComError, LimitReached, RpcConnectionError
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_dcom as d
from msrpc.interfaces import ms_oaut as o
from msrpc.rpc.call import InterfaceTable
from msrpc.rpc.server import RpcServer

HERE = "127.0.0.1"
SHORT = 0.05  # seconds


class ExampleObject:
    def query(self, iid: UUID) -> bool:
        return True

    def released(self) -> None:
        pass


class Host:
    position = 0

    def when_durable(self, action: Callable[[], object]) -> None:
        action()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.get_running_loop().create_task(work)


class Client:
    """A client process with its own resolver and exporter at one port."""

    def __init__(self) -> None:
        interfaces = {i.uuid: i for i in (d.IUnknown, o.IDispatch)}
        self.server = ComServer(Exporter(time.monotonic, os.urandom), Host(), {}, interfaces)
        self.listener = RpcServer()

    async def start(self) -> None:
        table = InterfaceTable([*resolver_services(self.server), *interfaces_of(self.server)])
        _, self.server.port = await self.listener.listen(HERE, 0, table)

    def reference(self, *addresses: str) -> StandardReference:
        """Return a reference to an object. {} in the resolver addresses stands for its port."""
        found = Bindings(tuple((TCP, address.format(self.server.port)) for address in addresses or ["elsewhere[{}]"]))
        thing = ExampleObject()
        self.server.exporter.marshal(thing, d.IUnknown.uuid, found)  # the process keeps its own references
        return self.server.exporter.marshal(thing, d.IUnknown.uuid, found)


@asynccontextmanager
async def clients(count: int = 1) -> AsyncIterator[list[Client]]:
    made = [Client() for _ in range(count)]
    for client in made:
        await client.start()
    try:
        yield made
    finally:
        for client in made:
            await client.listener.shut_down(0)


async def soon(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not look():
            await asyncio.sleep(0.01)


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(work())  # type: ignore[arg-type]


# -- addresses ----------------------------------------------------------------------------------------------------


def test_only_the_host_that_a_reference_came_from_is_called_at_the_ports_that_it_names() -> None:
    bindings = Bindings(
        ((TCP, "victim[445]"), (TCP, "192.0.2.9"), (TCP, "victim[445]"), (8, "x[1]"), (TCP, "y[70000]"))
    )
    assert places(bindings, 135, "192.0.2.1") == [HostPort("192.0.2.1", 445), HostPort("192.0.2.1", 135)]
    assert places(bindings, None, "192.0.2.1") == [HostPort("192.0.2.1", 445)]
    named = places(bindings, 135, "192.0.2.1", frozenset(["victim"]))
    assert named == [HostPort("192.0.2.1", 445), HostPort("192.0.2.1", 135), HostPort("victim", 445)]


def test_a_reference_leads_to_four_places_at_most() -> None:
    bindings = Bindings(tuple((TCP, f"h[{port}]") for port in range(1, 200)))
    assert len(places(bindings, 135, "192.0.2.1", frozenset(["h"]))) == 4


def test_the_account_is_shown_to_hosts_that_are_named_and_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    async def refuse(host: str, port: int, **security: Any) -> Any:
        seen.append((host, security))
        raise RpcConnectionError("no")

    monkeypatch.setattr(remote, "connect", refuse)
    reference = StandardReference(d.IUnknown.uuid, 1, 1, 2, bytes(16), Bindings(((TCP, "a"), (TCP, "B[9]"))))

    async def call() -> None:
        for named in ((), ("b",), ("192.0.2.1",)):
            processes = RemoteProcesses({"credentials": "secret"}, named=frozenset(named))
            with pytest.raises(RpcConnectionError):
                await processes.exporter_of(reference, "192.0.2.1")
            assert processes.exporters == 0

    run(call)
    login = {"credentials": "secret"}
    own = [("192.0.2.1", {})] * 2
    assert seen == [*own, *own, ("B", login), *[("192.0.2.1", login)] * 2]


def test_exporters_of_two_hosts_are_two_though_they_say_they_are_one() -> None:
    async def call() -> None:
        async with clients(2) as (first, second):
            processes = RemoteProcesses({}, idle=SHORT)
            second.server.exporter.oxid = first.server.exporter.oxid
            one = await processes.exporter_of(first.reference(), HERE)
            two = await processes.exporter_of(second.reference(), "localhost")
            assert one is not two and one.rem_unknown != two.rem_unknown
            processes.close()

    run(call)


# -- limits and lifetime -------------------------------------------------------------------------------------------


def test_a_connection_is_closed_when_nothing_behind_it_is_held() -> None:
    async def call() -> None:
        async with clients() as (client,):
            processes = RemoteProcesses({}, idle=SHORT)
            given = client.reference()
            async with processes.reached(given, HERE) as exporter:
                processes.hold(exporter, given.oid)
            await asyncio.sleep(4 * SHORT)  # longer than `idle`: nothing may happen
            assert exporter.is_open and processes.exporters == 1
            processes.drop(exporter, given.oid)
            await soon(lambda: not processes.exporters)
            assert not exporter.is_open and not processes._pinging and not processes._held
            async with processes.reached(client.reference(), HERE) as again:
                assert again is not exporter and again.is_open
            await soon(lambda: not processes.exporters)

    run(call)


def test_an_unreachable_host_is_forgotten_and_not_retried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    async def refuse(host: str, port: int, **security: Any) -> Any:
        tried.append(host)
        raise RpcConnectionError("no")

    async def call() -> None:
        monkeypatch.setattr(remote, "connect", refuse)
        processes = RemoteProcesses({}, retry_after=4 * SHORT)
        for oxid in range(50):
            reference = StandardReference(d.IUnknown.uuid, 1, oxid, 2, bytes(16), Bindings(((TCP, "a[9]"),)))
            with pytest.raises(ComError) as refused:
                async with processes.reached(reference, HERE):
                    pass
            assert refused.value.hresult == ComResult.RPC_E_DISCONNECTED
        assert len(tried) == 1 and processes.exporters == 0 and not processes._budget.taken
        await asyncio.sleep(5 * SHORT)  # longer than `retry_after`
        with pytest.raises(ComError):
            async with processes.reached(reference, HERE):
                pass
        assert len(tried) == 2
        for port in range(1, 3000):
            reference = StandardReference(d.IUnknown.uuid, 1, port, 2, bytes(16), Bindings(((TCP, f"a[{port}]"),)))
            with pytest.raises(RpcConnectionError):
                await processes.exporter_of(reference, HERE)
        assert len(processes._failed) <= 1024

    run(call)


def test_what_takes_longer_than_the_limit_is_a_failure_of_the_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async def call() -> None:
        async with clients() as (client,):
            processes = RemoteProcesses({}, idle=3600)
            async with processes.reached(client.reference(), HERE):
                pass  # it is connected, which may take as long as usual
            monkeypatch.setattr(remote, "TIME_LIMIT", SHORT)
            with pytest.raises(ComError, match="no answer within") as slow:
                async with processes.reached(client.reference(), HERE):
                    await asyncio.Event().wait()  # never set
            assert slow.value.hresult == ComResult.RPC_E_DISCONNECTED
            processes.close()

    run(call)


def test_a_host_has_its_share_and_idle_connections_make_room() -> None:
    async def call() -> None:
        async with clients(4) as made:
            processes = RemoteProcesses({}, budget=ObjectBudget("connections", 3, 2), idle=3600)
            held = []
            for client in made[:2]:
                given = client.reference()
                async with processes.reached(given, HERE) as exporter:
                    processes.hold(exporter, given.oid)
                held.append((exporter, given))
            with pytest.raises(LimitReached, match=f"limit 2 for {HERE}"):
                async with processes.reached(made[2].reference(), HERE):
                    pass
            async with processes.reached(made[2].reference(), "localhost"):
                pass
            processes.drop(held[0][0], held[0][1].oid)
            async with processes.reached(made[3].reference(), HERE):
                assert not held[0][0].is_open and processes.exporters == 2
            processes.close()

    run(call)


def test_pings_end_with_the_objects_and_with_a_process_that_does_not_answer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_SHORTEST_PAUSE", SHORT)

    async def call() -> None:
        async with clients() as (client,):
            processes = RemoteProcesses({}, ping_period=SHORT, idle=3600)
            given = client.reference()
            async with processes.reached(given, HERE) as exporter:
                processes.hold(exporter, given.oid)
            await soon(lambda: client.server.exporter.pings.holds(given.oid))
            processes.drop(exporter, given.oid)
            await soon(lambda: not client.server.exporter.pings.holds(given.oid))
            processes.hold(exporter, given.oid)
        await soon(lambda: not processes._pinging)
        assert not processes._held
        processes.drop(exporter, given.oid)
        processes.close()

    run(call)
    assert ["giving up its objects" in record.message for record in caplog.records] == [True]


def test_a_budget_counts_by_source_and_in_all() -> None:
    budget = ObjectBudget("things", 5, 3, ("most", "most_of_one"))
    budget.take("a", 3)
    with pytest.raises(LimitReached, match=r"too many things: limit 3 for a \(most_of_one\)"):
        budget.take("a")
    budget.take("b", 2)
    with pytest.raises(LimitReached, match=r"limit 5 in all \(most\)"):
        budget.take("c")
    budget.give_back("a", 2)
    budget.take("c")
    assert (budget.taken, budget.held_by("a"), budget.held_by("c"), budget.held_by("d")) == (4, 1, 1, 0)
    for source, amount in (("a", 1), ("b", 2), ("c", 1)):
        budget.give_back(source, amount)
    assert not budget.taken and not budget._by_source
