"""Sending many messages at once: their order and identifiers, and the result of each if one fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import openmsmq
import openmsmq.aio
from daemon import Daemon
from openmsmq.client.sync.session import ServerSession
from openmsmq.model.constants import MAXIMUM_MESSAGE_SIZE

TOO_LARGE = bytes(MAXIMUM_MESSAGE_SIZE + 1)


def labels(qm, queue):
    with qm.open(queue, "peek") as opened:
        return [message.label for message in opened]


def test_messages_keep_their_order_whatever_their_sizes(qm, queue):
    sizes = [0, 70_000, 10, 300_000, 5, 2_000_000, 1, 1] * 20
    wanted = [openmsmq.Message(label=str(number), body=bytes(size)) for number, size in enumerate(sizes)]
    with qm.open(queue, "send") as opened:
        identifiers = opened.send_many(iter(wanted))
    assert labels(qm, queue) == [str(number) for number in range(len(sizes))]
    with qm.open(queue, "peek") as opened:
        assert [message.id for message in opened] == identifiers


def test_values_share_properties_and_the_window_may_be_small(qm, queue):
    with qm.open(queue, "send") as opened:
        assert len(opened.send_many(map(str, range(7)), window=2, label="x", recoverable=True)) == 7
        with pytest.raises(ValueError, match="window is 0"):
            opened.send_many(["a"], window=0)
        assert opened.send_many([]) == []
    with qm.open(queue, "peek") as opened:
        assert [(m.decode(), m.label, m.recoverable) for m in opened] == [(str(n), "x", True) for n in range(7)]


def test_the_error_has_the_outcome_of_each_message(qm, queue):
    given = iter([b"0", b"1", TOO_LARGE, *(str(n).encode() for n in range(3, 500))])
    with qm.open(queue, "send") as opened, pytest.raises(openmsmq.MessagesNotSent, match="message 2 failed") as failed:
        opened.send_many(given)
    error = failed.value
    assert list(error.errors) == [2] and isinstance(error.errors[2], openmsmq.InsufficientResources)
    assert error.hresult == error.errors[2].hresult
    assert [identifier is None for identifier in error.sent] == [False, False, True]
    with qm.open(queue, "peek") as opened:
        assert [message.id for message in opened] == [each for each in error.sent if each]
    assert next(given) == b"3", "no others were begun"


def test_the_error_of_a_full_queue_lists_the_stored_messages(qm):
    qm.create_queue("narrow", quota=100)
    with qm.open("narrow", "send") as opened, pytest.raises(openmsmq.MessagesNotSent) as failed:
        opened.send_many(bytes([n]) * 10_000 for n in range(100))
    sent = [identifier for identifier in failed.value.sent if identifier]
    with qm.open("narrow", "peek") as opened:
        assert [message.id for message in opened] == sent
    assert 0 < len(sent) < 20 and min(failed.value.errors) <= len(sent)
    qm.delete_queue("narrow")


def test_a_failure_of_the_iterator_is_raised_after_running_sends(qm, queue):
    def broken():
        yield from ("a", "b")
        raise KeyError("of the program")

    with qm.open(queue, "send") as opened, pytest.raises(KeyError, match="of the program"):
        opened.send_many(broken())
    assert len(labels(qm, queue)) == 2


@pytest.mark.parametrize("ending", [StopIteration, KeyError])
def test_an_iterator_that_has_ended_or_failed_is_not_advanced_again(qm, queue, ending):
    class Values:
        calls = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.calls += 1
            if self.calls == 2:
                raise ending
            return str(self.calls)

    values = Values()
    with qm.open(queue, "send") as opened, suppress(KeyError):
        opened.send_many(values)
    assert values.calls == 2 and len(labels(qm, queue)) == 1


def test_a_transaction_has_all_of_them_or_none(qm):
    qm.create_queue("ledger", transactional=True)
    with qm.open("ledger", "send") as opened:
        with suppress(openmsmq.MessagesNotSent), qm.transaction() as transaction:
            opened.send_many(["a", TOO_LARGE], transaction=transaction)
        assert labels(qm, "ledger") == []
        with qm.transaction() as transaction:
            opened.send_many(map(str, range(100)), transaction=transaction)
        with pytest.raises(openmsmq.MessagesNotSent) as failed:
            opened.send_many(["a", "b"])
    assert isinstance(failed.value.errors[0], openmsmq.TransactionUsage)
    with qm.open("ledger", "peek") as opened:
        assert [message.decode() for message in opened] == [str(number) for number in range(100)]
    qm.delete_queue("ledger")


def test_several_sends_run_concurrently(qm, queue, monkeypatch):
    """The connection sends up to 64 messages before it waits for the first reply."""
    from msrpc.rpc.client import Connection

    counts, answers = [], Connection.answers

    def counted(connection, timeout=None):
        counts.append(len(connection.core._calls))
        return answers(connection, timeout)

    monkeypatch.setattr(Connection, "answers", counted)
    with qm.open(queue, "send") as opened:
        opened.send_many(map(str, range(200)))
        assert max(counts) == 64
        counts.clear()
        monkeypatch.setattr(ServerSession, "keeps_order", lambda session: False)
        opened.send_many(map(str, range(3)))
        assert set(counts) == {1}, "a server that may change the order gets one at a time"


def test_the_error_of_a_lost_connection_lists_unknown_outcomes(tmp_path):
    with Daemon(tmp_path / "data") as service, service.connect() as manager:
        manager.create_queue("orders")

        def killing():
            for number in range(200):
                if number == 100:
                    service.kill()
                yield str(number).encode()

        with manager.open("orders", "send") as opened, pytest.raises(openmsmq.MessagesNotSent) as failed:
            opened.send_many(killing(), recoverable=True)
        assert failed.value.errors
        assert all(isinstance(error, openmsmq.RpcConnectionError) for error in failed.value.errors.values())
        service.start()
        with service.connect() as again, again.open("orders", "peek") as opened:
            there = {message.id for message in opened}
        assert {identifier for identifier in failed.value.sent if identifier} <= there


def test_asyncio_tasks_send_many_messages_too(service, qm, queue):
    async def program():
        async with openmsmq.aio.connect("127.0.0.1", service.port) as manager:
            async with manager.open(queue, "send") as opened:
                identifiers = await opened.send_many((bytes(size) for size in [0, 70_000, 5, 200_000] * 30), label="x")
                with pytest.raises(openmsmq.MessagesNotSent) as failed:
                    await opened.send_many([b"a", TOO_LARGE, b"b"])
                assert [each is None for each in failed.value.sent] == [False, True]
                return identifiers

    identifiers = asyncio.run(program())
    with qm.open(queue, "peek") as opened:
        found = list(opened)
    assert [message.id for message in found][:-1] == identifiers
    assert [len(message.body) for message in found] == [*([0, 70_000, 5, 200_000] * 30), 1]
