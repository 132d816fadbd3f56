"""Failures to connect: what the log says, once for each reason."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from openmsmq.model.errors import HResult
from openmsmq.packet.internal import PingPacket
from openmsmq.peering.pinging import answer_to
from openmsmq.queueing.locations import QueueLocation
from openmsmq.queueing.outgoing_queues import ConnectionEvent, ConnectionStatus
from openmsmq.queueing.queue import QueueKind
from peering.conftest import Pair
from peering.network import Node
from peering.test_known_addresses import FROM_ELSEWHERE, private
from peering.test_outcomes import PLAIN, message, messages, outgoing, settled


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the logged reasons why messages wait."""
    texts = (record.getMessage() for record in caplog.records if record.name == "openmsmq.peering.dialing")
    return [text.partition(" wait: ")[2] for text in texts]


async def restarted(pair: Pair, **options: object) -> None:
    pair.alpha.options = options
    pair.alpha.crash()
    await pair.alpha.start()


@pytest.mark.parametrize(
    ("case", "reason", "status"),
    [
        ("refused", "127.0.0.12 port 1801: Connection refused", ConnectionStatus.SOCKET_CONNECT_FAILURE),
        ("silent", "127.0.0.12 port 1801: no answer within 20 s", ConnectionStatus.SOCKET_CONNECT_FAILURE),
        ("limit", "127.0.0.12 port 1801: there are 0 sessions, which is the limit (max_sessions)",
         ConnectionStatus.CONNECTION_LIMIT_REACHED),
    ],
)  # fmt: skip
def test_a_failed_connection_is_logged_once_and_tried_again(
    pair: Pair, caplog: pytest.LogCaptureFixture, case: str, reason: str, status: ConnectionStatus
) -> None:
    async def story() -> None:
        if case == "refused":
            pair.beta.crash()
        elif case == "silent":
            pair.network.partition = frozenset([pair.beta.address])
        else:
            await restarted(pair, max_sessions=0)
        await pair.alpha.send(PLAIN, [message()])
        await settled(100)
        history = [event.status for event in outgoing(pair.alpha, PLAIN).connection_history]
        assert len(history) > 1 and set(history) == {status}
        assert reasons(caplog) == [reason]

    pair.run(story)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("refused", "127.0.0.12 UDP port 3527: it accepts no sessions now"),
        ("silent", "127.0.0.12 UDP port 3527: no answer to a ping: a firewall, or a queue manager that answers none "
         "(setting: ping)"),
    ],
)  # fmt: skip
def test_a_failed_ping_is_logged_and_a_host_that_accepts_is_connected_at_once(
    pair: Pair, caplog: pytest.LogCaptureFixture, case: str, reason: str
) -> None:
    def reply(data: bytes, source: str) -> list[bytes]:
        answer = answer_to(data, pair.beta.machine.identifier, accepts)
        assert answer is not None and PingPacket.parse(data).queue_manager == pair.alpha.machine.identifier
        return [answer] if case == "refused" or accepts else []

    async def story() -> None:
        nonlocal accepts
        await restarted(pair, ping=True)
        pair.network.answering[pair.beta.address] = reply
        await pair.alpha.send(PLAIN, [message()])
        await settled(2)
        assert reasons(caplog) == [reason] and pair.beta.labels("plain") == []
        accepts = True
        await restarted(pair, ping=True)
        await settled(1)
        assert pair.beta.labels("plain") == ["m"] and reasons(caplog) == [reason]

    accepts = False
    pair.run(story)


