"""Pings before a connection, and replies to pings."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from openmsmq.packet.internal import PingPacket
from openmsmq.peering.pinging import ANSWERS_PER_SECOND, PingListener, answer_to, ask
from openmsmq.queueing.outgoing_queues import ConnectionStatus
from peering.conftest import Pair
from peering.test_outcomes import PLAIN, message, outgoing, settled

OWN = b"\x22" * 16
HOST, OTHER = "127.0.78.1", "127.0.78.2"


def test_the_answer_to_frame_1_is_frame_2_but_for_the_unused_bits() -> None:
    """4.1.1 and 4.1.2."""
    asked = bytes.fromhex("017D485504000000D158735550919595 4997B6E611EA26C6".replace(" ", ""))
    answered = bytes.fromhex("95B248550400000007 89CD434C39118F44459078909EA0FC".replace(" ", ""))
    assert answer_to(asked, answered[8:], True) == b"\x01\x00" + answered[2:]
    assert answer_to(asked, answered[8:], False) == b"\x03\x00" + answered[2:]


@pytest.mark.parametrize(
    "data", [b"", b"x", bytes(24), PingPacket(1, OWN).pack() + b"x", PingPacket(1, OWN).pack()[:-1]]
)
def test_a_datagram_that_is_not_a_ping_gets_no_reply(data: bytes) -> None:
    assert answer_to(data, OWN, True) is None


# -- sending pings, on the simulated network -----------------------------------------------------------------------


class RecordedPings:
    """BETA's replies and received pings; `replies` makes datagrams from the right reply."""

    def __init__(self, pair: Pair, replies: Callable[[PingPacket], list[PingPacket]]) -> None:
        self.questions: list[tuple[float, PingPacket]] = []
        self._pair, self._replies = pair, replies
        pair.network.answering[pair.beta.address] = self._answer
        self.established: list[tuple[float, bool]] = []  # times of session requests, and whether without a ping
        admits = pair.beta.service._limits.admits

        def spy(connection: Any, request: Any) -> bool:
            self.established.append((pair.network.loop.time(), request.without_ping))
            return admits(connection, request)

        pair.beta.service._limits.admits = spy  # type: ignore[method-assign]

    def _answer(self, data: bytes, source: str) -> list[bytes]:
        assert source == self._pair.alpha.address
        question = PingPacket.parse(data)
        self.questions.append((self._pair.network.loop.time(), question))
        answer = answer_to(data, self._pair.beta.machine.identifier, self._pair.beta.service.accepts(source))
        assert answer is not None
        return [ping.pack() for ping in self._replies(PingPacket.parse(answer))]


async def pinging(pair: Pair) -> None:
    pair.alpha.options = {"ping": True}
    pair.alpha.crash()
    await pair.alpha.start()


def history(pair: Pair) -> list[ConnectionStatus]:
    return [event.status for event in outgoing(pair.alpha, PLAIN).connection_history]


def test_a_host_is_pinged_before_a_connection(pair: Pair) -> None:
    async def story() -> None:
        await pinging(pair)
        asked = RecordedPings(pair, lambda right: [right])
        await pair.alpha.send(PLAIN, [message()])
        await settled(1)
        assert pair.beta.labels("plain") == ["m"]
        ((_, question),) = asked.questions
        assert question == PingPacket(question.cookie, pair.alpha.machine.identifier)
        assert [without for _, without in asked.established] == [False]
        assert ConnectionStatus.PING_FAILURE not in history(pair)

    pair.run(story)


def test_no_host_is_pinged_unless_enabled(pair: Pair) -> None:
    async def story() -> None:
        asked = RecordedPings(pair, lambda right: [right])
        await pair.alpha.send(PLAIN, [message()])
        await settled(1)
        assert pair.beta.labels("plain") == ["m"]
        assert not asked.questions and [without for _, without in asked.established] == [True]

    pair.run(story)


SILENT: dict[str, Callable[[PingPacket], list[PingPacket]]] = {
    "silence": lambda right: [],
    "another cookie": lambda right: [PingPacket(right.cookie ^ 1, right.queue_manager)],
    "refused": lambda right: [PingPacket(right.cookie, right.queue_manager, refused=True)],
    "refused, then accepted": lambda right: [PingPacket(right.cookie, right.queue_manager, refused=True)] * 2,
}


