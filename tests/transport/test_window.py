"""Counts and acknowledgments of a session, in both directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.packet.headers import SessionHeader
from openmsmq.transport.events import RemoteSessionError
from openmsmq.transport.window import MAXIMUM_UNSAVED, Receiving, SendWindow, Window


def ack(count: int, first: int = 0, flags: int = 0) -> SessionHeader:
    return SessionHeader(count & 0xFFFF, first & 0xFFFF, flags)


def filled(recoverable: list[bool]) -> SendWindow[int]:
    """Return packets 1, 2, 3, ... of these kinds."""
    sending: SendWindow[int] = SendWindow()
    for token, kind in enumerate(recoverable, 1):
        sending.sent(token, kind)
    return sending


def test_express_packets_are_done_when_they_are_counted() -> None:
    sending = filled([False] * 5)
    assert sending.acknowledged(ack(3)) == (1, 2, 3)
    assert sending.in_flight == 2 and sending.rest() == (4, 5)


def test_recoverable_packets_are_done_by_their_bit_only() -> None:
    sending = filled([True, False, True, True])
    assert sending.acknowledged(ack(4)) == (2,)
    assert sending.in_flight == 0 and sending.unsaved == 3
    assert sending.acknowledged(ack(4, 1, 0b101)) == (1, 4)
    assert sending.acknowledged(ack(4, 2, 0b1)) == (3,)


def test_what_one_acknowledgment_completes_keeps_the_order_of_sending() -> None:
    sending = filled([True, False, True, False])
    assert sending.acknowledged(ack(4, 1, 0b11)) == (1, 2, 3, 4)


def test_a_bit_that_is_resent_changes_nothing() -> None:
    sending = filled([True, True])
    assert sending.acknowledged(ack(2, 1, 0b1)) == (1,)
    assert sending.acknowledged(ack(2, 1, 0b11)) == (2,)


def test_a_number_without_flags_names_nothing() -> None:
    sending = filled([True, True])
    assert sending.acknowledged(ack(2, 2, 0)) == ()


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(ack(4), id="more than were sent"),
        pytest.param(ack(0xFFFF), id="fewer than before"),
        pytest.param(ack(3, 3, 1), id="a recoverable one that was not sent"),
        pytest.param(ack(3, 1, 0b111), id="flags beyond the last one"),
        pytest.param(ack(3, 0, 1), id="number 0 before any wrap"),
        pytest.param(ack(3, 1, 0xFFFFFFFF), id="all flags"),
        pytest.param(ack(0, 1, 1), id="saved, but not received"),
    ],
)
def test_acknowledgments_of_unsent_packets_are_detected_and_complete_nothing(header: SessionHeader) -> None:
    sending = filled([True, False, True])
    with pytest.raises(RemoteSessionError):
        sending.acknowledged(header)
    assert sending.rest() == (1, 2, 3)


def test_bits_are_given_in_order_at_most_32_and_none_twice() -> None:
    receiving = Receiving()
    receipts = [receiving.count(recoverable=True) for _ in range(70)]
    assert receiving.acknowledge() == (70, 0, 0)
    for receipt in reversed(receipts):
        assert receiving.ackable == 0
        assert receipt is not None
        receiving.durable(receipt)
    assert receiving.acknowledge() == (70, 1, 0xFFFFFFFF)
    assert receiving.acknowledge() == (70, 33, 0xFFFFFFFF)
    assert receiving.acknowledge() == (70, 65, 0b111111)
    assert receiving.acknowledge() == (70, 0, 0) and receiving.nothing_to_say


@pytest.mark.parametrize("receipt", [0, 1, 3, 4])
def test_receipts_that_were_not_issued_or_come_twice_are_refused(receipt: int) -> None:
    receiving = Receiving()
    for _ in range(3):
        receiving.count(recoverable=True)
    receiving.durable(1)
    receiving.durable(3)
    with pytest.raises(ValueError):
        receiving.durable(receipt)


def test_a_peer_that_counted_otherwise_is_noticed() -> None:
    receiving = Receiving()
    receiving.count(recoverable=True)
    receiving.count(recoverable=False)
    assert not receiving.differs_from(SessionHeader(user_sequence_number=2, recoverable_sequence_number=1))
    assert receiving.differs_from(SessionHeader(user_sequence_number=3, recoverable_sequence_number=1))
    assert receiving.differs_from(SessionHeader(user_sequence_number=2, recoverable_sequence_number=0))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=200), st.integers(0, 3))
def test_both_ends_agree_on_what_is_done_also_where_the_counts_wrap(steps: list[tuple[bool, bool]], wraps: int) -> None:
    sending, receiving = SendWindow[int](), Receiving()
    for counter in ("_sent", "_received", "_recoverable"):
        setattr(sending, counter, wraps * 0x10000 - 20 if wraps else 0)
    for counter in ("_received", "_acknowledged", "_recoverable", "_durable", "_base"):
        setattr(receiving, counter, wraps * 0x10000 - 20 if wraps else 0)
    done: list[int] = []
    for token, (recoverable, acknowledge) in enumerate(steps):
        sending.sent(token, recoverable)
        receipt = receiving.count(recoverable)
        if receipt is not None:
            receiving.durable(receipt)
        if acknowledge or receiving.ackable == 32:
            done += sending.acknowledged(SessionHeader(*receiving.acknowledge()))
            assert receiving.nothing_to_say and not sending.in_flight
    done += sending.acknowledged(SessionHeader(*receiving.acknowledge()))
    assert done == list(range(len(steps)))


@pytest.mark.parametrize(
    ("own", "peer", "size", "half"),
    [(64, 64, 64, 32), (64, 32, 32, 16), (1, 64, 1, 1), (64, 0, 1, 1), (64, 3, 3, 2), (65_535, 65_535, 65_535, 32_768)],
)
def test_the_smaller_window_holds_and_is_at_least_1(own: int, peer: int, size: int, half: int) -> None:
    window = Window(own)
    window.peer = peer
    assert (window.size, window.half) == (size, half)


@pytest.mark.parametrize("own", [0, -1, 0x10000])
def test_an_own_window_out_of_range_is_refused(own: int) -> None:
    with pytest.raises(ValueError):
        Window(own)


def test_the_number_of_packets_without_bit_keeps_numbers_unambiguous() -> None:
    assert MAXIMUM_UNSAVED < 0x8000