def test_a_session_refused_because_another_queue_manager_answers_is_in_the_history(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        name = private(pair.beta)
        await pair.beta.send(FROM_ELSEWHERE, [message()])
        await settled(1)
        pair.beta.crash()
        await settled(5)
        other = Node(pair.network, "GAMMA", pair.beta.address, 3)
        await other.start()
        await pair.alpha.send(name, [message()])
        await settled(1)
        now = pair.alpha.clock() // 1000
        begun, refused = outgoing(pair.alpha, name).connection_history
        assert begun == ConnectionEvent(ConnectionStatus.IN_PROCESS, begun.time, 0, (pair.beta.address,))
        error = HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE
        assert refused == ConnectionEvent(
            ConnectionStatus.CONNECTION_REFUSED, refused.time, error, (pair.beta.address,)
        )  # fmt: skip
        assert now - 2 <= begun.time <= refused.time <= now
        assert reasons(caplog) == [
            f"the session with {pair.beta.address} ended: refused by the peer, or answered by another queue manager"
        ]

    pair.run(story)


class Closing(asyncio.Protocol):
    """A program that accepts connections and closes them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def test_sessions_that_end_before_they_are_open_are_failures_in_the_history(pair: Pair) -> None:
    async def story() -> None:
        pair.beta.crash()
        await settled(1)
        pair.network.listen(Closing, pair.beta.address, 1801)
        await pair.alpha.send(PLAIN, [message()])
        await settled(100)
        history = [event.status for event in outgoing(pair.alpha, PLAIN).connection_history]
        failed = [ConnectionStatus.IN_PROCESS, ConnectionStatus.UNKNOWN_FAILURE]
        assert len(history) > 3 and history == failed * (len(history) // 2)

    pair.run(story)


def test_a_session_that_breaks_is_logged_and_was_not_refused(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        await pair.alpha.send(PLAIN, [message()])
        await settled(5)
        pair.beta.crash()
        await settled(5)
        assert reasons(caplog) == ["the session with 127.0.0.12 ended: connection lost"]
        assert outgoing(pair.alpha, PLAIN).connection_history[-1].status is ConnectionStatus.ESTABLISHED

    pair.run(story)


def test_sessions_that_end_again_and_again_are_logged_once_a_minute(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        for _ in range(5):
            await pair.alpha.send(PLAIN, [message()])
            await settled(6)
            pair.beta.crash()
            await settled(2)
            await pair.beta.start()
        assert pair.beta.labels("plain")
        assert reasons(caplog) == ["the session with 127.0.0.12 ended: connection lost"]

    pair.run(story)


def test_each_address_of_a_host_that_is_down_is_logged_once(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    async def both(host: str, port: int, **_: object) -> object:
        return [(2, 1, 6, "", (address, port)) for address in ("127.0.0.12", "127.0.0.13")]

    async def story() -> None:
        pair.beta.crash()
        asyncio.get_running_loop().getaddrinfo = both  # type: ignore[assignment, method-assign]
        await pair.alpha.send("DIRECT=OS:beta\\private$\\plain", [message()])
        await settled(600)
        assert reasons(caplog) == [f"127.0.0.{host} port 1801: Connection refused" for host in (12, 13)]

    pair.run(story)


def test_messages_for_all_public_queues_of_a_machine_leave_when_the_directory_is_available_again(pair: Pair) -> None:
    """After a restart without the directory, the locations are not known."""
    guids = [UUID(int=number) for number in (71, 72, 73)]
    here, there = pair.alpha, pair.beta

    def locate() -> None:
        for guid in guids:
            here.manager.registry.remember_place(guid, QueueLocation(f"BETA\\{guid}", 0, there.machine.identifier))

    async def story() -> None:
        await there.send(FROM_ELSEWHERE, [message()])
        for guid in guids:
            properties = there.manager.registry.by_name["plain"].properties
            properties = properties._replace(path_name=f"BETA\\{guid}", instance=guid.bytes_le)
            there.manager.registry.create(properties, QueueKind.PUBLIC)
        await settled(10)
        pair.network.partition = frozenset([there.address])
        await restarted(pair)
        locate()
        for guid in guids:
            await here.send(f"PUBLIC={guid}", [message("a"), message("b")])
        await restarted(pair)
        pair.network.partition = frozenset()
        await settled(10)
        assert not any(there.manager.registry.public[guid].entries for guid in guids)
        locate()
        await settled(10)
        for guid in guids:
            assert [m.label for m in messages(there.manager.registry.public[guid])] == ["a", "b"]

    pair.run(story)
