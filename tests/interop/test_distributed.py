"""Transactions over two daemons: all or nothing, whichever daemon is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

import openmsmq
import openmsmq.aio
from daemon import Daemon, eventually, partner_daemons

QUEUE = r".\private$\x"


class Pair(NamedTuple):
    near: Daemon
    far: Daemon


@pytest.fixture
def pair(tmp_path: Any) -> Iterator[Pair]:
    near, far = partner_daemons(tmp_path, "near", "far")
    with near, far:
        for daemon in (near, far):
            with daemon.connect() as manager:
                manager.create_queue(QUEUE, transactional=True)
        put(far, "old")
        yield Pair(near, far)
    for daemon in (near, far):
        assert "Traceback" not in daemon.log, daemon.log


def put(daemon: Daemon, value: str) -> None:
    with daemon.connect() as manager, manager.open(QUEUE, "send") as sender, manager.transaction() as transaction:
        sender.send(value, transaction=transaction)


def left(daemon: Daemon) -> list[Any]:
    with daemon.connect() as manager, manager.open(QUEUE, "peek", protocol="qmcomm") as reader:
        return [message.decode() for message in reader]


def move_on(near: openmsmq.QueueManager, far: openmsmq.QueueManager, transaction: openmsmq.Transaction) -> None:
    """Receive a message from one and send it to the other."""
    with far.open(QUEUE) as source, near.open(QUEUE, "send") as target:
        target.send(source.receive(0, transaction=transaction).decode() + " moved on", transaction=transaction)


def test_a_transaction_of_another_connection_to_the_same_queue_manager_is_named(pair: Pair) -> None:
    with pair.near.connect() as near, pair.near.connect() as again, near.transaction() as transaction:
        with again.open(QUEUE, "send") as target, pytest.raises(openmsmq.TransactionUsage, match="another connection"):
            target.send("x", transaction=transaction)
        transaction.abort()


def test_a_message_is_taken_at_one_and_sent_at_the_other(pair: Pair) -> None:
    with pair.near.connect() as near, pair.far.connect() as far:
        with near.transaction() as transaction:
            move_on(near, far, transaction)
            assert (left(pair.near), left(pair.far)) == ([], [])
        assert (left(pair.near), left(pair.far)) == (["old moved on"], [])


def test_an_exception_leaves_both_as_they_were(pair: Pair) -> None:
    with pair.near.connect() as near, pair.far.connect() as far:
        with pytest.raises(RuntimeError), near.transaction() as transaction:  # noqa: PT012
            move_on(near, far, transaction)
            raise RuntimeError
        eventually(lambda: (left(pair.near), left(pair.far)) == ([], ["old"]))


def test_sends_on_the_other_side_are_part_of_the_transaction(pair: Pair) -> None:
    with pair.near.connect() as near, pair.far.connect() as far, near.open(QUEUE, "send") as here:
        with far.open(QUEUE, "send") as there, near.transaction() as transaction:
            here.send("a", transaction=transaction)
            there.send("b", transaction=transaction)
        assert (left(pair.near), left(pair.far)) == (["a"], ["old", "b"])


@pytest.mark.parametrize("protocol", ["remoteread", "qmcomm"])
def test_cursors_receive_in_a_distributed_transaction(pair: Pair, protocol: str) -> None:
    put(pair.far, "second")
    with pair.near.connect() as near, pair.far.connect() as far, far.open(QUEUE, protocol=protocol) as queue:
        with near.transaction() as transaction, queue.cursor() as cursor:
            cursor.peek(0)
            cursor.peek_next(0)
            assert cursor.receive(0, transaction=transaction).decode() == "second"
        assert left(pair.far) == ["old"]


def test_the_loss_of_the_client_aborts_the_transaction_everywhere(pair: Pair) -> None:
    near, far = pair.near.connect(), pair.far.connect()
    move_on(near, far, near.transaction())
    near.close()
    far.close()
    eventually(lambda: (left(pair.near), left(pair.far)) == ([], ["old"]))


def test_a_participant_that_is_killed_makes_the_commit_fail(pair: Pair) -> None:
    with pair.near.connect() as near, pair.far.connect() as far:
        transaction = near.transaction()
        move_on(near, far, transaction)
        pair.far.kill()
        with pytest.raises(openmsmq.MsmqError):
            transaction.commit()
        pair.far.start()
        assert (left(pair.near), left(pair.far)) == ([], ["old"])


def test_restarts_between_two_transactions_do_not_disturb_the_second(pair: Pair) -> None:
    """The state that both keep about their connections is not valid any more."""
    for restarted in (None, pair.far, pair.near):
        if restarted is not None:
            restarted.kill()
            restarted.start()
            put(pair.far, "old")
        with pair.near.connect() as near, pair.far.connect() as far, near.transaction() as transaction:
            move_on(near, far, transaction)
    assert (left(pair.near), left(pair.far)) == (["old moved on"] * 3, [])


def test_a_killed_coordinator_aborts_the_transaction(pair: Pair) -> None:
    with pair.near.connect() as near, pair.far.connect() as far:
        move_on(near, far, near.transaction())
        pair.near.kill()
        eventually(lambda: left(pair.far) == ["old"])  # unprepared work ends with its session
        pair.near.start()
        eventually(lambda: (left(pair.near), left(pair.far)) == ([], ["old"]))


def test_kills_after_the_commit_change_nothing(pair: Pair) -> None:
    with pair.near.connect() as near, pair.far.connect() as far, near.transaction() as transaction:
        move_on(near, far, transaction)
    for daemon in pair:
        daemon.kill()
    for daemon in pair:
        daemon.start()
    assert (left(pair.near), left(pair.far)) == (["old moved on"], [])


def test_a_transaction_of_another_kind_is_refused(pair: Pair) -> None:
    with pair.far.connect() as far:
        from openmsmq.client.transaction_calls import enlist_remote

        with pytest.raises(openmsmq.MsmqError, match="MQ_ERROR_INVALID_PARAMETER"):
            far._session.private.run(enlist_remote(bytes(16), b"a token of another kind"))


def test_the_asyncio_client_does_the_same(pair: Pair) -> None:
    async def program() -> None:
        near = await openmsmq.aio.connect("127.0.0.1", pair.near.port)
        far = await openmsmq.aio.connect("127.0.0.1", pair.far.port)
        async with near, far, await far.open(QUEUE) as source, await near.open(QUEUE, "send") as target:
            async with await near.transaction() as transaction:
                message = await source.receive(0, transaction=transaction)
                await target.send(message.decode(), transaction=transaction)

    asyncio.run(program())
    assert (left(pair.near), left(pair.far)) == (["old"], [])


def check_sums(pair: Pair, transactions: int, at_a_time: int, restarts: bool) -> None:
    """Each transaction sends to both; in the end, both have the same messages."""
    numbers = iter(range(transactions))
    committed: list[int] = []

    async def client() -> None:
        for number in numbers:
            with suppress(openmsmq.MsmqError, ConnectionError):
                async with (
                    await openmsmq.aio.connect("127.0.0.1", pair.near.port) as near,
                    await openmsmq.aio.connect("127.0.0.1", pair.far.port) as far,
                    await near.open(QUEUE, "send") as here,
                    await far.open(QUEUE, "send") as there,
                    await near.transaction() as transaction,
                ):
                    await here.send(str(number), transaction=transaction)
                    await there.send(str(number), transaction=transaction)
                committed.append(number)

    async def program() -> None:
        clients = [asyncio.create_task(client()) for _ in range(at_a_time)]
        while restarts and any(not one.done() for one in clients):
            await asyncio.sleep(1)
            pair.far.kill()
            await asyncio.to_thread(pair.far.start)
        await asyncio.gather(*clients)

    asyncio.run(program())

    def same() -> bool:
        near, far = sorted(left(pair.near)), sorted(left(pair.far))
        return near == sorted({*near}) and [*near, "old"] == far and {*map(str, committed)} <= {*near}

    eventually(same)
    assert len(committed) > transactions // 10 if restarts else len(committed) == transactions


def test_many_concurrent_transactions_commit(pair: Pair) -> None:
    check_sums(pair, 150, 16, restarts=False)


@pytest.mark.slow
def test_many_transactions_while_one_side_is_killed_each_second(pair: Pair) -> None:
    """T23."""
    check_sums(pair, 10_000, 64, restarts=True)
