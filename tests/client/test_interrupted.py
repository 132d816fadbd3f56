"""Calls without an answer: the client is closed, the task is canceled, the server is silent. Nothing is lost, or done
twice, without being reported."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import openmsmq
import openmsmq.aio
from daemon import Daemon, meanwhile
from msrpc.rpc import aio as rpc
from openmsmq.client.calls import ClientClosed
from openmsmq.client.runner import Runner
from openmsmq.com import Dispatch


@contextmanager
def frozen(service: Daemon) -> Iterator[None]:
    os.kill(service.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(service.pid, signal.SIGCONT)


class Database:
    """A participant that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def prepare(self, transaction: str) -> None:
        self.told.append("prepare")

    def commit(self, transaction: str) -> None:
        self.told.append("commit")

    def rollback(self, transaction: str) -> None:
        self.told.append("rollback")

    def in_doubt(self) -> list[str]:
        return []


def test_a_send_that_waits_while_the_client_is_closed_may_have_been_carried_out(service: Daemon, queue: str) -> None:
    manager = service.connect()
    sending = manager.open(queue, "send")
    sending.send("binds")
    with frozen(service), meanwhile(0.3, manager.close), pytest.raises(ClientClosed, match="may be in the") as ended:
        sending.send("x")
    assert ended.value.outcome_unknown
    with pytest.raises(ClientClosed) as later:
        sending.send("y")
    assert not later.value.outcome_unknown


def test_participants_stay_prepared_if_the_client_is_closed_during_the_commit(service: Daemon, qm: Any) -> None:
    qm.create_queue("tx", transactional=True)
    manager, database = service.connect(), Database()
    transaction = manager.transaction(distributed=True)
    transaction.enlist(database)
    with manager.open("tx", "send") as sending:
        sending.send("x", transaction=transaction)
    prepare = database.prepare

    def freezes(transaction: str) -> None:
        prepare(transaction)
        os.kill(service.pid, signal.SIGSTOP)

    database.prepare = freezes  # type: ignore[method-assign]
    try:
        with meanwhile(0.5, manager.close), pytest.raises(ClientClosed) as ended:
            transaction.commit()
    finally:
        os.kill(service.pid, signal.SIGCONT)
    assert ended.value.outcome_unknown and database.told == ["prepare"]


@pytest.mark.parametrize("protocol", ["remoteread", "qm2qm", "qmcomm"])
def test_a_closed_cursor_reads_nothing(qm: Any, queue: str, protocol: str) -> None:
    with qm.open(queue, "send") as sending:
        sending.send("first")
    reading = qm.open(queue, protocol=protocol)
    cursor = reading.cursor()
    assert cursor.peek(0).decode() == "first"
    cursor.close()
    cursor.close()
    for operation in (cursor.peek, cursor.peek_next, cursor.receive):
        with pytest.raises(openmsmq.InvalidHandle, match="this cursor was closed by this program"):
            operation(0)
    assert qm.counts(queue)["message_count"] == 1
    late = reading.cursor()
    reading.close()
    late.close()  # ended with its queue


def test_a_transaction_is_not_committed_after_an_interrupted_receive(service: Daemon, qm: Any) -> None:
    """Through MS-MQMP, the message may have been taken."""
    qm.create_queue("txr", transactional=True)
    with qm.open("txr", "send") as sending, qm.transaction() as transaction:
        sending.send("kept", transaction=transaction)

    async def program() -> None:
        async with await openmsmq.aio.connect("127.0.0.1", service.port) as manager:
            reading = await manager.open("txr", protocol="qmcomm")

            async def interrupted(transaction: openmsmq.aio.Transaction) -> None:
                async with transaction:
                    receiving = asyncio.ensure_future(reading.receive(5, transaction=transaction))
                    await manager.machine_id()  # the receive has been sent by now
                    receiving.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await receiving

            for _ in range(2):
                transaction = await manager.transaction()
                with pytest.raises(openmsmq.TransactionUsage, match="abort the transaction"):
                    await interrupted(transaction)
                assert transaction.finished
            async with manager.transaction() as transaction:
                assert (await reading.receive(5, transaction=transaction)).decode() == "kept"

    asyncio.run(program())


