"""Open sessions: windows, acknowledgments, timers (invariant I7)."""

import pytest

from openmsmq.packet import UserMessage
from openmsmq.packet.headers import SessionHeader
from openmsmq.packet.internal import SessionAck
from openmsmq.packet.queue_names import NameType, QueueName
from openmsmq.transport import Acknowledged, Closed, CloseReason, MqqbSession, SessionState
from openmsmq.transport.events import LocalSessionError
from transport.peers import ALICE, BOB, done, ending, exchange, message, opened, packets, received, with_session


def acks(session: MqqbSession[int]) -> list[SessionHeader]:
    """Return the SessionHeaders of the pending packets, all of which must be SessionAcks."""
    found = packets(session.data_to_send())
    assert all(isinstance(packet, SessionAck) for packet in found)
    return [packet.session for packet in found if isinstance(packet, SessionAck)]


def bits(headers: list[SessionHeader]) -> list[int]:
    """Return the numbers of the recoverable packets that the headers acknowledge."""
    return [
        header.recoverable_ack_sequence_number + bit
        for header in headers
        for bit in range(32)
        if header.recoverable_ack_flags >> bit & 1
    ]


def fill(session: MqqbSession[int], now: float, recoverable: bool = False, start: int = 0) -> int:
    """Send while the window is open; returns the number of messages."""
    count = 0
    while session.room:
        session.send(message(b"%d" % count, recoverable), start + count, now)
        count += 1
    return count


# -- windows -----------------------------------------------------------------------------------------------------------


def test_a_peer_gets_64_unacknowledged_messages_and_one_more_per_acknowledgment() -> None:
    """T6."""
    alice, _ = opened()
    assert fill(alice, 1) == 64
    with pytest.raises(LocalSessionError):
        alice.send(message(), 64, 1)
    assert alice.receive(SessionAck(SessionHeader(10)).pack(), 2) == [Acknowledged(tuple(range(10)))]
    assert fill(alice, 3, start=64) == 10


def test_the_smaller_window_of_both_bounds_what_is_in_flight() -> None:
    """T3, the messages."""
    alice, bob = opened(other_window=32)
    assert fill(alice, 1) == 32
    assert fill(bob, 1) == 32


def test_200_waiting_messages_flow_without_any_timer() -> None:
    """T7: half a window is acknowledged immediately."""
    alice, bob = opened()
    sent, arrived, acknowledged = 0, 0, []
    while arrived < 200:
        while alice.room and sent < 200:
            alice.send(message(), sent, 1)
            sent += 1
        events = exchange(alice, bob, 1)
        assert events
        arrived += len(received(events))
        acknowledged += done(events)
    assert len(acknowledged) >= 200 - 32
    assert done(bob.tick(1 + 10_000) + exchange(alice, bob, 10_001)) == list(range(len(acknowledged), 200))


def test_an_early_acknowledgment_touches_nothing_that_was_not_sent() -> None:
    """T8: waiting messages belong to the caller and arrive afterwards."""
    alice, bob = opened()
    for token in range(3):
        alice.send(message(), token, 1)
    arrived = received(bob.receive(alice.data_to_send(), 1))
    assert done(alice.receive(SessionAck(SessionHeader(3)).pack(), 2)) == [0, 1, 2]
    for token in range(3, 53):
        alice.send(message(), token, 3)
    assert len(arrived + received(exchange(alice, bob, 3))) == 53


def test_the_window_follows_each_session_header() -> None:
    alice, _ = opened()
    alice.receive(SessionAck(SessionHeader(window_size=1)).pack(), 1)
    assert fill(alice, 1) == 1
    alice.receive(SessionAck(SessionHeader(1, window_size=0)).pack(), 2)
    assert fill(alice, 2) == 1
    alice.receive(SessionAck(SessionHeader(2, window_size=64)).pack(), 3)
    assert alice.room == 64


def test_an_own_window_is_announced_and_holds_for_both_directions() -> None:
    alice, bob = opened()
    bob.set_window(1)
    exchange(alice, bob, 1)
    assert (alice.room, bob.room) == (1, 1)
    bob.set_window(64)
    exchange(alice, bob, 2)
    assert (alice.room, bob.room) == (64, 64)


def test_messages_that_are_counted_but_never_saved_stop_a_sender_before_numbers_are_ambiguous() -> None:
    alice, _ = opened()
    sent = 0
    while count := fill(alice, 1, recoverable=True):
        sent += count
        alice.receive(SessionAck(SessionHeader(sent)).pack(), 1)
    assert sent == 0x4000


def test_a_packet_of_more_than_4_mib_is_not_sent() -> None:
    alice, _ = opened()
    with pytest.raises(LocalSessionError):
        alice.send(message(bytes(0x400000)), 1, 1)
    assert alice.data_to_send() == b"" and alice.room == 64


