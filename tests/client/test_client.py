"""The Python client against a running daemon."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

import openmsmq
import openmsmq.aio
from daemon import meanwhile
from openmsmq.client.arguments import as_message
from openmsmq.model import security
from openmsmq.model.constants import INFINITE, QueueAccessMask, SecurityInformation
from openmsmq.model.errors import AuthenticationError
from openmsmq.model.security import SecurityDescriptor


@pytest.fixture
def transactional(qm, path):
    name = f"{path}-tx"
    qm.create_queue(name, transactional=True)
    yield name
    qm.delete_queue(name)


def _send(qm, queue, *values, **properties):
    with qm.open(queue, "send") as opened:
        return [opened.send(value, **properties) for value in values]


def test_a_queue_has_the_properties_it_was_created_with(qm):
    kind = UUID("5e77d1b0-8c2a-4f95-b0e4-19c3a7d6f281")
    name = qm.create_queue(r".\private$\props", label="Aufträge", journal=True, quota=100, type=kind)
    properties = qm.properties(name)
    assert (properties["label"], properties["journal"], properties["quota"]) == ("Aufträge", True, 100)
    assert properties["type"] == kind
    assert abs(properties["create_time"] - time.time()) < 900
    qm.set_properties(name, label="x", journal=False)
    assert qm.properties(name, "label", "journal") == {"label": "x", "journal": False}
    assert properties["path_name"] in qm.queues()
    qm.delete_queue(name)
    with pytest.raises(openmsmq.QueueNotFound, match="props"):
        qm.properties(name)


@pytest.mark.parametrize(
    "value",
    ["text", "Üñí ✓", "", b"raw\x00bytes", 5, -(1 << 40), 2.5, True, Decimal("12.3456"), UUID(int=7),
     datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)],
    ids=str,
)  # fmt: skip
def test_values_come_back_as_they_were_sent(qm, queue, value):
    _send(qm, queue, value)
    with qm.open(queue) as opened:
        assert opened.receive(0).decode() == value


def test_every_property_a_sender_may_set_arrives(qm, queue):
    sent = openmsmq.Message(
        body=b"body", label="label", body_type=0x1011, priority=5, delivery_guarantee=1,
        acknowledgements_requested=3, journaling_requested=1, application_tag=0xCAFEBABE,
        correlation_identifier=bytes(range(20)), extension=b"ext", time_to_reach_queue=1000,
        administration_queue_format_name=r"DIRECT=OS:.\private$\admin", tracing_requested=1,
        response_queue_format_name=r"DIRECT=TCP:192.0.2.17\private$\resp", sender_identifier_type=1,
        sender_identifier=security.sid_bytes("S-1-5-21-1-2-3-500"), sender_certificate=b"cert", hash_algorithm=0x800C,
        connector_type_identifier=UUID(int=9).bytes_le,
    )  # fmt: skip
    with qm.open(queue, "send") as opened:
        identifier = opened.send(sent)
    with qm.open(queue) as opened:
        got = opened.receive(0)
    assert got.id == identifier
    for name in ("body", "label", "body_type", "priority", "delivery_guarantee", "acknowledgements_requested",
                 "journaling_requested", "application_tag", "correlation_identifier", "extension",
                 "administration_queue_format_name", "response_queue_format_name", "tracing_requested",
                 "sender_identifier", "sender_identifier_type", "connector_type_identifier"):  # fmt: skip
        assert getattr(got, name) == getattr(sent, name), name
    assert 990 <= got.time_to_reach_queue <= 1000
    assert got.time_to_be_received == INFINITE
    assert got.destination_queue_format_name == f"DIRECT=OS:{queue}"


def test_large_bodies_and_long_names_are_fetched_by_enlarging_buffers(qm, queue):
    body = bytes(range(256)) * 4096 * 3
    _send(
        qm, queue, body, response_queue_format_name=rf"DIRECT=OS:{'h' * 200}\private$\{'q' * 120}", extension=b"e" * 999
    )
    with qm.open(queue) as opened:
        message = opened.receive(0)
    assert message.body == body
    assert len(message.response_queue_format_name) > 300
    assert message.extension == b"e" * 999


def test_messages_come_by_priority_and_then_in_order(qm, queue):
    for text, priority in (("a", 3), ("b", 7), ("c", 3), ("d", 0), ("e", 7)):
        _send(qm, queue, text, priority=priority)
    with qm.open(queue, "peek") as opened:
        assert [message.decode() for message in opened] == ["b", "e", "a", "c", "d"]


def test_iterating_removes_nothing(qm, queue):
    _send(qm, queue, "a", "b")
    with qm.open(queue) as opened:
        assert [m.decode() for m in opened] == [m.decode() for m in opened] == ["a", "b"]
    assert qm.counts(queue)["message_count"] == 2


def test_a_cursor_receives_the_current_message(qm, queue):
    _send(qm, queue, "a", "b", "c")
    with qm.open(queue) as opened, opened.cursor() as cursor:
        with pytest.raises(openmsmq.IllegalCursorAction):
            cursor.peek_next(0)
        assert cursor.peek(0).decode() == "a"
        assert cursor.peek_next(0).decode() == "b"
        assert cursor.receive(0).decode() == "b"
        assert cursor.peek(0).decode() == "c"
        assert opened.receive(0).decode() == "a"
        assert opened.receive(0).decode() == "c"
        with pytest.raises(openmsmq.MessageAlreadyReceived):
            cursor.peek(0)


def test_a_receive_waits_for_a_message(qm, queue, service):
    with qm.open(queue) as opened, meanwhile(0.2, lambda: _send(qm, queue, "late")):
        assert opened.receive(5).decode() == "late"


def test_a_receive_ends_when_its_time_is_up(qm, queue):
    with qm.open(queue) as opened:
        started = time.monotonic()
        with pytest.raises(openmsmq.ReceiveTimeout, match="MQ_ERROR_IO_TIMEOUT"):
            opened.receive(0.3)
        assert 0.25 < time.monotonic() - started < 2
        with pytest.raises(ValueError, match="timeout is -1"):
            opened.receive(-1)


def test_threads_share_a_queue_manager_while_one_waits(qm, queue):
    got = []
    with qm.open(queue) as opened:
        threads = [threading.Thread(target=lambda: got.append(opened.receive(5).decode())) for _ in range(5)]
        for thread in threads:
            thread.start()
        _send(qm, queue, *range(5))
        for thread in threads:
            thread.join()
    assert sorted(got) == list(range(5))


def test_a_committed_transaction_arrives_as_a_whole_with_its_flags(qm, transactional):
    with qm.open(transactional, "send") as opened, qm.transaction() as transaction:
        for value in range(3):
            opened.send(value, transaction=transaction)
        assert qm.counts(transactional)["message_count"] in (0, 3)  # locked messages may count
        with qm.open(transactional, "peek") as reader, pytest.raises(openmsmq.ReceiveTimeout):
            reader.peek(0)
    with qm.open(transactional) as opened:
        messages = list(opened)
    assert [(m.decode(), m.first_in_transaction, m.last_in_transaction) for m in messages] == [
        (0, True, False), (1, False, False), (2, False, True)]  # fmt: skip
    assert len({m.transaction_identifier for m in messages}) == 1


def test_an_exception_aborts_and_puts_received_messages_back(qm, transactional):
    with qm.open(transactional, "send") as out, qm.transaction() as transaction:
        out.send("kept", transaction=transaction)
    with qm.open(transactional) as opened, qm.open(transactional, "send") as out:
        with pytest.raises(RuntimeError, match="no"), qm.transaction() as transaction:  # noqa: PT012
            assert opened.receive(0, transaction=transaction).decode() == "kept"
            out.send("dropped", transaction=transaction)
            raise RuntimeError("no")
        assert [m.decode() for m in opened] == ["kept"]


def test_a_disconnected_client_aborts_its_transaction(qm, transactional, service):
    with qm.open(transactional, "send") as out, qm.transaction() as transaction:
        out.send("kept", transaction=transaction)
    other = service.connect()
    other.open(transactional).receive(0, transaction=other.transaction())
    with qm.open(transactional) as opened:
        with pytest.raises(openmsmq.ReceiveTimeout):
            opened.peek(0)
        other.close()
        assert opened.receive(2).decode() == "kept"


def test_transactions_and_queues_must_agree(qm, queue, transactional):
    with qm.open(transactional, "send") as out, pytest.raises(openmsmq.TransactionUsage):
        out.send("x")
    transaction = qm.transaction()
    with qm.open(queue, "send") as out, pytest.raises(openmsmq.TransactionUsage):
        out.send("x", transaction=transaction)
    transaction.abort()


def test_an_exclusive_reader_excludes_others(qm, queue):
    with qm.open(queue, exclusive=True):
        with pytest.raises(openmsmq.SharingViolation):
            qm.open(queue)
        qm.open(queue, "send").close()
    qm.open(queue).close()


def test_purging_empties_the_queue(qm, queue):
    _send(qm, queue, *range(10))
    with qm.open(queue) as opened:
        opened.purge()
    assert qm.counts(queue)["message_count"] == 0


def test_expired_messages_go_to_the_dead_letter_queue_and_to_the_administration_queue(qm, queue):
    qm.create_queue(r".\private$\acks")
    asked = {"acknowledgements_requested": 0x0E, "administration_queue_format_name": r"DIRECT=OS:.\private$\acks"}
    _send(qm, queue, "dies", label="why", time_to_be_received=1, journaling_requested=1, **asked)
    with qm.open(r".\private$\acks") as acknowledgments:
        acknowledgment = acknowledgments.receive(5)
    with qm.open(r"DIRECT=OS:.\SYSTEM$;DEADLETTER") as dead_letters:
        dead = dead_letters.receive(1)
    assert acknowledgment.message_class == dead.message_class == 0xC002
    assert acknowledgment.correlation_identifier == dead.identifier
    assert dead.decode() == "dies"
    qm.delete_queue(r".\private$\acks")


def test_a_queue_with_journal_keeps_what_was_received(qm):
    name = qm.create_queue(r".\private$\journaled", journal=True)
    _send(qm, name, "a", "b")
    with qm.open(name) as opened:
        opened.receive(0)
    with qm.open(name + ";journal", "peek") as journal:
        assert [m.decode() for m in journal] == ["a"]
    qm.delete_queue(name)


def test_security_descriptors_are_read_changed_and_obeyed(service, queue):
    with service.connect(user="tester", password="Passw0rd!") as user, service.connect() as anonymous:
        mine = user.create_queue(r".\private$\mine")
        descriptor = SecurityDescriptor.parse(user.security(mine))
        assert descriptor.owner is not None and descriptor.owner.startswith("S-1-5-21-")
        only_me = SecurityDescriptor(dacl=(security.allow(descriptor.owner, QueueAccessMask.GENERIC_ALL),))
        user.set_security(mine, only_me.pack(), SecurityInformation.DACL)
        with pytest.raises(openmsmq.AccessDenied):
            anonymous.open(mine)
        with pytest.raises(openmsmq.AccessDenied):
            anonymous.delete_queue(mine)
        _send(user, mine, "secret")
        with user.open(mine) as opened:
            message = opened.receive(0)
        assert security.sid_text(message.sender_identifier) == descriptor.owner
        user.delete_queue(mine)


def test_a_wrong_password_is_refused(service):
    with pytest.raises((openmsmq.AccessDenied, AuthenticationError, ConnectionError)):
        service.connect(user="tester", password="wrong")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (r".\private$\none", openmsmq.QueueNotFound),
        (r"DIRECT=OS:.\private$\a;b\c", openmsmq.IllegalFormatName),
        ("nonsense", openmsmq.QueueNotFound),
        (r"nonsense\private$", openmsmq.MsmqError),
        ("", openmsmq.IllegalQueuePathName),
        (r"elsewhere\private$\q", openmsmq.MsmqError),
        ("PUBLIC=5e77d1b0-8c2a-4f95-b0e4-19c3a7d6f281", openmsmq.QueueNotFound),
    ],
)
def test_opening_a_missing_queue_is_explained(qm, name, error):
    with pytest.raises(error):
        qm.open(name)


def test_a_message_with_properties_of_its_own_takes_no_others():
    with pytest.raises(TypeError, match="label"):
        as_message(openmsmq.Message(), {"label": "x"})


def test_the_asyncio_client_has_the_same_operations(service, queue):
    async def program():
        async with await openmsmq.aio.connect("127.0.0.1", service.port) as manager:
            assert queue.rpartition("\\")[2] in " ".join(await manager.queues())
            async with await manager.open(queue) as reader, await manager.open(queue, "send") as writer:
                receiving = asyncio.create_task(reader.receive(5))
                await asyncio.sleep(0.05)
                await writer.send("one")
                assert (await receiving).decode() == "one"
                for value in range(3):
                    await writer.send(value)
                assert [m.decode() async for m in reader] == [0, 1, 2]
                await reader.purge()
                with pytest.raises(openmsmq.ReceiveTimeout):
                    await reader.receive(0)

    asyncio.run(program())


def test_a_cancelled_receive_leaves_the_next_message_alone(service, queue):
    async def program():
        async with await openmsmq.aio.connect("127.0.0.1", service.port) as manager:
            async with await manager.open(queue) as reader, await manager.open(queue, "send") as writer:
                receiving = asyncio.create_task(reader.receive())
                await asyncio.sleep(0.05)
                receiving.cancel()
                await asyncio.sleep(0.05)
                await writer.send("later")
                assert (await reader.receive(1)).decode() == "later"

    asyncio.run(program())
