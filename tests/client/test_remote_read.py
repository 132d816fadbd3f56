"""The RemoteRead client against a running daemon, with threads; test_remote_read_tasks.py has asyncio."""

from __future__ import annotations

import asyncio
import random
import threading
from uuid import UUID

import pytest

import openmsmq
import openmsmq.aio
from client.queues import left, put
from daemon import Daemon, eventually, meanwhile
from msrpc.ndr import Interface
from msrpc.rpc.client import Connection
from msrpc.rpc.pdu import AuthLevel
from openmsmq.accounts.users import UsersFile
from openmsmq.client import remote_read, transaction_calls
from openmsmq.client.calls import CallerRefused, ProtocolUnavailable
from openmsmq.client.sync import connect
from openmsmq.model.errors import HResult, OperationCancelled

CORRELATION = bytes(range(20))


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """A daemon that requires privacy, as when listening beyond loopback."""
    with Daemon(tmp_path_factory.mktemp("strict") / "data", "--interface-levels", "RemoteRead=privacy") as running:
        UsersFile(running.directory / "users.json").add("tester", "Passw0rd!")
        with running.connect() as manager:
            manager.create_queue(r".\private$\q")
        yield running
    assert "Traceback" not in running.log


# -- choice of the protocol --------------------------------------------------------------------------------------------


def test_reading_uses_remote_read_and_sending_uses_qmcomm(qm, queue):
    for access, protocol in (("receive", "remoteread"), ("peek", "remoteread"), ("send", "qmcomm")):
        with qm.open(queue, access) as opened:
            assert opened.protocol == protocol
    with qm.open(queue, protocol="qmcomm") as opened:
        assert opened.protocol == "qmcomm"
    with pytest.raises(openmsmq.MsmqError, match="not for send"):
        qm.open(queue, "send", protocol="remoteread")
    with pytest.raises(ValueError, match="'ftp', allowed: auto, remoteread, qm2qm, qmcomm"):
        qm.open(queue, protocol="ftp")


def test_a_refused_open_says_which_queue_and_why(qm, queue):
    with pytest.raises(openmsmq.QueueNotFound, match="R_OpenQueue"):
        qm.open(r".\private$\missing", protocol="remoteread")
    with qm.open(queue, exclusive=True), pytest.raises(openmsmq.SharingViolation):
        qm.open(queue, protocol="remoteread")


def test_anonymous_callers_fall_back_if_remote_read_requires_privacy(strict):
    with strict.connect() as manager:
        with manager.open(r".\private$\q") as opened:
            assert opened.protocol == "qmcomm"
        with pytest.raises(CallerRefused, match="refuses this caller"):
            manager.open(r".\private$\q", protocol="remoteread")

    async def program():
        async with await openmsmq.aio.connect("127.0.0.1", strict.port) as manager:
            async with await manager.open(r".\private$\q") as opened:
                assert opened.protocol == "qmcomm"
            with pytest.raises(openmsmq.AccessDenied):
                await manager.open(r".\private$\q", protocol="remoteread")

    asyncio.run(program())


def test_users_read_with_privacy_without_asking_for_it(strict):
    user = {"user": "tester", "password": "Passw0rd!"}
    with strict.connect(**user) as manager:
        put(manager, r".\private$\q", "secret")
        with manager.open(r".\private$\q") as opened:
            assert opened.protocol == "remoteread"
            assert opened.receive(0).decode() == "secret"
    with strict.connect(**user, level=AuthLevel.PKT_INTEGRITY) as manager, manager.open(r".\private$\q") as opened:
        assert opened.protocol == "qmcomm", "the level that was asked for is kept"

    async def program():
        async with await openmsmq.aio.connect("127.0.0.1", strict.port, **user) as manager:
            async with await manager.open(r".\private$\q", "send") as sender:
                await sender.send("secret")
            async with await manager.open(r".\private$\q") as opened:
                assert (opened.protocol, (await opened.receive(0)).decode()) == ("remoteread", "secret")

    asyncio.run(program())


