"""Plain messages from other queue managers: with and without their fast path, all queues and acknowledgments are the
same, also after a power failure."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any, cast

import pytest

import seeds
from openmsmq.conversion.packets import user_message_of
from openmsmq.model.constants import INFINITE, Delivery, PropId
from openmsmq.model.message import Message
from openmsmq.model.security import sid_bytes
from openmsmq.packet import UserMessage, plain_packets
from openmsmq.packet.headers import TransactionHeader
from openmsmq.packet.reader import Reader
from openmsmq.peering.arrival import ArrivalOrigin
from openmsmq.peering.connection import PeerConnection
from openmsmq.peering.plain_arrival import LEAST
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.transport import MessageReceived
from peering.conftest import Pair
from peering.network import EPOCH

PEERS = (b"\x44" * 16, b"\x55" * 16)
# Not `small`: a stored message counts less than one in the same change, so its limit depends on the changes.
QUEUES = ("plain", "other", "tx", "signed", "watched", "missing")
WEIGHTS = (12, 6, 1, 1, 1, 1)


class FakeSession:
    def __init__(self, peer: bytes) -> None:
        self.peer = peer


class FakeConnection:
    """A connection for the receiver, without a network; records acknowledged receipts and answers."""

    def __init__(self, peer: bytes, address: str) -> None:
        self.session, self.address, self.room = FakeSession(peer), address, 64
        self.is_over = False
        self._over, self._timer = False, None  # set when the queue manager is killed
        self.receipts: list[int] = []
        self.answers: list[bytes] = []

    def send(self, message: UserMessage, token: Any) -> None:
        self.answers.append(message.pack())

    def durable(self, receipts: list[int]) -> None:
        self.receipts += receipts

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.is_over = True


class Receiving:
    """BETA of a pair, whose fast path can be switched off."""

    def __init__(self, *, plain: bool) -> None:
        self.pair, self._is_fast = Pair(), plain
        self.taken = 0
        self.connections = [FakeConnection(peer, f"127.0.0.{40 + index}") for index, peer in enumerate(PEERS)]
        create = self.pair.beta.manager.administration.create_queue
        create(".\\private$\\signed", {PropId.PROPID_Q_AUTHENTICATE: 1}, None, SYSTEM)
        create(".\\private$\\small", {PropId.PROPID_Q_QUOTA: 8}, None, SYSTEM)
        create(".\\private$\\watched", {}, None, SYSTEM)
        self._started()

    def _started(self) -> None:
        service = self.pair.beta.service
        receiver: Any = service._holding._judge.__self__  # type: ignore[attr-defined]
        self._plain, receiver._plain = receiver._plain if self._is_fast else None, self
        for connection in self.connections:
            service._serving[cast("PeerConnection", connection)] = set()
        self.pair.beta.manager.changes.next_sequence()  # reserves a block of numbers, which the fast path needs

    def take(self, packets: list[bytes], origin: ArrivalOrigin) -> int:
        """See `PlainArrival`."""
        count = self._plain.take(packets, origin) if self._plain is not None else 0
        self.taken += count
        return count

    def receive(self, connection: int, packets: list[bytes], receipts: list[int | None]) -> None:
        """Process packets that one read of a connection has delivered."""
        messages = []
        for packet, receipt in zip(packets, receipts, strict=True):
            plain = plain_packets.delivery(packet) >= 0
            messages.append(MessageReceived(None if plain else UserMessage.unpack(Reader(packet)), packet, receipt))
        self.pair.beta.service.received(cast("PeerConnection", self.connections[connection]), messages)

    def sync(self) -> None:
        async def sync() -> None:
            await self.pair.beta.committer.drain()
            await asyncio.sleep(0.01)

        self.pair.run(sync)

    def state(self) -> dict[str, list[Message]]:
        """Return the messages of all queues, in order."""
        return {
            queue.properties.path_name: [queue.message(key) for key in queue.available]
            for queue in self.pair.beta.manager.registry.queues.values()
        }

    def restart(self) -> None:
        """Fail the power, and start again."""
        self.pair.beta.crash(power=True)
        self.pair.run(self.pair.beta.start)
        self._started()

    def close(self) -> None:
        asyncio.set_event_loop(None)
        self.pair.network.loop.close()


@pytest.fixture
def both() -> Iterator[tuple[Receiving, Receiving]]:
    pair = Receiving(plain=True), Receiving(plain=False)
    yield pair
    for each in pair:
        each.close()


def some_packet(chance: random.Random, number: int, *, usual: bool) -> UserMessage:
    source = chance.choice(PEERS)
    message = Message(
        label=f"{number}", body=chance.randbytes(chance.choice((0, 10, 1500))),
        identifier=source + number.to_bytes(4, "little"),
        source_machine_identifier=source, sent_time=EPOCH // 1000, priority=chance.choice((3, 3, 3, 0, 7)),
        destination_queue_format_name=f"DIRECT=TCP:127.0.0.12\\private$\\{chance.choices(QUEUES, WEIGHTS)[0]}",
        delivery_guarantee=chance.choice((Delivery.RECOVERABLE,) * 5 + (Delivery.EXPRESS,)),
        time_to_reach_queue=INFINITE,
    )  # fmt: skip
    if not usual and chance.random() < 0.15:
        name, value = chance.choice((
            ("time_to_reach_queue", 0), ("time_to_reach_queue", 1000), ("time_to_be_received", 1000),
            ("message_class", 2), ("acknowledgements_requested", 15), ("journaling_requested", 3),
            ("extension", b"ext"), ("label", "😀"), ("sent_time", EPOCH // 1000 - 50), ("tracing_requested", 1),
            ("response_queue_format_name", "DIRECT=OS:gamma\\private$\\answers"),
            ("sender_identifier", sid_bytes("S-1-5-21-1-2-3-1001")), ("source_machine_identifier", b"\2" * 16),
        ))  # fmt: skip
        setattr(message, name, value)
    packet = user_message_of(message)
    if not usual and chance.random() < 0.02:
        packet.base.priority, packet.transaction = 0, TransactionHeader(1, True, True, sequence_timestamp=5)
    return packet


def runs(chance: random.Random) -> Iterator[list[bytes]]:
    """Yield the packets of single reads; some repeat earlier ones."""
    number, sent = 0, [b""]
    for _ in range(90):
        packets = []
        like, usual = some_packet(chance, 0, usual=True), chance.random() < 0.7
        for _ in range(chance.choice((1, 2, 5, 20, 40))):
            number += 1
            packet = some_packet(chance, number, usual=usual)
            if usual or chance.random() < 0.6:  # the same envelope as others
                packet.user.destination, packet.user.delivery = like.user.destination, like.user.delivery
            packets.append(packet.pack())
        if chance.random() < 0.2 and sent[0]:
            packets.insert(chance.randrange(len(packets)), chance.choice(sent))
        if chance.random() < 0.1:
            packets.append(packets[0])
        sent = packets
        yield packets


PROPERTIES = (
    ("PROPID_Q_JOURNAL", 1), ("PROPID_Q_JOURNAL", 0), ("PROPID_Q_AUTHENTICATE", 1), ("PROPID_Q_AUTHENTICATE", 0),
    ("PROPID_Q_PRIV_LEVEL", 2), ("PROPID_Q_PRIV_LEVEL", 1),
)  # fmt: skip


@pytest.mark.parametrize("name", ["one", "two", "three", "four"])
def test_both_paths_agree(both: tuple[Receiving, Receiving], name: str) -> None:
    chance = seeds.chance(f"plain arrival {name}")
    receipt = 0
    for packets in runs(chance):
        connection = chance.randrange(2)
        if chance.random() < 0.1:
            property_name, value = chance.choice(PROPERTIES)
            for each in both:
                manager = each.pair.beta.manager
                queue = manager.registry.by_name["other"]
                manager.administration.set_properties(queue, {PropId[property_name]: value}, SYSTEM)
        receipts: list[int | None] = []
        for packet in packets:
            recoverable = UserMessage.unpack(Reader(packet)).user.delivery == Delivery.RECOVERABLE
            receipt += recoverable
            receipts.append(receipt if recoverable else None)
        step = chance.random()
        for each in both:
            each.receive(connection, packets, receipts)
            if step < 0.5:
                each.sync()
        fast, slow = both
        assert fast.state() == slow.state()
        assert [each.is_over for each in fast.connections] == [each.is_over for each in slow.connections]
    for each in both:
        each.sync()
    fast, slow = both
    for one, other in zip(fast.connections, slow.connections, strict=True):
        assert (sorted(one.receipts), one.answers) == (sorted(other.receipts), other.answers)
    assert fast.taken > 200
    assert fast.pair.beta.service._arrival.rejected == slow.pair.beta.service._arrival.rejected
    for each in both:
        each.restart()
    assert fast.state() == slow.state()


def packets_for(count: int, first: int = 1, queue: str = "plain", **values: Any) -> list[bytes]:
    return [
        user_message_of(Message(**{
            "label": f"{number}", "identifier": PEERS[0] + number.to_bytes(4, "little"), "delivery_guarantee": 1,
            "source_machine_identifier": PEERS[0], "sent_time": EPOCH // 1000, "time_to_reach_queue": INFINITE,
            "destination_queue_format_name": f"DIRECT=TCP:127.0.0.12\\private$\\{queue}", **values,
        })).pack()
        for number in range(first, first + count)
    ]  # fmt: skip


@pytest.fixture
def beta() -> Iterator[Receiving]:
    receiving = Receiving(plain=True)
    yield receiving
    receiving.close()


def labels(beta: Receiving, queue: str = "plain") -> list[str]:
    return beta.pair.beta.labels(queue)


@pytest.mark.parametrize("count", [1, LEAST - 1, LEAST, 40])
def test_they_are_acknowledged_when_they_are_durable(beta: Receiving, count: int) -> None:
    receipts: list[int | None] = [*range(1, count + 1)]
    beta.receive(0, packets_for(count), receipts)
    assert beta.taken == (count if count >= LEAST else 0)
    assert beta.connections[0].receipts == []
    beta.sync()
    assert beta.connections[0].receipts == receipts
    beta.restart()
    assert labels(beta) == [f"{number}" for number in range(1, count + 1)]


def test_after_a_restart_they_are_duplicates(beta: Receiving) -> None:
    packets = packets_for(5)
    beta.receive(0, packets, [1, 2, 3, 4, 5])
    beta.sync()
    beta.restart()
    beta.receive(0, packets + packets_for(1, 6), [6, 7, 8, 9, 10, 11])
    assert labels(beta) == ["1", "2", "3", "4", "5", "6"]


def test_a_power_failure_keeps_a_message_only_with_its_identifier() -> None:
    """After any power failure, resent messages arrive exactly once."""
    for seed in range(40):
        beta = Receiving(plain=True)
        beta.pair.network.chance.seed(seed)
        packets = packets_for(5)
        beta.receive(0, packets, [1, 2, 3, 4, 5])
        assert beta.taken == 5
        if seed % 4 == 0:
            beta.sync()
        beta.restart()
        beta.receive(0, packets, [1, 2, 3, 4, 5])
        assert sorted(labels(beta)) == ["1", "2", "3", "4", "5"]
        beta.close()


def test_a_full_disk_changes_nothing(beta: Receiving) -> None:
    packets, changes = packets_for(5), beta.pair.beta.manager.changes
    changes.throttled = True
    beta.receive(0, packets, [1, 2, 3, 4, 5])
    changes.throttled = False
    assert beta.connections[0].is_over and labels(beta) == []  # so that the peer resends them
    beta.receive(1, packets, [1, 2, 3, 4, 5])
    assert labels(beta) == ["1", "2", "3", "4", "5"]


def test_a_bug_leaves_them_to_the_ordinary_path(beta: Receiving, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(plain_packets, "envelopes", broken)
    beta.receive(0, packets_for(5), [1, 2, 3, 4, 5])
    assert beta.taken == 0 and labels(beta) == ["1", "2", "3", "4", "5"]


def test_a_closed_connection_delivers_only_what_is_recoverable(beta: Receiving) -> None:
    beta.connections[0].is_over = True
    beta.receive(0, packets_for(5, delivery_guarantee=0) + packets_for(5, 6), [None] * 5 + [1, 2, 3, 4, 5])
    assert labels(beta) == ["6", "7", "8", "9", "10"]


def test_a_time_to_be_received_of_0_is_not_forever(beta: Receiving) -> None:
    """A time of sending of 0 makes the deadline of the first message look like none."""
    packets = packets_for(1, sent_time=0, time_to_be_received=0) + packets_for(4, 2, time_to_be_received=0)
    beta.receive(0, packets, [1, 2, 3, 4, 5])
    assert beta.taken == 0


def test_messages_beyond_the_quota_are_refused_one_by_one(beta: Receiving) -> None:
    beta.receive(0, packets_for(20, queue="small", body=bytes(1000)), [*range(1, 21)])
    assert beta.taken == 0 and 0 < len(labels(beta, "small")) < 20
    assert labels(beta, "small") == [f"{number}" for number in range(1, len(labels(beta, "small")) + 1)]
    beta.sync()
    assert beta.connections[0].receipts == [*range(1, 21)]