# -- acknowledgments ---------------------------------------------------------------------------------------------------


def test_a_bit_is_sent_after_the_sync_even_if_nothing_else_arrives() -> None:
    """T9."""
    alice, bob = opened()
    alice.send(message(recoverable=True), 7, 0)
    (arrived,) = received(bob.receive(alice.data_to_send(), 0))
    assert bob.next_deadline == 500
    bob.tick(500)
    (header,) = acks(bob)
    assert (header.ack_sequence_number, header.recoverable_ack_flags) == (1, 0)
    assert alice.receive(SessionAck(header).pack(), 500) == [] and alice.room == 64
    assert arrived.receipt == 1
    bob.durable([arrived.receipt], 9_000)
    assert acks(bob) == [] and bob.next_deadline == 9_500
    bob.tick(9_500)
    (header,) = acks(bob)
    assert (header.recoverable_ack_sequence_number, header.recoverable_ack_flags) == (1, 1)
    assert done(alice.receive(SessionAck(header).pack(), 9_500)) == [7]


def test_33_recoverable_messages_get_33_bits_and_none_twice() -> None:
    """T10."""
    alice, bob = opened()
    for token in range(33):
        alice.send(message(recoverable=True), token, 0)
    headers = []
    for event in received(bob.receive(alice.data_to_send(), 0)):
        assert event.receipt
        bob.durable([event.receipt], 1)
        headers += acks(bob)
    bob.tick(501)
    headers += acks(bob)
    assert bits(headers) == list(range(1, 34))
    for later in (10_000, 20_000, 40_000):
        bob.tick(later)
    assert acks(bob) == []


def test_70000_messages_on_one_session_are_all_acknowledged() -> None:
    """T11: both counts wrap, since 19 of 20 messages are recoverable."""
    alice, bob = opened()
    total = 70_000
    template = {kind: message(recoverable=kind) for kind in (False, True)}
    sent, arrived, acknowledged = 0, 0, 0
    now = 0
    while acknowledged < total:
        while alice.room and sent < total:
            alice.send(template[sent % 20 != 0], sent, now)
            sent += 1
        events = exchange(alice, bob, now)
        for event in received(events):
            arrived += 1
            if event.receipt:
                bob.durable([event.receipt], now)
        events += exchange(alice, bob, now)
        if not events:
            now += 10_000
            events = bob.tick(now) + alice.tick(now) + exchange(alice, bob, now)
        tokens = done(events)
        assert ending(events) is None
        assert len(tokens) == len(set(tokens))
        acknowledged += len(tokens)
    assert arrived == total and alice.state is SessionState.OPEN


def test_half_a_window_is_acknowledged_at_once() -> None:
    alice, bob = opened(other_window=9)
    for token in range(5):
        assert acks(bob) == []
        alice.send(message(), token, 0)
        bob.receive(alice.data_to_send(), 0)
    assert acks(bob) == [SessionHeader(5, window_size=9)]


def test_the_same_recoverable_message_twice_gets_two_bits() -> None:
    """T12, the part of a session: each copy counts and has its own disposition."""
    alice, bob = opened()
    twice = message(b"same", recoverable=True)
    for token in range(2):
        alice.send(twice, token, 0)
    assert [event.receipt for event in received(bob.receive(alice.data_to_send(), 0))] == [1, 2]
    bob.durable([2], 1)
    bob.durable([1], 1)
    bob.tick(501)
    assert done(exchange(alice, bob, 501)) == [0, 1]


def test_an_express_message_is_acknowledged_after_half_the_ack_timeout() -> None:
    alice, bob = opened()
    alice.send(message(), 1, 100)
    bob.receive(alice.data_to_send(), 100)
    assert bob.next_deadline == 10_100
    bob.tick(10_100)
    assert acks(bob) == [SessionHeader(1)]


def test_a_recoverable_message_shortens_the_wait() -> None:
    alice, bob = opened()
    alice.send(message(), 1, 0)
    alice.send(message(recoverable=True), 2, 1_000)
    bob.receive(alice.data_to_send(), 1_000)
    assert bob.next_deadline == 1_500


def test_an_acknowledgment_rides_on_a_message_once_three_quarters_of_its_timer_have_run() -> None:
    alice, bob = opened()
    alice.send(message(), 1, 1_000)
    bob.receive(alice.data_to_send(), 1_000)
    bob.send(message(), 1, 8_500)
    bob.send(message(recoverable=True), 2, 8_501)
    bob.send(message(), 3, 8_502)
    first, second, third = packets(bob.data_to_send())
    assert isinstance(first, UserMessage) and isinstance(second, UserMessage) and isinstance(third, UserMessage)
    assert first.session is None and third.session is None
    assert second.session == SessionHeader(1, 0, 0, 2, 1, 64)
    assert bob.tick(11_000) == [] and bob.data_to_send() == b""


