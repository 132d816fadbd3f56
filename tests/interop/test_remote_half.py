"""Sections 4.2 and 4.4 of [MS-MQMP]: an application, impacket, reads a queue of one daemon through another."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from daemon import Daemon, eventually, meanwhile
from interop.impacket_client import MQ_OK, Client, body
from openmsmq.model.constants import Access, ReceiveAction
from openmsmq.model.errors import HResult, SharingViolation

QUEUE = r"OS:PEER\private$\q"


class Pair(NamedTuple):
    """The supporting server and the queue manager that has the queues, PEER."""

    near: Daemon
    far: Daemon


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("pair")
    with Daemon(directory / "far", "--computer-name", "PEER") as far:
        peers = f"peer=127.0.0.1:{far.port}"
        with Daemon(directory / "near", "--computer-name", "NEAR", "--peers", peers) as near:
            yield Pair(near, far)
            assert near.alive
        assert "Traceback" not in near.log, near.log
    assert "Traceback" not in far.log, far.log


@pytest.fixture
def queue(pair: Pair) -> Iterator[Any]:
    with pair.far.connect() as manager:
        manager.create_queue(r".\private$\q")
        with manager.open(r".\private$\q", "send") as sender:
            yield sender
        manager.delete_queue(r".\private$\q")


@pytest.fixture
def application(pair: Pair) -> Iterator[Client]:
    client = Client(pair.near.port)
    yield client
    client.close()


def call_open(client: Client, access: int = Access.RECEIVE, queue: str = QUEUE, **more: int) -> Any:
    return client.call(
        "rpc_QMOpenQueueInternal", pQueueFormat={"m_qft": 3, "u": {"m_pDirectID": queue + "\0"}},
        dwDesiredAccess=access, dwShareMode=0, pLicGuid=bytes(16), lpClientName="client\0", **more,
    )  # fmt: skip


def open_there(client: Client, access: int = Access.RECEIVE, queue: str = QUEUE) -> Any:
    return client.done(
        "R_QMOpenRemoteQueue", pQueueFormat={"m_qft": 3, "u": {"m_pDirectID": queue + "\0"}}, dwCallingProcessID=0,
        dwDesiredAccess=access, dwShareMode=0, pLicGuid=bytes(16), dwMQS=0x100,
    )  # fmt: skip


def handed_on(application: Client, handed: Any, access: int = Access.RECEIVE, queue: str = QUEUE) -> Any:
    return call_open(
        application, access, queue, hRemoteQueue=handed["phQueue"], dwpQueue=handed["dwpQueue"],
        dwpRemoteContext=handed["pdwContext"],
    )  # fmt: skip


def opened(pair: Pair, application: Client, access: int = Access.RECEIVE) -> tuple[bytes, int]:
    """Run steps 1 to 11 of section 4.2; returns the local handle of the remote queue and its context."""
    first = call_open(application, access)
    assert (first["result"], first["lplpRemoteQueueName"]) == (MQ_OK, "PEER\\private$\\q\0")
    there = Client(pair.far.port)
    assert there.call("R_QMGetRTQMServerPort", fIP=0)["result"] == pair.far.port
    handed = open_there(there, access)
    second = handed_on(application, handed, access)
    assert second["result"] == MQ_OK, f"{second['result']:#x}"
    there.call("R_QMCloseRemoteQueueContext", pphContext=handed["pphContext"])
    there.close()
    return second["phQueue"], second["pdwQMContext"]


def left(pair: Pair) -> list[Any]:
    with pair.far.connect() as manager, manager.open(r".\private$\q", "peek") as reader:
        return [message.decode() for message in reader]


def test_section_4_2_a_remote_queue_is_opened_read_and_closed(pair: Pair, application: Client, queue: Any) -> None:
    for value in ("a", "b", "c"):
        queue.send(value, recoverable=True)
    handle, context = opened(pair, application)
    peeked = application.read(context, action=int(ReceiveAction.PEEK_CURRENT))
    assert (peeked["result"], body(peeked).decode("utf-16-le")) == (MQ_OK, "a")
    received = application.read(context)
    assert (received["result"], body(received).decode("utf-16-le")) == (MQ_OK, "a")
    assert left(pair) == ["b", "c"]
    assert application.call("rpc_ACPurgeQueue", hQueue=handle)["result"] == MQ_OK
    assert left(pair) == []
    assert application.read(context)["result"] == HResult.MQ_ERROR_IO_TIMEOUT
    assert application.call("rpc_ACCloseHandle", phQueue=handle)["result"] == MQ_OK
    eventually(lambda: opens_exclusively(pair))


def opens_exclusively(pair: Pair) -> bool:
    """Whether the queue can be opened exclusively: no other reader has it open."""
    with pair.far.connect() as manager:
        try:
            manager.open(r".\private$\q", exclusive=True).close()
        except SharingViolation:
            return False
        return True


def test_section_4_4_a_remote_cursor_moves_and_receives(pair: Pair, application: Client, queue: Any) -> None:
    for value in ("a", "b", "c"):
        queue.send(value)
    handle, context = opened(pair, application)
    cursor = application.done("rpc_ACCreateCursorEx", hQueue=handle, pcc={})["pcc"]["hCursor"]
    actions = (ReceiveAction.PEEK_CURRENT, ReceiveAction.PEEK_NEXT, ReceiveAction.PEEK_NEXT, ReceiveAction.RECEIVE)
    bodies = [body(application.read(context, action=int(action), cursor=cursor)) for action in actions]
    assert [b.decode("utf-16-le") for b in bodies] == ["a", "b", "c", "c"]
    assert left(pair) == ["a", "b"]
    assert application.call("rpc_ACCloseCursor", hQueue=handle, hCursor=cursor)["result"] == MQ_OK
    invalid = application.read(context, action=int(ReceiveAction.PEEK_CURRENT), cursor=cursor)
    assert invalid["result"] == HResult.MQ_ERROR_INVALID_HANDLE


def test_a_receive_waits_at_the_other_queue_manager(pair: Pair, application: Client, queue: Any) -> None:
    _, context = opened(pair, application)
    with meanwhile(0.2, lambda: queue.send("late")):
        received = application.read(context, timeout=10_000)
    assert body(received).decode("utf-16-le") == "late"
    assert application.read(context, timeout=50)["result"] == HResult.MQ_ERROR_IO_TIMEOUT


def test_a_message_that_does_not_fit_stays_in_the_queue(pair: Pair, application: Client, queue: Any) -> None:
    queue.send("x" * 500)
    _, context = opened(pair, application)
    assert application.read(context, room=16)["result"] == HResult.MQ_ERROR_BUFFER_OVERFLOW
    assert left(pair) == ["x" * 500]
    assert application.read(context, room=1000)["result"] == MQ_OK
    assert left(pair) == []


def test_an_application_that_exits_while_waiting_receives_nothing(pair: Pair, queue: Any) -> None:
    application = Client(pair.near.port)
    _, context = opened(pair, application)
    waiting = threading.Thread(target=lambda: _ignore(lambda: application.read(context, timeout=60_000)))
    waiting.start()
    with pair.far.connect() as manager:
        eventually(lambda: not opens_exclusively(pair))
        # Closing it would leave the connection open for as long as the other thread reads from it.
        application.dce.get_rpc_transport().get_socket().shutdown(socket.SHUT_RDWR)
        eventually(lambda: opens_exclusively(pair))
        queue.send("a")
        assert left(pair) == ["a"]
        assert manager.queues()
    waiting.join()


def _ignore(action: Any) -> None:
    try:
        action()
    except Exception:  # the connection is cut on purpose
        return


def test_a_handle_that_was_never_issued_opens_nothing(pair: Pair, application: Client, queue: Any) -> None:
    refused = call_open(application, hRemoteQueue=1, dwpQueue=1, dwpRemoteContext=1)
    assert refused["result"] == HResult.MQ_ERROR_INVALID_PARAMETER
    sending = call_open(application, Access.SEND, hRemoteQueue=1, dwpQueue=1, dwpRemoteContext=1)
    assert sending["result"] == HResult.MQ_ERROR_INVALID_PARAMETER


def test_a_queue_opened_for_peeking_refuses_receives(pair: Pair, application: Client, queue: Any) -> None:
    queue.send("a")
    handle, context = opened(pair, application, Access.PEEK)
    assert application.read(context)["result"] == HResult.MQ_ERROR_ACCESS_DENIED
    assert application.call("rpc_ACPurgeQueue", hQueue=handle)["result"] == HResult.MQ_ERROR_ACCESS_DENIED
    assert application.send(handle, b"x")["result"] == HResult.MQ_ERROR_ACCESS_DENIED
    assert left(pair) == ["a"]


def test_a_queue_manager_that_is_not_there_is_an_error(tmp_path: Any) -> None:
    with Daemon(tmp_path / "alone", "--peers", "PEER=127.0.0.1:9") as near:
        application = Client(near.port)
        gone = call_open(application, hRemoteQueue=1, dwpQueue=1, dwpRemoteContext=1)
        assert gone["result"] == HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE
        application.close()
    assert "Traceback" not in near.log