@pytest.mark.parametrize("replies", SILENT.values(), ids=SILENT)
def test_without_a_valid_reply_the_host_is_tried_five_seconds_later_without_ping(
    pair: Pair, replies: Callable[[PingPacket], list[PingPacket]]
) -> None:
    """3.1.5.2.2, 3.1.6.1, 3.1.6.8."""

    async def story() -> None:
        await pinging(pair)
        asked = RecordedPings(pair, replies)
        await pair.alpha.send(PLAIN, [message()])
        await settled(4.5)
        assert not pair.beta.labels("plain") and history(pair) == [ConnectionStatus.PING_FAILURE]
        await settled(5)
        assert pair.beta.labels("plain") == ["m"] and len(asked.questions) == 1
        ((began, _),), ((connected, without),) = asked.questions, asked.established
        waited = 5 if replies(PingPacket(0, OWN)) and replies(PingPacket(0, OWN))[0].refused else 6
        assert without and waited <= connected - began < waited + 0.3

    pair.run(story)


def test_a_reply_to_another_ping_does_not_hide_the_right_one(pair: Pair) -> None:
    async def story() -> None:
        await pinging(pair)
        wrong = [PingPacket(number, OWN, refused=True) for number in range(20)]
        asked = RecordedPings(pair, lambda right: [*wrong, right])
        await pair.alpha.send(PLAIN, [message()])
        await settled(1)
        assert pair.beta.labels("plain") == ["m"] and len(asked.questions) == 1

    pair.run(story)


@pytest.mark.parametrize("option", ["max_sessions", "max_sessions_per_peer"])
def test_a_queue_manager_at_its_session_limit_refuses_pings(pair: Pair, option: str) -> None:
    async def story() -> None:
        pair.beta.options = {option: 1}
        pair.beta.crash()
        await pair.beta.start()
        assert pair.beta.service.accepts(pair.alpha.address)
        await pair.alpha.send(PLAIN, [message()])
        await settled(10)
        assert pair.beta.service.sessions == 1
        assert not pair.beta.service.accepts(pair.alpha.address)
        assert pair.beta.service.accepts("127.0.0.99") is (option == "max_sessions_per_peer")

    pair.run(story)


# -- replying to pings, on sockets ---------------------------------------------------------------------------------


def with_listener(work: Callable[[PingListener, int, Callable[[str], None]], Coroutine[Any, Any, None]]) -> None:
    """Run `work` with a listener, its port, and a function that adds a host to be refused."""

    async def run() -> None:
        refused: set[str] = set()
        listener = PingListener(OWN, lambda address: address not in refused, asyncio.get_running_loop())
        _, port = listener.start(HOST, 0)
        try:
            await work(listener, port, refused.add)
        finally:
            listener.stop()

    asyncio.run(run())


def test_a_listener_answers_each_host_for_itself() -> None:
    async def work(listener: PingListener, port: int, refuse: Callable[[str], None]) -> None:
        refuse(OTHER)
        assert await ask(HOST, port, b"\x11" * 16, 5, HOST) is True
        assert await ask(HOST, port, b"\x11" * 16, 5, OTHER) is False
        listener.stop()
        with pytest.raises(ConnectionRefusedError):
            await ask(HOST, port, b"\x11" * 16, 5)

    with_listener(work)


def asking(source: str, port: int = 0) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((source, port))
    made.setblocking(False)
    return made


def answers(made: socket.socket) -> int:
    count = 0
    while True:
        try:
            made.recvfrom(64)
        except BlockingIOError:
            return count
        count += 1


def test_two_listeners_do_not_answer_each_other_endlessly() -> None:
    async def work(listener: PingListener, port: int, refuse: Callable[[str], None]) -> None:
        with asking(OTHER, port) as other, asking(OTHER) as another:
            other.sendto(PingPacket(1, OWN).pack(), (HOST, port))
            another.sendto(PingPacket(1, OWN).pack(), (HOST, port))
            await asyncio.sleep(0.2)
            assert (answers(other), answers(another)) == (0, 1)

    with_listener(work)


def test_a_flood_of_pings_has_no_lasting_effect() -> None:
    async def work(listener: PingListener, port: int, refuse: Callable[[str], None]) -> None:
        question, began, sent, read = PingPacket(1, OWN).pack(), time.monotonic(), 0, 0
        seen = 0

        def counting(address: str) -> bool:
            nonlocal seen
            seen += 1
            return True

        listener._accepts = counting
        with asking(OTHER) as flood:
            while time.monotonic() < began + 1.5:
                for _ in range(50):
                    flood.sendto(question, (HOST, port))
                sent += 50
                read += answers(flood)
                await asyncio.sleep(0.001)
        assert sent > 20 * ANSWERS_PER_SECOND, "no flood"
        assert ANSWERS_PER_SECOND <= seen <= 2 * ANSWERS_PER_SECOND, "what is too much is not even read"
        assert read <= seen
        await asyncio.sleep(1.1)
        assert await ask(HOST, port, OWN, 2) is True

    with_listener(work)
