"""Two queue managers and messages for them, for tests of sessions. The clock is a number of milliseconds."""

from __future__ import annotations

from openmsmq.packet import UserMessage
from openmsmq.packet.headers import SHA1, MessagePropertiesHeader, SessionHeader, UserHeader
from openmsmq.packet.internal import InternalPacket, parse_internal
from openmsmq.packet.queue_names import NameType, QueueName
from openmsmq.packet.reader import Reader
from openmsmq.packet.stream import Framer, is_internal
from openmsmq.transport import Acknowledged, Closed, CloseReason, Event, MessageReceived, MqqbSession, SessionSettings

ALICE, BOB, CAROL = (bytes([number]) * 16 for number in (1, 2, 3))
QUEUE = QueueName(NameType.DIRECT, direct="OS:bob\\private$\\orders")


def message(body: bytes = b"", recoverable: bool = False) -> UserMessage:
    user = UserHeader(ALICE, delivery=int(recoverable), destination=QUEUE)
    return UserMessage(user=user, properties=MessagePropertiesHeader(body=body, hash_algorithm=SHA1))


def with_session(packet: UserMessage, header: SessionHeader) -> bytes:
    packet.session = header
    return packet.pack()


def packets(data: bytes) -> list[InternalPacket | UserMessage]:
    framer = Framer()
    framer.feed(data)
    found: list[InternalPacket | UserMessage] = []
    while (packet := framer.next()) is not None:
        found.append(parse_internal(packet) if is_internal(packet) else UserMessage.unpack(Reader(packet)))
    assert not framer.has_partial
    return found


def exchange(one: MqqbSession[int], other: MqqbSession[int], now: float) -> list[Event[int]]:
    """Carry bytes both ways until neither side sends more; returns the events of both."""
    events: list[Event[int]] = []
    while True:
        forth, back = one.data_to_send(), other.data_to_send()
        if not forth and not back:
            return events
        events += other.receive(forth, now) + one.receive(back, now)


def opened(
    now: float = 0, window: int = 64, other_window: int = 64, direct: bool = False
) -> tuple[MqqbSession[int], MqqbSession[int]]:
    """Return two OPEN sessions: Alice's, who has connected, and Bob's."""
    target = bytes(16) if direct else BOB
    alice: MqqbSession[int] = MqqbSession.initiator(SessionSettings(ALICE, window), now, target)
    bob: MqqbSession[int] = MqqbSession.acceptor(SessionSettings(BOB, other_window), now)
    exchange(alice, bob, now)
    assert alice.room and bob.room
    return alice, bob


def received(events: list[Event[int]]) -> list[MessageReceived]:
    return [event for event in events if isinstance(event, MessageReceived)]


def done(events: list[Event[int]]) -> list[int]:
    return [token for event in events if isinstance(event, Acknowledged) for token in event.tokens]


def ending(events: list[Event[int]]) -> CloseReason | None:
    """Return the reason why a session was closed, or None if it is open."""
    for event in events:
        if isinstance(event, Closed):
            assert event is events[-1]
            return event.reason
    return None
