"""Connections to other queue managers: what is closed after a failure, and which calls are repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from openmsmq.client.calls import ProtocolUnavailable
from openmsmq.client.open_queue import TakenMessage
from openmsmq.model.constants import Access, ReceiveAction
from openmsmq.model.errors import AccessDenied, HResult, MsmqError, RpcConnectionError
from openmsmq.model.message import Message
from openmsmq.protocols.proxies import HandedOver
from openmsmq.server import remote
from openmsmq.server.remote import Peers, PeerSession


class Runner:
    """A connection whose calls have scripted results; exceptions are raised, futures are awaited."""

    def __init__(self, results: list[Any], *where: Any) -> None:
        self._results, self.where = results, where
        self.closed = False

    async def run(self, steps: Any) -> Any:
        result = self._results.pop(0)
        if isinstance(result, BaseException):
            raise result
        return await result if isinstance(result, asyncio.Future) else result

    def close(self) -> None:
        self.closed = True


class Session:
    """An open session. Its steps are the names of its calls."""

    name, reopens = "q", True

    def next_request(self) -> int:
        return 1

    def start(self, action: ReceiveAction, timeout: int, cursor: int, request: int) -> str:
        return "start"

    def end(self, request: int, taken: bool) -> str:
        return f"end {taken}"


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Runner]]:
    def scripted(*results: Any) -> list[Runner]:
        """All connections that are opened share these results."""
        made: list[Runner] = []
        left = list(results)

        def connect(*where: Any) -> Runner:
            made.append(Runner(left, *where))
            return made[-1]

        monkeypatch.setattr(remote, "Runner", connect)
        return made

    return scripted


def peers() -> Peers:
    return Peers(bytes(16), {"far": ("192.0.2.7", 5)}, lambda machine: {"user": machine}, asyncio.ensure_future)


def opened() -> PeerSession:
    return asyncio.run(peers().open("FAR", "q", Access.RECEIVE, HandedOver(1, 2, 3)))


ABSENT = ProtocolUnavailable(detail="no qm2qm here")


def test_a_queue_is_read_on_the_connection_that_opened_it_or_at_the_port_that_the_peer_names(
    connections: Callable[..., list[Runner]],
) -> None:
    made = connections(Session())
    session = opened()
    assert [one.where for one in made] == [("192.0.2.7", 5, {"user": "FAR"})] and not made[0].closed
    assert session._queue.reopens is False
    made = connections(ABSENT, 7, Session())
    opened()
    assert [one.where[:2] for one in made] == [("192.0.2.7", 5), ("192.0.2.7", 7)]
    assert [one.closed for one in made] == [False, False]


@pytest.mark.parametrize(
    ("results", "hresult"),
    [
        ([AccessDenied(detail="no")], HResult.MQ_ERROR_ACCESS_DENIED),
        ([RpcConnectionError("lost")], HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE),
        ([TimeoutError()], HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE),
        ([ABSENT, 0], None),
        ([ABSENT, RpcConnectionError("lost")], HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE),
        ([ABSENT, 7, AccessDenied(detail="no")], HResult.MQ_ERROR_ACCESS_DENIED),
        ([ABSENT, 7, RpcConnectionError("lost")], HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE),
    ],
)
def test_all_connections_of_a_queue_that_cannot_be_opened_are_closed(
    connections: Callable[..., list[Runner]], results: list[Any], hresult: HResult | None
) -> None:
    made = connections(*results)
    with pytest.raises(MsmqError) as error:
        opened()
    assert hresult is None or error.value.hresult == hresult
    assert len(made) == 1 + (7 in results) and all(one.closed for one in made)


def asked(steps: Callable[[Peers], Any]) -> list[Any]:
    """Ask a peer several times; return the results or errors."""

    async def run() -> list[Any]:
        found: list[Any] = []
        known = peers()
        for _ in range(2):
            try:
                found.append(await steps(known))
            except MsmqError as error:
                found.append(error)
        known.close()
        return found

    return asyncio.run(run())


def test_a_management_connection_is_kept_and_replaced_once_if_it_is_lost(
    connections: Callable[..., list[Runner]],
) -> None:
    made = connections({"a": 1}, {"a": 2})
    assert asked(lambda known: known.management("FAR", None)) == [{"a": 1}, {"a": 2}]
    assert [one.closed for one in made] == [True], "by the end of the daemon"
    made = connections({"a": 1}, RpcConnectionError("lost"), {"a": 2})
    assert asked(lambda known: known.management("far", None)) == [{"a": 1}, {"a": 2}]
    assert len(made) == 2 and made[0].closed
    made = connections({"a": 1}, RpcConnectionError("lost"), RpcConnectionError("lost again"))
    first, second = asked(lambda known: known.management("FAR", None))
    assert first == {"a": 1} and second.hresult == HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE
    assert "FAR" in second.detail and "lost again" in second.detail and len(made) == 2


def test_an_error_that_the_peer_returns_keeps_the_connection(connections: Callable[..., list[Runner]]) -> None:
    made = connections(AccessDenied(detail="no"), None)
    first, second = asked(lambda known: known.act("FAR", None, "TIDY"))
    assert isinstance(first, AccessDenied) and second is None and len(made) == 1


def test_an_invalid_property_is_an_error_of_the_peer(connections: Callable[..., list[Runner]]) -> None:
    connections(ValueError("type 99"), {})
    first, _ = asked(lambda known: known.management("FAR", None))
    assert first.hresult == HResult.MQ_ERROR and "FAR returned an invalid property: type 99" in first.detail


def test_a_read_that_is_cancelled_while_its_message_is_removed_returns_the_message(
    connections: Callable[..., list[Runner]],
) -> None:
    """[MS-MQMP] 3.1.5.3: a client that is told that its call was canceled does not have the message."""

    async def run() -> int:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connections(Session(), TakenMessage(Message(label="m"), 1), ended)
        session = await peers().open("FAR", "q", Access.RECEIVE, HandedOver(1, 2, 3))
        accepted = asyncio.Event()

        def accept(message: Message) -> int:
            accepted.set()
            return HResult.MQ_OK

        reading = asyncio.ensure_future(session.read(ReceiveAction.RECEIVE, 0, 0, accept))
        async with asyncio.timeout(10):
            await accepted.wait()
        reading.cancel()
        asyncio.get_running_loop().call_soon(lambda: ended.set_result(None))
        return await reading

    assert asyncio.run(run()) == HResult.MQ_OK