@pytest.mark.parametrize("user", [{}, {"user": "tester", "password": "Passw0rd!"}], ids=["anonymous", "user"])
def test_a_server_without_remote_read_is_read_by_qmcomm(strict, monkeypatch, user):
    unknown = Interface("RemoteRead", UUID(int=7), (1, 0), remote_read.RemoteRead.operations)
    monkeypatch.setattr(remote_read, "RemoteRead", unknown)
    with strict.connect(**user) as manager:
        sender = manager.open(r".\private$\q", "send")
        with manager.open(r".\private$\q") as opened:
            assert opened.protocol == "qmcomm"
            sender.send("a")
            assert opened.receive(0).decode() == "a"
        with pytest.raises(ProtocolUnavailable, match="does not offer"):
            manager.open(r".\private$\q", protocol="remoteread")

    async def program():
        async with await openmsmq.aio.connect("127.0.0.1", strict.port, **user) as manager:
            async with await manager.open(r".\private$\q") as opened:
                assert opened.protocol == "qmcomm"
            with pytest.raises(ProtocolUnavailable, match="does not offer"):
                await manager.open(r".\private$\q", protocol="remoteread")

    asyncio.run(program())


def test_what_a_protocol_lacks_is_named(qm, queue):
    with qm.open(queue, protocol="qmcomm") as opened:
        for operation in (
            lambda: opened.receive_lock().__enter__(), lambda: next(opened.consume()), opened.cancel,
            lambda: opened.receive_by_lookup_id(1), lambda: opened.peek_by_lookup_id(1), lambda: opened.move(1),
            lambda: opened.reject(1),
        ):  # fmt: skip
            with pytest.raises(openmsmq.MsmqError, match="through qmcomm, which has no") as error:
                operation()
            assert error.value.hresult == HResult.MQ_ERROR_UNSUPPORTED_OPERATION


def test_transactions_and_the_format_name_of_a_queue_open_through_remote_read(qm):
    name = qm.create_queue(r".\private$\both", transactional=True)
    with qm.open(name, "send") as sender, qm.transaction() as transaction:
        sender.send("first", transaction=transaction)
        sender.send("second", transaction=transaction)
    with qm.open(name) as opened:
        with pytest.raises(RuntimeError), qm.transaction() as transaction:  # noqa: PT012
            assert opened.receive(0, transaction=transaction).decode() == "first"
            assert opened.peek(0).decode() == "second"
            raise RuntimeError
        with qm.transaction() as transaction:
            assert opened.receive(0, transaction=transaction).decode() == "first"
        assert opened.receive(0).decode() == "second"
        assert opened.format_name.lower() == "direct=os:.\\private$\\both"
    with qm.open(name, exclusive=True) as opened, qm.transaction() as transaction:
        with pytest.raises(openmsmq.SharingViolation, match="protocol='qmcomm'"):
            opened.format_name  # noqa: B018 - needs a second handle
        with pytest.raises(openmsmq.ReceiveTimeout):
            opened.receive(0, transaction=transaction)
    with qm.open(name, exclusive=True, protocol="qmcomm") as opened, qm.transaction() as transaction:
        with pytest.raises(openmsmq.ReceiveTimeout):
            opened.receive(0, transaction=transaction)
    qm.delete_queue(name)


# -- two phases --------------------------------------------------------------------------------------------------------


def test_both_protocols_return_the_same_message(qm, queue):
    properties = {
        "label": "l", "priority": 5, "application_tag": 7, "extension": b"e", "correlation_identifier": CORRELATION,
        "acknowledgements_requested": 3, "time_to_be_received": 1000,
        "response_queue_format_name": r"DIRECT=OS:x\private$\r",
    }  # fmt: skip
    put(qm, queue, "body", **properties)
    with qm.open(queue, "peek") as remote, qm.open(queue, "peek", protocol="qmcomm") as local:
        one, other = remote.peek(0), local.peek(0)
    assert one.lookup_identifier >> 56 == 7 - 5
    assert other.lookup_identifier == 0, "MS-MQMP carries none"
    # Packets have no value for an unset cipher or hash.
    assert (one.encryption_algorithm, other.encryption_algorithm) == (0x6801, 0)
    assert (one.hash_algorithm, other.hash_algorithm) == (0x8004, 0)
    chosen = ("encryption_algorithm", "hash_algorithm")
    for name in openmsmq.Message.__slots__:
        if name not in ("lookup_identifier", "time_to_be_received", "time_to_reach_queue", *chosen):
            assert getattr(one, name) == getattr(other, name), name


def test_a_locked_message_is_removed_when_the_block_succeeds(qm, queue):
    put(qm, queue, "a", "b")
    with qm.open(queue) as opened:
        with opened.receive_lock(0) as message:
            assert message.decode() == "a"
            assert left(qm, queue) == ["b"]
        assert qm.counts(queue)["message_count"] == 1


def test_an_exception_puts_the_locked_message_back_in_its_place(qm, queue):
    put(qm, queue, "a", "b")
    with qm.open(queue) as opened:
        with pytest.raises(RuntimeError), opened.receive_lock(0):
            raise RuntimeError
        assert left(qm, queue) == ["a", "b"]
        with pytest.raises(openmsmq.ReceiveTimeout), opened.receive_lock(0), opened.receive_lock(0):
            opened.peek(0)
        assert left(qm, queue) == ["a", "b"]


