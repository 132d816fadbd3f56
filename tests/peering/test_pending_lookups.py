"""Messages waiting for the certificates of a sender, and the messages after them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, cast
from unittest import mock

from openmsmq.packet import UserMessage
from openmsmq.peering.connection import PeerConnection
from openmsmq.peering.pending_lookups import MessagesWaiting, PendingLookups
from openmsmq.peering.receiver import _answer
from openmsmq.transport import MessageReceived


class FakeConnection:
    is_over = False
    address = "192.0.2.1"

    def close(self) -> None:
        self.is_over = True


class World:
    """Messages are texts; those ending with a question mark need a lookup, which the test completes, and those ending
    with a plus sign another one, which only `judge` knows."""

    def __init__(self) -> None:
        self.judged: list[str] = []
        self.sought: set[str] = set()
        self.answer = asyncio.Event()
        self.connection = FakeConnection()
        self.holding = PendingLookups(self.look_up, self.judge, asyncio.get_running_loop())
        self.closes_at = self.fails_at = ""

    def look_up(self, message: UserMessage) -> Awaitable[None] | None:
        return self._wait() if cast("str", message).endswith("?") else None

    async def _wait(self) -> None:
        await self.answer.wait()

    def judge(self, connection: PeerConnection, messages: Sequence[MessageReceived]) -> MessagesWaiting | None:
        for index, received in enumerate(messages):
            text = cast("str", received.message)
            if text.endswith("+") and text not in self.sought:
                self.sought.add(text)
                return MessagesWaiting(index, self._wait())
            if text == self.fails_at:
                raise OSError("no store")
            self.judged.append(text)
            if text == self.closes_at:
                self.connection.is_over = True
                return None
        return None

    def receive(self, *texts: str) -> None:
        messages: Any = [MessageReceived(cast("UserMessage", text), b"", None) for text in texts]
        self.holding.received(cast("PeerConnection", self.connection), messages)

    async def answered(self) -> list[str]:
        self.answer.set()
        for _ in range(30):
            await asyncio.sleep(0)
        return self.judged


def test_a_message_without_lookup_is_judged_at_once() -> None:
    async def run() -> None:
        world = World()
        world.receive("a", "b")
        assert world.judged == ["a", "b"]

    asyncio.run(run())


def test_messages_after_a_waiting_message_wait_too() -> None:
    async def run() -> None:
        world = World()
        world.receive("a", "b?", "c")
        world.receive("d", "e?")
        assert world.judged == ["a"]
        assert await world.answered() == ["a", "b?", "c", "d", "e?"]
        world.receive("f")
        assert world.judged[-1] == "f"

    asyncio.run(run())


def test_a_message_may_wait_for_its_queue_before_and_after_one_that_waits_for_certificates() -> None:
    async def run() -> None:
        world = World()
        world.receive("a", "b+", "c", "d?", "e+", "f")
        assert world.judged == ["a"]
        world.receive("g?", "h+")
        assert await world.answered() == ["a", "b+", "c", "d?", "e+", "f", "g?", "h+"]

    asyncio.run(run())


def test_nothing_is_judged_for_a_connection_that_ended_meanwhile() -> None:
    async def run() -> None:
        world = World()
        world.receive("a?", "b")
        world.connection.is_over = True
        assert await world.answered() == []

    asyncio.run(run())


def test_messages_after_one_that_ends_the_connection_are_not_judged() -> None:
    async def run() -> None:
        world = World()
        world.closes_at = "a?"
        world.receive("a?", "b")
        assert await world.answered() == ["a?"]

    asyncio.run(run())


def test_a_connection_whose_messages_cannot_be_judged_is_closed() -> None:
    async def run() -> None:
        world = World()
        world.fails_at = "a?"
        world.receive("a?", "b")
        assert await world.answered() == []
        assert world.connection.is_over

    asyncio.run(run())


def test_answers_to_messages_that_waited_for_a_lookup_are_written_at_once() -> None:
    connection, answer = mock.Mock(room=True), mock.Mock()
    _answer(connection, [None, answer])
    assert connection.mock_calls == [mock.call.send(answer, None), mock.call.flush()]
    full = mock.Mock(room=False)
    _answer(full, [answer])
    assert full.mock_calls == [mock.call.flush()]