def test_a_timer_that_a_later_message_does_not_shorten_still_runs_from_its_start() -> None:
    alice, bob = opened()
    alice.send(message(), 1, 0)
    alice.send(message(recoverable=True), 2, 0)
    express, recoverable = (packet.pack() for packet in packets(alice.data_to_send()))
    bob.receive(express, 0)
    bob.receive(recoverable, 9_500)  # to be acknowledged at 10,000, too
    assert bob.next_deadline == 10_000
    bob.send(message(), 1, 7_500)
    bob.send(message(), 2, 9_600)
    first, second = packets(bob.data_to_send())
    assert isinstance(first, UserMessage) and isinstance(second, UserMessage)
    assert first.session is None and second.session == SessionHeader(2, 0, 0, 2, 0, 64)


def test_no_acknowledgment_rides_on_what_goes_to_an_order_queue() -> None:
    """All bits of BaseHeader.Flags are 0 in OrderAck and FinalAck packets, MS-MQQB 2.2.4 and 2.2.5."""
    alice, bob = opened()
    alice.send(message(), 1, 1_000)
    bob.receive(alice.data_to_send(), 1_000)
    for number, queue in enumerate(
        [
            QueueName(NameType.PRIVATE_ON_DESTINATION, number=4),
            QueueName(NameType.DIRECT, direct="TCP:192.0.2.1\\PRIVATE$\\order_queue$"),
            QueueName(NameType.PRIVATE_ON_DESTINATION, number=5),
        ]
    ):
        acknowledgment = message(recoverable=True)
        acknowledgment.user.destination = queue
        bob.send(acknowledgment, number, 8_501)
    first, second, third = packets(bob.data_to_send())
    assert isinstance(first, UserMessage) and isinstance(second, UserMessage) and isinstance(third, UserMessage)
    assert first.session is None and second.session is None
    assert third.session == SessionHeader(1, 0, 0, 3, 3, 64)


def test_a_message_that_carries_an_acknowledgment_is_counted_before_it_is_read() -> None:
    alice, bob = opened()
    alice.send(message(), 5, 1)
    exchange(alice, bob, 1)
    data = with_session(message(recoverable=True), SessionHeader(1, 0, 0, 1, 1, 64))
    events = alice.receive(data, 2)
    assert done(events) == [5] and received(events)[0].receipt == 1 and ending(events) is None


@pytest.mark.parametrize("counts", [(2, 0), (1, 1), (0, 0)])
def test_a_message_with_other_counts_is_delivered_and_then_the_session_closes(counts: tuple[int, int]) -> None:
    """T25, the counts."""
    _, bob = opened()
    data = with_session(message(b"kept"), SessionHeader(0, 0, 0, *counts, 64))
    events = bob.receive(data + message(b"after").pack(), 1)
    assert [event.message.properties.body for event in received(events)] == [b"kept"]
    assert ending(events) is CloseReason.COUNTS_DIFFER


def test_a_session_ack_with_other_counts_still_acknowledges_what_it_names() -> None:
    alice, _ = opened()
    alice.send(message(), 1, 0)
    alice.send(message(), 2, 0)
    events = alice.receive(SessionAck(SessionHeader(1, 0, 0, 3, 0, 64)).pack(), 1)
    assert done(events) == [1] and ending(events) is CloseReason.COUNTS_DIFFER
    assert isinstance(events[-1], Closed) and events[-1].unacknowledged == (2,)


def test_a_message_with_session_header_split_at_any_byte_is_the_same() -> None:
    """T25, the segments."""
    data = with_session(message(b"LIOR", recoverable=True), SessionHeader(0, 0, 0, 1, 1, 64)) + message(b"2").pack()
    for at in range(len(data) + 1):
        _, bob = opened()
        events = bob.receive(data[:at], 1) + bob.receive(data[at:], 1)
        assert [(event.message.properties.body, event.receipt) for event in received(events)] == [
            (b"LIOR", 1), (b"2", None),
        ]  # fmt: skip
        assert ending(events) is None


def test_a_peer_that_acknowledges_what_was_never_sent_is_closed() -> None:
    alice, _ = opened()
    alice.send(message(), 1, 0)
    alice.data_to_send()
    events = alice.receive(SessionAck(SessionHeader(2)).pack(), 1)
    assert ending(events) is CloseReason.PROTOCOL_ERROR and done(events) == []
    assert alice.data_to_send() == b""