def test_consuming_removes_messages_processed_by_the_loop(qm, queue):
    put(qm, queue, *range(5))
    with qm.open(queue) as opened:
        seen = []
        for message in opened.consume(0):
            seen.append(message.decode())
            if len(seen) == 3:
                break
        assert (seen, left(qm, queue)) == ([0, 1, 2], [2, 3, 4])
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            for message in opened.consume(0):
                1 / (3 - message.decode())
        assert left(qm, queue) == [3, 4]
        assert [message.decode() for message in opened.consume(0)] == [3, 4]
        assert left(qm, queue) == []


def test_workers_that_fail_now_and_then_do_each_piece_of_work_once(qm, queue, service):
    put(qm, queue, *range(300))
    done, failures = [], []

    def work(seed):
        dice = random.Random(seed)
        with service.connect() as manager, manager.open(queue) as opened:
            while True:
                try:
                    for message in opened.consume(0.3):
                        if dice.random() < 0.2:
                            raise ZeroDivisionError
                        done.append(message.decode())
                    return
                except ZeroDivisionError:
                    failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(300))
    assert failures and qm.counts(queue)["message_count"] == 0


def test_the_loss_of_the_client_puts_the_message_back(qm, queue, service):
    put(qm, queue, "kept")
    other = service.connect()
    locked = other.open(queue).receive_lock(0)
    assert locked.__enter__().decode() == "kept"
    with qm.open(queue) as opened:
        with pytest.raises(openmsmq.ReceiveTimeout):
            opened.peek(0)
        other.close()
        assert opened.receive(5).decode() == "kept"


def test_a_message_that_cannot_be_removed_is_put_back_and_the_error_raised(qm, queue, service):
    put(qm, queue, "gone")
    with qm.open(queue) as opened:
        with pytest.raises(openmsmq.QueueDeleted), opened.receive_lock(0):
            qm.delete_queue(queue)
        qm.create_queue(queue)
    put(qm, queue, "gone")

    async def program():
        async with openmsmq.aio.connect("127.0.0.1", service.port) as manager, manager.open(queue) as opened:
            with pytest.raises(openmsmq.QueueDeleted):
                async with opened.receive_lock(0):
                    await manager.delete_queue(queue)

    asyncio.run(program())
    qm.create_queue(queue)


@pytest.mark.parametrize("waits", [False, True])
def test_an_interrupted_receive_loses_nothing(qm, queue, service, monkeypatch, waits):
    """The interrupt comes after the request was sent and before the reply is read."""
    with service.connect() as manager, manager.open(queue) as opened:
        busy = threading.Thread(target=until_cancelled, args=(opened,))
        other = manager.open(queue)
        if not waits:
            put(qm, queue, "kept")
        else:
            busy.start()  # a second connection keeps the association's handles
            eventually(lambda: opened._handle.queue.waiting)
        put_on_two_connections(manager)
        exchange = Connection._exchange

        def interrupted(self, wanted, timeout=None):
            monkeypatch.setattr(Connection, "_exchange", exchange)
            self._socket.sendall(self._core.data_to_send())
            raise KeyboardInterrupt

        monkeypatch.setattr(Connection, "_exchange", interrupted)
        with pytest.raises(KeyboardInterrupt):
            other.receive(0 if not waits else None)
        if waits:
            opened.cancel()
            busy.join(5)
            put(qm, queue, "kept")
        assert other.receive(1).decode() == "kept"


def until_cancelled(opened):
    with pytest.raises(OperationCancelled):
        opened.receive()


def put_on_two_connections(manager):
    """Make the pool hold two idle connections, so that the association outlives one."""
    pool = manager._session.pool
    first = pool.take(call := next(openmsmq.client.operations.query(4)))
    pool.give(pool.take(call))
    pool.give(first)


def test_without_another_connection_an_interrupt_ends_the_handle_and_the_message_is_put_back(
    qm, queue, service, monkeypatch
):
    put(qm, queue, "kept")
    manager = service.connect()
    opened = manager.open(queue)
    exchange = Connection._exchange

    def interrupted(self, wanted, timeout=None):
        monkeypatch.setattr(Connection, "_exchange", exchange)
        self._socket.sendall(self._core.data_to_send())
        raise KeyboardInterrupt

    monkeypatch.setattr(Connection, "_exchange", interrupted)
    with pytest.raises(KeyboardInterrupt):
        opened.receive(0)
    with qm.open(queue) as reader:
        assert reader.receive(5).decode() == "kept"
    manager.close()