def test_a_block_whose_commit_is_refused_aborts(qm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    qm.create_queue("txc", transactional=True)
    with qm.open("txc", "send") as sending, qm.transaction() as transaction:
        sending.send("kept", transaction=transaction)
    reading = qm.open("txc")
    refused = openmsmq.MsmqError(0xC00E002A, "simulated")

    def commit(enlisted: Any) -> Any:
        raise refused
        yield

    def block() -> None:
        with qm.transaction() as transaction:
            reading.receive(0, transaction=transaction)

    with monkeypatch.context() as patch:
        patch.setattr("openmsmq.client.operations.commit", commit)
        with pytest.raises(openmsmq.MsmqError, match="simulated"):
            block()
    assert reading.receive(0).decode() == "kept"


def test_values_that_cannot_be_encoded_end_a_series_with_the_outcome_of_each(qm: Any, queue: str) -> None:
    bodies = [openmsmq.Message(b"x", application_tag=2**33 if number == 90 else 0) for number in range(100)]
    with qm.open(queue, "send") as sending, pytest.raises(openmsmq.MessagesNotSent) as failed:
        sending.send_many(bodies)
    assert list(failed.value.errors) == [90]
    assert sum(identifier is not None for identifier in failed.value.sent) == 90 == qm.counts(queue)["message_count"]


def test_a_server_that_accepts_and_says_nothing_ends_the_connect_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        begun = time.monotonic()
        for attempt in (
            lambda: openmsmq.connect(host, port, timeout=0.3),
            lambda: asyncio.run(openmsmq.aio.connect(host, port, timeout=0.3)),
        ):
            with pytest.raises(openmsmq.AnswerTimeout, match=f"{host}:{port}: the server did not answer in time"):
                attempt()
        assert time.monotonic() - begun < 5


def test_a_silent_server_does_not_hold_automation_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = rpc.connect

    async def impatient(*arguments: Any, **options: Any) -> Any:
        return await connect(*arguments, **{**options, "timeout": 0.3})

    monkeypatch.setattr(rpc, "connect", impatient)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(openmsmq.AnswerTimeout):
        Dispatch("MSMQQueueInfo", *silent.getsockname())


def test_a_connection_that_is_silent_for_the_time_of_a_call_is_replaced(
    service: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openmsmq.client.calls.ANSWER_MARGIN", 0.3)

    async def program() -> None:
        async with await openmsmq.aio.connect("127.0.0.1", service.port) as manager:
            await manager.machine_id()
            connection = manager._session.runner._connection
            assert connection is not None
            with frozen(service), pytest.raises(openmsmq.AnswerTimeout):
                await manager.machine_id()
            assert not connection.is_open
            assert await manager.machine_id()
            assert manager._session.runner._connection is not connection

    asyncio.run(program())


def test_a_client_that_is_closed_while_it_connects_keeps_no_connection(
    service: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program() -> None:
        runner, made = Runner("127.0.0.1", service.port, {}), []
        connect = rpc.connect

        async def slow(*arguments: Any, **options: Any) -> Any:
            connection = await connect(*arguments, **options)
            made.append(connection)
            runner.close()
            return connection

        monkeypatch.setattr(rpc, "connect", slow)
        with pytest.raises(ClientClosed):
            await runner.run(openmsmq.client.operations.query(4))
        assert not made[0].is_open

    asyncio.run(program())


def test_a_fork_leaves_automation_objects_to_the_parent(service: Daemon) -> None:
    info: Any = Dispatch("MSMQQueueInfo", "127.0.0.1", service.mapper_port)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(openmsmq.MsmqError, match="belongs to the process that forked this one"):
                info.PathName = "x"
            own: Any = Dispatch("MSMQQueueInfo", "127.0.0.1", service.mapper_port)
            own.PathName = r".\private$\child"
            code = 0 if own.PathName == r".\private$\child" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    info.PathName = r".\private$\parent"
    assert info.PathName == r".\private$\parent"


def test_closing_a_queue_after_its_client_changes_nothing(service: Daemon, queue: str) -> None:
    manager = service.connect()
    reading = manager.open(queue)
    cursor = reading.cursor()
    manager.close()
    cursor.close()
    reading.close()