@pytest.mark.parametrize("damage", ["bytes behind", "delivery mode 2", "cut name"])
def test_malformed_messages_close_the_session(damage: str) -> None:
    _, bob = opened()
    packet = message(b"x")
    if damage == "delivery mode 2":
        packet.user.delivery = 2
    data = bytearray(packet.pack())
    if damage == "bytes behind":
        data[8:12] = (len(data) + 4).to_bytes(4, "little")
        data += bytes(4)
    if damage == "cut name":
        data[64:66] = b"\xff\xff"
    events = bob.receive(bytes(data), 1)
    assert ending(events) is CloseReason.PROTOCOL_ERROR and received(events) == [] and bob.data_to_send() == b""


# -- timers and closing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("direct", "wait"), [(False, 20_000), (True, 40_000)])
def test_a_session_without_any_packet_closes_while_something_awaits_its_acknowledgment(direct: bool, wait: int) -> None:
    alice, _ = opened(direct=direct)
    alice.send(message(), 1, 0)
    assert alice.next_deadline == wait
    assert alice.tick(wait) == [] and alice.next_deadline == 2 * wait  # handshake packets had arrived before
    events = alice.tick(2 * wait)
    assert ending(events) is CloseReason.ACK_TIMEOUT
    assert isinstance(events[-1], Closed) and events[-1].unacknowledged == (1,)


def test_any_packet_keeps_a_session_that_waits() -> None:
    alice, bob = opened()
    alice.send(message(), 1, 0)
    for now in range(20_000, 200_000, 20_000):
        bob.send(message(), 1, now - 1)
        alice.receive(bob.data_to_send(), now - 1)
        assert ending(alice.tick(now)) is None


def test_the_wait_for_acknowledgments_ends_with_the_last_of_them() -> None:
    alice, _ = opened()
    alice.send(message(recoverable=True), 1, 0)
    alice.receive(SessionAck(SessionHeader(1)).pack(), 5_000)
    assert alice.next_deadline == 25_000
    alice.receive(SessionAck(SessionHeader(1, 1, 1)).pack(), 6_000)
    assert alice.next_deadline == 300_000


def test_an_idle_session_closes_after_300_seconds_and_one_in_use_later() -> None:
    alice, bob = opened()
    alice.send(message(), 1, 0)
    exchange(alice, bob, 1)
    bob.tick(10_001)
    exchange(alice, bob, 10_001)
    assert alice.tick(300_000) == [] and alice.next_deadline == 600_000
    assert alice.tick(600_000) == [Closed(CloseReason.IDLE)]
    assert alice.tick(900_000) == [] and alice.next_deadline is None


@pytest.mark.parametrize("end", ["disconnected", "close"])
def test_unacknowledged_messages_return_in_the_order_of_sending(end: str) -> None:
    alice, bob = opened()
    for token in range(6):
        alice.send(message(recoverable=token % 2 == 0), token, 1)
    first, *_ = received(bob.receive(alice.data_to_send(), 1))
    assert first.receipt
    bob.durable([first.receipt], 2)
    bob.tick(502)
    exchange(alice, bob, 502)
    (event,) = getattr(alice, end)()
    assert event.unacknowledged == (2, 4)
    assert alice.close() == [] and alice.disconnected() == [] and alice.room == 0


def test_a_sync_that_ends_after_the_session_is_harmless() -> None:
    alice, bob = opened()
    alice.send(message(recoverable=True), 1, 0)
    (event,) = received(bob.receive(alice.data_to_send(), 0))
    bob.disconnected()
    assert event.receipt
    bob.durable([event.receipt], 1)
    assert bob.data_to_send() == b"" and bob.next_deadline is None


def test_identities_are_those_of_the_settings() -> None:
    alice, bob = opened(direct=True)
    assert (alice.peer, bob.peer, alice.direct, bob.direct) == (BOB, ALICE, True, True)


@pytest.mark.parametrize(
    ("found", "recoverable", "is_plain", "receipt"),
    [(0, False, True, None), (1, True, True, 1), (-1, False, False, None), (-1, True, False, 1)],
)
def test_a_packet_that_native_code_calls_plain_is_counted_without_being_read(
    monkeypatch: pytest.MonkeyPatch, found: int, recoverable: bool, is_plain: bool, receipt: int | None
) -> None:
    class PlainPackets:
        """Native code that returns the delivery mode of a plain packet, and -1 for others."""

        @staticmethod
        def delivery(packet: bytes) -> int:
            return found

    monkeypatch.setattr("openmsmq.transport.session.plain_packets", PlainPackets)
    _, bob = opened()
    (event,) = received(bob.receive(message(b"body", recoverable).pack(), 1))
    assert (event.is_plain, event.receipt) == (is_plain, receipt)
    assert event.message.properties.body == b"body"