def test_another_thread_cancels_what_waits(qm, queue):
    with qm.open(queue) as opened:
        ends = []

        def wait(read):
            try:
                read()
            except openmsmq.MsmqError as error:
                ends.append(type(error))

        threads = [threading.Thread(target=wait, args=(read,)) for read in (opened.receive, opened.peek)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(opened._handle.queue.waiting) == 2)
        opened.cancel()
        for thread in threads:
            thread.join(5)
        assert ends == [OperationCancelled] * 2
        put(qm, queue, "later")
        assert opened.receive(1).decode() == "later"


# -- identifiers -------------------------------------------------------------------------------------------------------


def test_messages_are_found_by_lookup_identifier(qm, queue):
    put(qm, queue, "a", "b", "c", "d")
    with qm.open(queue) as opened:
        middle = list(opened)[1].lookup_identifier
        assert [opened.peek_by_lookup_id(middle, where).decode() for where in ("previous", "current", "next")] == [
            "a", "b", "c"]  # fmt: skip
        assert opened.receive_by_lookup_id(middle, "next").decode() == "c"
        assert opened.receive_by_lookup_id(middle, "previous").decode() == "a"
        assert opened.receive_by_lookup_id(middle).decode() == "b"
        with pytest.raises(openmsmq.MessageNotFound):
            opened.receive_by_lookup_id(middle)
        assert left(qm, queue) == ["d"]
        with pytest.raises(ValueError, match="'up', allowed: current, next, previous"):
            opened.peek_by_lookup_id(middle, "up")


@pytest.mark.parametrize("protocol", ["remoteread", "qmcomm"])
def test_a_message_is_taken_by_its_correlation_identifier(qm, queue, protocol):
    put(qm, queue, "a")
    put(qm, queue, "answer", correlation_identifier=CORRELATION)
    put(qm, queue, "b")
    with qm.open(queue, protocol=protocol) as opened:
        assert opened.receive_by_correlation_id(CORRELATION, 0).decode() == "answer"
        assert left(qm, queue) == ["a", "b"]
        with pytest.raises(openmsmq.ReceiveTimeout, match=CORRELATION.hex()):
            opened.receive_by_correlation_id(CORRELATION, 0.1)
        with meanwhile(0.1, lambda: put(qm, queue, "late", correlation_identifier=CORRELATION)):
            assert opened.receive_by_correlation_id(CORRELATION, 5).decode() == "late"


def test_a_correlated_message_is_found_though_it_comes_behind_the_cursor(qm, queue):
    put(qm, queue, "a")
    with qm.open(queue) as opened:
        urgent = {"correlation_identifier": CORRELATION, "priority": 7}
        with meanwhile(0.1, lambda: put(qm, queue, "urgent", **urgent)):
            assert opened.receive_by_correlation_id(CORRELATION, 10).decode() == "urgent"


def test_readers_with_the_same_correlation_identifier_get_each_message_once(qm, queue):
    put(qm, queue, *range(20), correlation_identifier=CORRELATION)
    got = []

    def read():
        with qm.open(queue) as opened:
            for _ in range(5):
                got.append(opened.receive_by_correlation_id(CORRELATION, 10).decode())

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(20))


def test_a_message_is_moved_to_a_subqueue_and_back(qm, queue):
    put(qm, queue, "a", "b")
    with qm.open(queue) as opened:
        identifier = opened.peek(0).lookup_identifier
        opened.move(identifier, "sub")
        assert opened.peek(0).decode() == "b"
        with qm.open(f"{queue};sub") as sub:
            moved = sub.peek(0)
            assert (moved.decode(), moved.move_count, moved.lookup_identifier) == ("a", 1, identifier)
            sub.move(identifier, "")
            with pytest.raises(openmsmq.ReceiveTimeout):
                sub.peek(0)
        assert opened.receive(0).decode() == "a"
        with pytest.raises(openmsmq.MessageNotFound, match="R_MoveMessage"):
            opened.move(identifier, "sub")


def test_a_message_received_in_a_transaction_is_rejected(qm, service):
    name = ".\\private$\\rejecting"
    qm.create_queue(name, transactional=True)
    with qm.transaction() as transaction, qm.open(name, "send") as sender:
        sender.send("a", journaling_requested=1, transaction=transaction)
    with qm.open(name) as opened:
        identifier = opened.peek(0).lookup_identifier
        with pytest.raises(openmsmq.TransactionUsage, match="R_SetUserAcknowledgementClass"):
            opened.reject(identifier)
        with qm.transaction() as transaction:
            assert opened.receive(0, transaction=transaction).decode() == "a"
            opened.reject(identifier)
        with pytest.raises(openmsmq.ReceiveTimeout):
            opened.peek(0)
    with qm.open("DIRECT=OS:.\\system$;DEADXACT") as dead:
        message = dead.receive(0)
        assert (message.decode(), message.message_class) == ("a", 0xC004)


