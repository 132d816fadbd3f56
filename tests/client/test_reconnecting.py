"""Clients after server restarts, lost connections and forks: which calls continue, and which report a loss."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading

import pytest

import msrpc.rpc.client
import openmsmq
import openmsmq.aio
from daemon import Daemon, eventually, meanwhile
from openmsmq.client.calls import HARMLESS, REPEATABLE, UNKNOWN, ClientAssociation, ClientCall, ServerResource
from openmsmq.client.pool import Pool
from openmsmq.client.retrying import Attempts
from openmsmq.interfaces.ms_mqmp import qmcomm
from openmsmq.model.errors import BindError

QUEUE = r".\private$\back"


@pytest.fixture
def service(tmp_path):
    with Daemon(tmp_path / "data") as running:
        with running.connect() as manager:
            manager.create_queue(QUEUE)
        yield running


def restart(service):
    service.kill()
    service.start()


# -- the policy ----------------------------------------------------------------------------------------------------


def attempts(fate, seconds=10.0, held=()):
    clock = iter(range(0, 1000, 2))
    call = ClientCall(qmcomm, qmcomm.operation("rpc_ACPurgeQueue"), None, fate=fate, held=held)
    return Attempts(call, seconds, lambda: float(next(clock)), lambda: 1.0)


def test_an_unsent_call_is_retried_with_growing_pauses_until_the_timeout():
    lost, pauses = openmsmq.RpcConnectionError("refused"), []
    tried = attempts(UNKNOWN)
    with pytest.raises(openmsmq.RpcConnectionError, match="refused") as raised:  # noqa: PT012
        while True:
            pauses.append(tried.pause_after(lost, sent=False))
    assert not raised.value.outcome_unknown
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8]


def test_a_sent_call_is_only_retried_if_it_is_idempotent():
    lost = openmsmq.RpcConnectionError("reset")
    assert attempts(REPEATABLE).pause_after(lost, sent=True) > 0
    with pytest.raises(openmsmq.RpcConnectionError) as harmless:
        attempts(HARMLESS).pause_after(lost, sent=True)
    assert not harmless.value.outcome_unknown
    with pytest.raises(openmsmq.RpcConnectionError, match="may have carried it out") as unknown:
        attempts(UNKNOWN).pause_after(lost, sent=True)
    assert unknown.value.outcome_unknown


def test_a_refused_interface_and_a_silent_server_are_not_tried_again():
    for error in (BindError("no such interface"), openmsmq.AnswerTimeout("silent")):
        with pytest.raises(type(error)):
            attempts(REPEATABLE).pause_after(error, sent=False)


def test_a_lost_handle_is_named_with_what_became_of_the_call():
    held = ServerResource("queue", "q", ClientAssociation(7))
    tried = attempts(UNKNOWN, held=(held,))
    tried.check()
    held.association.end("it has restarted")
    with pytest.raises(openmsmq.HandleLost, match=r"queue q: .*it has restarted.*was not sent") as before:
        tried.check()
    with pytest.raises(openmsmq.HandleLost, match="may have carried it out") as after:
        tried.pause_after(openmsmq.RpcConnectionError("reset"), sent=True)
    assert (before.value.what, before.value.which, before.value.outcome_unknown) == ("queue", "q", False)
    assert after.value.outcome_unknown


# -- restarts ------------------------------------------------------------------------------------------------------


def test_calls_without_state_survive_a_restart(service):
    with service.connect() as manager:
        identifier = manager.machine_id
        restart(service)
        assert manager.machine_id == identifier
        assert manager.queues()
        manager.set_properties(QUEUE, label="again")
        manager.create_queue(r".\private$\another")
        with manager.open(QUEUE) as queue, pytest.raises(openmsmq.ReceiveTimeout):
            queue.receive(0)


def test_calls_wait_for_a_server_that_is_just_restarting(service):
    with service.connect() as manager:
        service.kill()
        with meanwhile(0.3, service.start):
            assert manager.machine_id


def test_without_a_server_the_first_connection_fails_at_once_and_a_call_when_its_time_is_up(service):
    manager = service.connect(reconnect_seconds=0.2)
    service.kill()
    with pytest.raises(openmsmq.RpcConnectionError):
        manager.queues()
    with pytest.raises(openmsmq.RpcConnectionError):
        service.connect()


def test_server_state_lost_by_a_restart_is_reported_by_each_object(service):
    with service.connect() as manager:
        queue, sending = manager.open(QUEUE), manager.open(QUEUE, "send")
        sending.send("1", recoverable=True)
        sending.send("2", recoverable=True)
        cursor, transaction = queue.cursor(), manager.transaction()
        assert cursor.peek(0).decode() == "1"
        with pytest.raises(openmsmq.HandleLost, match="puts the message back") as receive, queue.receive_lock(0):
            restart(service)
        assert (receive.value.what, receive.value.outcome_unknown) == ("receive", False)
        for what, operation in (
            ("queue", lambda: queue.peek(0)),
            ("queue", lambda: sending.send("3")),
            ("cursor", lambda: cursor.peek_next(0)),
            ("transaction", transaction.commit),
            ("transaction", lambda: sending.send("4", transaction=transaction)),
        ):
            with pytest.raises(openmsmq.HandleLost, match="was not sent") as lost:
                operation()
            assert lost.value.what == what
        for open_thing in (cursor, queue, sending):
            open_thing.close()
        with manager.open(QUEUE) as fresh:
            assert [message.decode() for message in fresh] == ["1", "2"]


@pytest.mark.parametrize("protocol", ["qmcomm", "remoteread", pytest.param("qm2qm", marks=pytest.mark.slow)])
def test_a_queue_that_may_reconnect_is_opened_anew_by_its_name(service, protocol):
    with service.connect() as manager, manager.open(QUEUE, "receive", protocol=protocol, reconnect=True) as queue:
        with manager.open(QUEUE, "send", reconnect=True) as sending:
            for number in range(3):
                sending.send(str(number), recoverable=True)
                restart(service)
        assert queue.peek(0).decode() == "0"
        assert queue.receive(0).decode() == "0"
        restart(service)
        assert queue.receive(0).decode() == "1"
        if queue.protocol != "qmcomm":
            with pytest.raises(openmsmq.HandleLost), queue.receive_lock(0):
                restart(service)
            with queue.receive_lock(0) as message:
                assert message.decode() == "2"


def test_a_receive_that_waits_continues_after_a_restart(service):
    with service.connect() as manager, manager.open(QUEUE, reconnect=True) as queue:
        received = []
        reader = threading.Thread(target=lambda: received.append(queue.receive(60)))
        reader.start()
        eventually(lambda: queue._handle.queue.waiting)
        restart(service)
        with service.connect() as other, other.open(QUEUE, "send") as sending:
            sending.send("late")
        reader.join(20)
        assert [message.decode() for message in received] == ["late"]


def test_a_send_whose_answer_is_lost_is_not_repeated(service):
    with service.connect() as manager, manager.open(QUEUE, "send", reconnect=True) as queue:
        queue.send("express")  # binds qmcomm2, so that only the request follows
        os.kill(service.pid, signal.SIGSTOP)
        with meanwhile(0.3, service.kill), pytest.raises(openmsmq.HandleLost, match="may be in the queue") as lost:
            queue.send("once")
        assert lost.value.outcome_unknown
        service.start()
        queue.send("twice")
        assert manager.counts(QUEUE)["message_count"] == 1


def test_a_queue_missing_after_the_restart_is_not_found(service):
    with service.connect() as manager:
        queue = manager.open(QUEUE, reconnect=True)
        restart(service)
        manager.delete_queue(QUEUE)
        with pytest.raises(openmsmq.QueueNotFound):
            queue.receive(0)
        queue.close()


def test_the_asyncio_client_reconnects_too(service):
    async def program():
        async with await openmsmq.aio.connect("127.0.0.1", service.port) as manager:
            plain = await manager.open(QUEUE)
            sending = await manager.open(QUEUE, "send", reconnect=True)
            await sending.send("kept", recoverable=True)
            transaction = await manager.transaction()
            waiting = await manager.open(QUEUE + ";aside", reconnect=True)
            reader = asyncio.create_task(waiting.receive(60))
            async with asyncio.timeout(30):
                while not waiting._handle.queue.waiting:
                    await asyncio.sleep(0)
            await asyncio.to_thread(restart, service)
            assert len(await manager.queues()) == 1
            with pytest.raises(openmsmq.HandleLost, match="queue"):
                await plain.receive(0)
            with pytest.raises(openmsmq.HandleLost, match="transaction"):
                await transaction.commit()
            await plain.close()
            await sending.send("second")
            async with await manager.open(QUEUE) as again:
                message = await again.peek(0)
                await again.move(message.lookup_identifier, "aside")
            assert (await reader).decode() == "kept"
            await asyncio.to_thread(restart, service)
            cancelled = asyncio.create_task(waiting.receive(60))
            async with asyncio.timeout(30):
                while not waiting._handle.queue.waiting:
                    await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            await waiting.close()
            await sending.close()

    asyncio.run(program())


# -- threads, forks, half-open connections -------------------------------------------------------------------------


def test_threads_that_begin_at_once_share_one_association(service):
    for _ in range(10):
        with service.connect() as manager:
            pool = manager._session.pool
            pool._end(pool._association, "test")  # as after a restart: no connection is left
            start, opened = threading.Barrier(4), []

            def begin(manager=manager, start=start, opened=opened):
                start.wait()
                opened.append(manager.open(QUEUE, "send"))

            threads = [threading.Thread(target=begin) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for queue in opened:
                queue.send("x")
            assert len({member.association.group for member in manager._session.pool._all}) == 1


# Since 3.12, Python warns of forks in processes with threads, which test runners and users may have.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_connection_of_its_own_and_the_parent_keeps_its_queues(service):
    with service.connect() as manager, manager.open(QUEUE, "send") as queue:
        identifier = manager.machine_id
        child = os.fork()
        if not child:
            code = 1
            try:
                if manager.machine_id == identifier:
                    try:
                        queue.send("of the child")
                    except openmsmq.HandleLost as error:
                        code = 0 if "forked" in str(error) else 2
                queue.close()
                manager.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        queue.send("of the parent")
        assert manager.counts(QUEUE)["message_count"] == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_of_an_asyncio_program_has_a_connection_of_its_own(service):
    loop = asyncio.new_event_loop()
    manager = loop.run_until_complete(openmsmq.aio.connect("127.0.0.1", service.port))
    queue = loop.run_until_complete(manager.open(QUEUE, "send"))
    child = os.fork()
    if not child:
        code = 1
        try:

            async def own():
                assert await manager.machine_id()
                with pytest.raises(openmsmq.HandleLost, match="forked"):
                    await queue.send("of the child")

            asyncio.set_event_loop(None)
            asyncio.events._set_running_loop(None)
            asyncio.new_event_loop().run_until_complete(own())
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    loop.run_until_complete(queue.send("of the parent"))
    loop.run_until_complete(manager.close())
    loop.close()


def test_a_server_that_never_answers_times_out(service, monkeypatch):
    monkeypatch.setattr("openmsmq.client.calls.ANSWER_MARGIN", 0.3)
    with service.connect() as manager, manager.open(QUEUE, "send") as queue:
        queue.send("binds qmcomm2")
        os.kill(service.pid, signal.SIGSTOP)
        try:
            with pytest.raises(openmsmq.HandleLost, match="did not answer in time") as lost:
                queue.send("x")
            assert lost.value.outcome_unknown
        finally:
            os.kill(service.pid, signal.SIGCONT)
        assert manager.machine_id

    async def program():
        async with await openmsmq.aio.connect("127.0.0.1", service.port) as asynchronous:
            os.kill(service.pid, signal.SIGSTOP)
            try:
                with pytest.raises(openmsmq.AnswerTimeout):
                    await asynchronous.machine_id()
            finally:
                os.kill(service.pid, signal.SIGCONT)

    asyncio.run(program())


def test_connections_notice_a_machine_that_is_gone_after_the_time_that_was_set(service):
    with service.connect(dead_peer_seconds=30) as manager:
        (member,) = manager._session.pool._all
        sock = member.connection._socket
        options = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        values = [sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, option)) for option in options]
        assert values == [15, 5, 3, 30_000]
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_an_interrupted_call_does_not_end_the_open_queues_of_a_client_with_one_connection(service, monkeypatch):
    with service.connect() as manager, manager.open(QUEUE, "send") as queue:
        exchange = msrpc.rpc.client.Connection.exchange

        def interrupted(*_, **__):
            monkeypatch.setattr(msrpc.rpc.client.Connection, "exchange", exchange)
            raise KeyboardInterrupt

        made, connect = [], openmsmq.client.pool.rpc.connect

        def connecting(*arguments, **options):
            made.append(options["assoc_group_id"])
            return connect(*arguments, **options)

        monkeypatch.setattr(openmsmq.client.pool.rpc, "connect", connecting)
        monkeypatch.setattr(msrpc.rpc.client.Connection, "exchange", interrupted)
        with pytest.raises(KeyboardInterrupt):
            manager.queues()
        assert len(made) == 1 and made[0]  # the replacement, of the same association
        queue.send("still open")
        manager.queues()
        assert len(made) == 1  # the replacement serves the next calls


def test_a_replacement_connection_that_cannot_be_bound_is_closed(service, monkeypatch):
    with service.connect() as manager, manager.open(QUEUE, "send"):
        exchange, connect = msrpc.rpc.client.Connection.exchange, openmsmq.client.pool.rpc.connect
        made = []

        def interrupted(*_, **__):
            monkeypatch.setattr(msrpc.rpc.client.Connection, "exchange", exchange)
            raise KeyboardInterrupt

        def refuses(*_, **__):
            raise openmsmq.MsmqError(0xC00E0001, "no bind")

        def connecting(*arguments, **options):
            made.append(connect(*arguments, **options))
            made[-1].bind = refuses
            return made[-1]

        monkeypatch.setattr(openmsmq.client.pool.rpc, "connect", connecting)
        monkeypatch.setattr(msrpc.rpc.client.Connection, "exchange", interrupted)
        with pytest.raises(KeyboardInterrupt):
            manager.queues()
        (connection,) = made
        assert connection._socket.fileno() == -1


def test_a_closed_client_says_so():
    pool = Pool("127.0.0.1", 1, {})
    pool.close()
    with pytest.raises(openmsmq.MsmqError, match="this client was closed"):
        pool.run(openmsmq.client.operations.query(4))


@pytest.mark.parametrize("protocol", ["remoteread", "qmcomm"])
def test_a_receive_that_waits_while_its_program_closes_the_client_says_so(service, protocol):
    manager = service.connect()
    reader = manager.open(QUEUE, "receive", protocol=protocol)
    with meanwhile(0.5, manager.close), pytest.raises(openmsmq.MsmqError, match="this client was closed"):
        reader.receive()


def test_an_asynchronous_receive_that_waits_while_its_program_closes_the_client_says_so(service):
    async def main():
        manager = await openmsmq.aio.connect("127.0.0.1", service.port)
        reader = await manager.open(QUEUE, "receive")
        waiting = asyncio.ensure_future(reader.receive())
        await asyncio.sleep(0)
        await manager.counts(QUEUE)  # the receive has been sent by now
        await manager.close()
        with pytest.raises(openmsmq.MsmqError, match="this client was closed"):
            await waiting

    asyncio.run(main())
