"""The qm2qm client (MS-MQQP) against a daemon: the same methods as through MS-MQRR."""

from __future__ import annotations

import threading
import time

import pytest

import openmsmq
import openmsmq.aio
from client.queues import left, put
from openmsmq.interfaces.ms_mqqp import qm2qm

CORRELATION = bytes(range(20))


def test_messages_are_received_in_two_phases(qm, queue):
    put(qm, queue, "a", "b", "c")
    with qm.open(queue, protocol="qm2qm") as opened:
        assert opened.protocol == "qm2qm" and opened.peek(0).decode() == "a"
        with pytest.raises(RuntimeError), opened.receive_lock(0) as message:  # noqa: PT012
            assert message.decode() == "a" and left(qm, queue) == ["b", "c"]
            raise RuntimeError
        assert left(qm, queue) == ["a", "b", "c"]
        with opened.receive_lock(0) as message:
            assert message.decode() == "a"
        assert opened.receive(0).decode() == "b"
        with pytest.raises(openmsmq.ReceiveTimeout):  # noqa: PT012
            for message in opened.consume(0):
                assert message.decode() == "c"
                opened.receive(0)
    assert left(qm, queue) == ["c"]


def test_a_lock_lost_with_its_session_is_reported_and_loses_nothing(qm, queue):
    put(qm, queue, "a", "b")
    with qm.open(queue, protocol="qm2qm") as opened:
        with pytest.raises(openmsmq.OperationCancelled, match="put back"), opened.receive_lock(0) as message:  # noqa: PT012
            assert message.decode() == "a"
            with pytest.raises(KeyboardInterrupt):
                lose_the_answer(qm, opened._handle.queue.take(0))  # of another thread
        assert [opened.receive(0).decode() for _ in range(2)] == ["a", "b"]


def lose_the_answer(qm, steps):
    """Make the first call, but raise KeyboardInterrupt instead of returning its reply; then make all other calls."""
    qm._session.pool.call(next(steps))
    call = steps.throw(KeyboardInterrupt())
    while True:
        try:
            answer = qm._session.pool.call(call)
        except openmsmq.MsmqError as error:
            call = steps.throw(error)
        else:
            call = steps.send(answer)


def test_qm2qm_returns_the_same_message_as_remote_read(qm, queue):
    put(qm, queue, "body", label="l", priority=5, correlation_identifier=CORRELATION, time_to_reach_queue=1000)
    with qm.open(queue, "peek") as one, qm.open(queue, "peek", protocol="qm2qm") as other:
        assert one.peek(0) == other.peek(0)


def test_every_protocol_returns_the_certificate_of_a_sender(qm, queue):
    put(qm, queue, "body", sender_certificate=bytes(2000), extension=b"x")
    found = []
    for protocol in ("remoteread", "qm2qm", "qmcomm"):
        with qm.open(queue, "peek", protocol=protocol) as opened:
            found.append((opened.peek(0).sender_certificate, opened.peek(0).extension))
    assert found == [(bytes(2000), b"x")] * 3


def test_cursors_and_lookup_identifiers(qm, queue):
    put(qm, queue, "a", "b", "c", correlation_identifier=CORRELATION)
    with qm.open(queue, protocol="qm2qm") as opened:
        assert [message.decode() for message in opened] == ["a", "b", "c"]
        first = opened.peek(0).lookup_identifier
        assert opened.peek_by_lookup_id(first, "next").decode() == "b"
        assert opened.receive_by_lookup_id(first, "next").decode() == "b"
        assert opened.receive_by_correlation_id(CORRELATION, 0).decode() == "a"
        with pytest.raises(openmsmq.MessageNotFound):
            opened.peek_by_lookup_id(first)
        opened.purge()
    assert left(qm, queue) == []


def test_what_the_protocol_lacks_is_named(qm, queue):
    with qm.open(queue, protocol="qm2qm") as opened, pytest.raises(openmsmq.MsmqError, match="protocol='remoteread'"):
        opened.move(1, "sub")
    with pytest.raises(openmsmq.MsmqError, match="qm2qm opens queues for receive and peek"):
        qm.open(queue, "send", protocol="qm2qm")
    with pytest.raises(openmsmq.QueueNotFound):
        qm.open(r".\private$\missing", protocol="qm2qm")


def test_another_thread_cancels_what_waits(qm, queue):
    with qm.open(queue, protocol="qm2qm") as opened:
        caught = []

        def read():
            try:
                opened.receive()
            except openmsmq.MsmqError as error:
                caught.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        while thread.is_alive():
            opened.cancel()
            time.sleep(0.01)
        assert type(caught[0]).__name__ == "OperationCancelled"


def test_old_servers_get_the_old_operations(qm, queue, monkeypatch):
    """Versions before 5.1.951 have no RemoteQMStartReceive2 and thus no lookup identifier (3.2.4.2)."""
    put(qm, queue, "a")
    asked = []
    call = type(qm._session.pool).call

    def spy(pool, request):
        asked.append(request.operation.name)
        answer = call(pool, request)
        if request.operation is qm2qm.operation("RemoteQmGetVersion"):
            answer.pMajor, answer.pMinor = 5, 0
        return answer

    monkeypatch.setattr(type(qm._session.pool), "call", spy)
    with qm.open(queue, protocol="qm2qm") as opened:
        message = opened.receive(0)
    assert (message.decode(), message.lookup_identifier) == ("a", 0)
    assert "RemoteQMStartReceive" in asked and "RemoteQMStartReceive2" not in asked