def test_the_package_names_the_errors_of_remote_read():
    assert openmsmq.MessageNotFound and openmsmq.OperationCancelled is OperationCancelled
    assert connect is openmsmq.connect


# -- transactions ------------------------------------------------------------------------------------------------------


@pytest.fixture
def poisoned(qm, request):
    """A transactional queue with a delivery limit of 2 that holds one message."""
    name = rf".\private$\{request.node.name[:60]}"
    qm.create_queue(name, transactional=True, delivery_limit=2)
    with qm.open(name, "send") as out, qm.transaction() as transaction:
        out.send("bad", transaction=transaction)
    yield name
    qm.delete_queue(name)


def test_a_message_received_in_a_transaction_has_its_abort_count_and_lookup_identifier(qm, poisoned):
    with qm.open(poisoned) as opened, qm.open(poisoned, "peek") as peeking:
        for aborted in range(2):
            transaction = qm.transaction()
            message = opened.receive(0, transaction=transaction)
            assert (message.decode(), message.abort_count) == ("bad", aborted)
            with pytest.raises(openmsmq.MsmqError):
                peeking.receive_by_lookup_id(message.lookup_identifier)
            transaction.abort()
        with pytest.raises(openmsmq.ReceiveTimeout):
            opened.receive(0, transaction=qm.transaction())
    with qm.open(f"{poisoned};poison") as opened, qm.transaction() as transaction:
        assert opened.receive(0, transaction=transaction).abort_count == 2


def test_a_cursor_receives_in_a_transaction_and_an_abort_puts_it_back(qm, poisoned):
    with qm.open(poisoned) as opened:
        with opened.cursor() as cursor:
            cursor.peek(0)
            with pytest.raises(RuntimeError), qm.transaction() as transaction:  # noqa: PT012
                assert cursor.receive(0, transaction=transaction).abort_count == 0
                raise RuntimeError
        with qm.transaction() as transaction:
            assert opened.receive(0, transaction=transaction).abort_count == 1
    assert qm.counts(poisoned)["message_count"] == 0


def test_a_user_whose_calls_have_two_levels_has_one_transaction(qm, poisoned, strict):
    with strict.connect(user="tester", password="Passw0rd!") as user:
        assert user._session.pool is not user._session.private
        user.create_queue(r".\private$\two-levels", transactional=True)
        with user.open(r".\private$\two-levels", "send") as out, user.transaction() as transaction:
            out.send("x", transaction=transaction)
        with user.open(r".\private$\two-levels") as opened, user.transaction() as transaction:
            assert opened.protocol == "remoteread"
            assert opened.receive(0, transaction=transaction).lookup_identifier
        assert user.counts(r".\private$\two-levels")["message_count"] == 0


def test_with_a_server_without_remote_transactions_the_receive_uses_qmcomm(service, poisoned, monkeypatch):
    def refused(uow, token):
        raise openmsmq.MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "an empty token")
        yield

    monkeypatch.setattr(transaction_calls, "enlist_remote", refused)
    with service.connect() as qm:
        with qm.open(poisoned, exclusive=True) as opened, qm.transaction() as transaction:
            with pytest.raises(openmsmq.SharingViolation, match="protocol='qmcomm'"):
                opened.receive(0, transaction=transaction)
            with opened.cursor() as cursor, pytest.raises(openmsmq.MsmqError, match="protocol='qmcomm'"):
                cursor.receive(0, transaction=transaction)
        with qm.open(poisoned) as opened, qm.transaction() as transaction:
            assert opened.receive(0, transaction=transaction).decode() == "bad"
        assert qm.counts(poisoned)["message_count"] == 0


def test_the_asyncio_client_receives_in_transactions(service, poisoned):
    async def receive():
        async with await openmsmq.aio.connect("127.0.0.1", service.port) as qm:
            async with await qm.open(poisoned) as opened:
                transaction = await qm.transaction()
                first = await opened.receive(0, transaction=transaction)
                await transaction.abort()
                async with await qm.transaction() as transaction:
                    again = await opened.receive(0, transaction=transaction)
                return first.abort_count, again.abort_count

    assert asyncio.run(receive()) == (0, 1)
