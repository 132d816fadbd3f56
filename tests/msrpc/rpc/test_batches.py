"""Calls served in batches: conditions, order, and errors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from msrpc.rpc.association import AssociationTable
from msrpc.rpc.call import UNAUTHENTICATED, Call
from msrpc.rpc.dispatcher import MOST_GATHERED, SecurityPolicy
from msrpc.rpc.faults import NCA_S_FAULT_UNSPEC, RPC_S_ACCESS_DENIED
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.server import RpcServer

BATCHED, UNBATCHED, OTHER = 1, 2, 3  # operations; the first two are gathered
Log = list[tuple[str, int]]


class AnyInterface:
    """An interface that serves each call immediately."""

    name, uuid, version, minimum_level = "everything", UUID(int=1), (1, 0), AuthLevel.NONE
    open_opnums: frozenset[int] = frozenset()

    def __init__(self, log: Log) -> None:
        self.log = log

    def accepts(self, opnum: int) -> bool:
        return True

    def call(self, call: Call) -> None:
        self.log.append(("alone", call.call_id))
        call.reply(b"")


class FirstOperationBatches:
    """A batch handler that serves the leading calls of operation BATCHED."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.attempts = 0

    def operations(self, interface: object) -> tuple[int, ...]:
        return (BATCHED, UNBATCHED)

    def by_operation(self, calls: list[Call]) -> list[list[Call]]:
        return [calls]

    def serve(self, calls: list[Call]) -> int:
        self.attempts += 1
        at = 0
        while at < len(calls) and calls[at].opnum == BATCHED:
            self.log.append(("together", calls[at].call_id))
            calls[at].reply(b"")
            at += 1
        return at


class FailingBatches(FirstOperationBatches):
    def serve(self, calls: list[Call]) -> int:
        super().serve(calls[:1])
        raise RuntimeError("a bug")


class Connection:
    peer_host, descriptor = "192.0.2.1", -1

    def __init__(self, server: RpcServer) -> None:
        self.association, self.failures = AssociationTable(os.urandom).join(0, self.peer_host), server.failures
        self.said: list[tuple[int, int | None]] = []

    def awaits(self, call: Call) -> bool:
        return True

    def send_reply(self, call: Call, stub: bytes) -> None:
        self.said.append((call.call_id, None))

    def send_fault(self, call: Call, status: int) -> None:
        self.said.append((call.call_id, status))


def in_a_loop(work: Callable[[], Any]) -> None:
    async def run() -> None:
        work()
        await asyncio.sleep(0)

    asyncio.run(run())


def dispatched(server: RpcServer, log: Log, *opnums: int) -> Connection:
    connection, interface = Connection(server), AnyInterface(log)
    for number, opnum in enumerate(opnums):
        server.calls.dispatch(Call(connection, interface, UNAUTHENTICATED, None, number, 0, opnum, b""))  # type: ignore[arg-type]
    return connection


def test_batched_calls_wait_for_the_next_iteration_and_keep_their_order() -> None:
    log: Log = []
    server = RpcServer()
    server.calls.together = FirstOperationBatches(log)
    in_a_loop(lambda: (dispatched(server, log, BATCHED, BATCHED, UNBATCHED, BATCHED), log.append(("the turn ends", 0))))
    assert log == [("the turn ends", 0), ("together", 0), ("together", 1), ("alone", 2), ("together", 3)]


def test_calls_that_cannot_be_batched_cost_few_attempts() -> None:
    log: Log = []
    server = RpcServer()
    server.calls.together = batches = FirstOperationBatches(log)
    in_a_loop(lambda: dispatched(server, log, *[UNBATCHED] * 100, *[BATCHED] * 100))
    assert [number for _, number in log] == list(range(200))
    assert [how for how, _ in log].count("alone") < 130 and log[-1] == ("together", 199)
    assert batches.attempts <= 8


def test_an_observer_is_notified_before_and_after_the_calls_of_a_turn() -> None:
    class Observer:
        def hold(self) -> None:
            log.append(("hold", 0))

        def release(self) -> None:
            log.append(("release", 0))

    log: Log = []
    server = RpcServer()
    server.calls.together, server.calls.turn = FirstOperationBatches(log), Observer()
    in_a_loop(lambda: dispatched(server, log, BATCHED, UNBATCHED))
    assert log == [("hold", 0), ("together", 0), ("alone", 1), ("release", 0)]
    log.clear()
    server.calls.together = FailingBatches(log)
    in_a_loop(lambda: dispatched(server, log, BATCHED))
    assert log[-1] == ("release", 0)


def test_batched_calls_are_served_before_any_other_call() -> None:
    log: Log = []
    server = RpcServer()
    server.calls.together = FirstOperationBatches(log)
    in_a_loop(lambda: (dispatched(server, log, BATCHED, UNBATCHED, OTHER), log.append(("the turn ends", 0))))
    assert log == [("together", 0), ("alone", 1), ("alone", 2), ("the turn ends", 0)]


def test_no_more_are_gathered_than_one_connection_may_have() -> None:
    log: Log = []
    server = RpcServer()
    server.calls.together = FirstOperationBatches(log)

    def work() -> None:
        dispatched(server, log, *[BATCHED] * (MOST_GATHERED - 1))
        assert not log
        dispatched(server, log, BATCHED)
        assert len(log) == MOST_GATHERED

    assert server.limits.max_pending >= MOST_GATHERED + 64
    in_a_loop(work)


def test_callers_who_are_not_admitted_are_refused_at_once() -> None:
    log: Log = []
    server = RpcServer(policy=SecurityPolicy(allow_anonymous=False))
    server.calls.together = FirstOperationBatches(log)

    def work() -> None:
        assert dispatched(server, log, BATCHED).said == [(0, RPC_S_ACCESS_DENIED)]

    in_a_loop(work)
    assert not log


def test_a_failure_ends_all_batched_calls_and_none_is_served_twice(caplog: pytest.LogCaptureFixture) -> None:
    log: Log = []
    server = RpcServer()
    server.calls.together = FailingBatches(log)

    def work() -> None:
        connection = dispatched(server, log, BATCHED, BATCHED, BATCHED)
        server.calls.serve_gathered()
        assert connection.said == [(0, None), (1, NCA_S_FAULT_UNSPEC), (2, NCA_S_FAULT_UNSPEC)]

    in_a_loop(work)
    assert log == [("together", 0)]
    assert "batch of calls failed; each call gets a fault" in caplog.text
