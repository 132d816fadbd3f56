"""Transactional sequences: numbers, order, resending, OrderAcks."""

import random
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.packet.internal import OrderAckBody
from openmsmq.transport.sequence import LAST_NUMBER, Incoming, OutgoingSequence, SequenceId, SequencePosition

FIRST, SECOND = SequenceId(100, 1), SequenceId(100, 2)


def generator() -> Callable[[], SequenceId]:
    ordinals = count(1)
    return lambda: SequenceId(100, next(ordinals))


def outgoing(messages: int = 0) -> OutgoingSequence:
    sequence = OutgoingSequence(generator())
    for _ in range(messages):
        sequence.assign()
    return sequence


def order_ack(number: int, identifier: SequenceId = FIRST) -> OrderAckBody:
    return OrderAckBody(identifier.ordinal, identifier.timestamp, number)


# -- outgoing ----------------------------------------------------------------------------------------------------------


def test_numbers_begin_at_1_and_name_their_predecessor() -> None:
    sequence = outgoing()
    assert [sequence.assign() for _ in range(3)] == [1, 2, 3]
    assert [sequence.previous(number) for number in (1, 2, 3)] == [0, 1, 2]


def test_an_expired_message_leaves_a_gap_that_the_next_one_bridges() -> None:
    """T19."""
    sequence = outgoing(3)
    sequence.withdraw(2)
    assert sequence.previous(3) == 1
    sequence.acknowledged(order_ack(1), 0)
    assert sequence.previous(3) == 1
    assert Incoming(SequencePosition(FIRST, 1)).receive(FIRST, 3, sequence.previous(3), 0)


def test_an_order_ack_completes_all_up_to_its_number() -> None:
    sequence = outgoing(5)
    assert sequence.acknowledged(order_ack(3), 0) == (1, 2, 3)
    assert sequence.acknowledged(order_ack(3), 0) == () and sequence.acknowledged(order_ack(2), 0) == ()
    assert sequence.unacknowledged == (4, 5) and sequence.last_ack == 3 and sequence.last_ack_count == 3


def test_when_all_are_acknowledged_a_new_sequence_begins() -> None:
    sequence = outgoing(2)
    sequence.sent(0)
    assert sequence.acknowledged(order_ack(2), 1) == (1, 2)
    assert (sequence.identifier, sequence.last_ack, sequence.next_deadline) == (SECOND, 0, None)
    assert sequence.assign() == 1 and sequence.previous(1) == 0


@pytest.mark.parametrize("body", [order_ack(1000, SequenceId(100, 0)), order_ack(4), order_ack(1, SECOND)])
def test_an_order_ack_of_another_sequence_or_number_completes_nothing(body: OrderAckBody) -> None:
    """T18."""
    sequence = outgoing(3)
    assert sequence.acknowledged(body, 0) == ()
    assert sequence.unacknowledged == (1, 2, 3) and sequence.last_ack_count == 0


def resends(sequence: OutgoingSequence, until: float) -> list[float]:
    """Return the times at which a sequence wants all messages resent, in seconds."""
    times = []
    while sequence.next_deadline is not None and sequence.next_deadline <= until:
        now = sequence.next_deadline
        assert not sequence.tick(now - 1) and sequence.tick(now)
        times.append(now / 1000)
    return times


def test_without_order_acks_messages_are_sent_again_after_longer_and_longer_times() -> None:
    """T17."""
    sequence = outgoing(2)
    sequence.sent(0)
    sequence.sent(20_000)
    minutes = [30, 60, 90, 390, 690, 990, 2790, 4590, 6390, 27_990, 49_590]
    assert resends(sequence, 49_590_000) == minutes
    sequence.acknowledged(order_ack(1), 50_000_000)
    assert resends(sequence, 50_390_000) == [50_030, 50_060, 50_090, 50_390]


def test_a_repeated_order_ack_is_no_progress() -> None:
    sequence = outgoing(2)
    sequence.sent(0)
    sequence.acknowledged(order_ack(1), 10_000)
    sequence.acknowledged(order_ack(1), 39_000)
    assert sequence.next_deadline == 40_000


def test_no_timer_runs_when_no_message_is_left() -> None:
    sequence = outgoing(1)
    sequence.sent(0)
    sequence.withdraw(1)
    assert sequence.next_deadline is None and not sequence.tick(1e9)


def test_a_sequence_continues_after_a_restart() -> None:
    """T16, the part of a sequence."""
    before = outgoing(5)
    before.acknowledged(order_ack(2), 0)
    after = OutgoingSequence(
        generator(), before.identifier, before.next_number, before.last_ack, reversed(before.unacknowledged)
    )
    assert [after.previous(number) for number in (3, 4, 5)] == [2, 3, 4]
    assert after.assign() == 6 and after.acknowledged(order_ack(5), 0) == (3, 4, 5)


def test_a_sequence_that_never_runs_empty_ends_before_its_numbers_do() -> None:
    sequence = OutgoingSequence(generator(), FIRST, LAST_NUMBER, LAST_NUMBER - 1)
    number = sequence.assign()
    assert sequence.exhausted
    with pytest.raises(OverflowError):
        sequence.assign()
    sequence.acknowledged(order_ack(number, FIRST), 0)
    assert sequence.assign() == 1


# -- incoming ----------------------------------------------------------------------------------------------------------


def test_messages_are_accepted_once_and_in_order() -> None:
    """T15."""
    sequence = Incoming()
    arrivals = [(1, 0), (2, 1), (2, 1), (4, 3), (3, 2), (4, 3)]
    accepted = [number for number, previous in arrivals if sequence.receive(FIRST, number, previous, 0)]
    assert accepted == [1, 2, 3, 4] and sequence.reject_count == 0
    sequence.durable(sequence.position, 10)
    assert sequence.tick(499) is None
    assert sequence.tick(500) == order_ack(4)


@pytest.mark.parametrize(
    ("identifier", "number", "previous", "accepted"),
    [
        (FIRST, 6, 5, True),
        (FIRST, 9, 3, True),
        (FIRST, 9, 6, False),
        (FIRST, 5, 4, False),
        (SECOND, 1, 0, True),
        (SECOND, 3, 0, True),
        (SECOND, 2, 1, False),
        (SECOND, 0, 0, False),
        (SequenceId(99, 7), 1, 0, False),
        (SequenceId(101, 0), 1, 0, True),
    ],
)
def test_after_message_5_only_its_successors_are_accepted(
    identifier: SequenceId, number: int, previous: int, accepted: bool
) -> None:
    sequence = Incoming(SequencePosition(FIRST, 5), reject_count=3)
    assert sequence.receive(identifier, number, previous, 0) is accepted
    assert sequence.position == (SequencePosition(identifier, number) if accepted else SequencePosition(FIRST, 5))
    assert sequence.reject_count == (0 if accepted else 4)


@pytest.mark.parametrize(
    ("arrivals", "accepted"),
    [
        ([5, 6, 7, 5, 6, 7, 8], [5, 6, 7, 8]),
        ([7, 8, 5, 6, 7, 8], [5, 6, 7, 8]),
        ([5, 6, 6, 7], [6, 7]),
        ([5, 6, 7], []),
    ],
    ids=["all resent", "resent with earlier ones", "after the first has expired", "not resent"],
)
def test_a_sequence_that_began_before_its_queue_continues_when_its_source_resends(
    arrivals: list[int], accepted: list[int]
) -> None:
    def take(*, from_source: bool) -> list[int]:
        sequence = Incoming()
        return [each for each in arrivals if sequence.receive(FIRST, each, each - 1, 0, from_source=from_source)]

    assert take(from_source=True) == accepted
    assert take(from_source=False) == [], "routers resend single messages"


def test_an_order_ack_names_only_what_is_synced() -> None:
    sequence = Incoming()
    sequence.receive(FIRST, 1, 0, 0)
    sequence.receive(FIRST, 2, 1, 0)
    assert sequence.tick(500) is None
    sequence.durable(SequencePosition(FIRST, 1), 900)
    assert sequence.tick(1_400) == order_ack(1)
    sequence.durable(SequencePosition(FIRST, 2), 2_000)
    assert sequence.tick(2_500) == order_ack(2)
    sequence.durable(SequencePosition(FIRST, 2), 3_000)
    assert sequence.next_deadline is None


def test_a_duplicate_is_answered_by_the_same_order_ack() -> None:
    sequence = Incoming(SequencePosition(FIRST, 4))
    assert not sequence.receive(FIRST, 3, 2, 1_000)
    assert sequence.tick(1_500) == order_ack(4)


def test_a_message_that_could_not_be_stored_is_accepted_when_resent() -> None:
    sequence = Incoming(SequencePosition(FIRST, 4))
    assert sequence.receive(FIRST, 5, 4, 0)
    sequence.failed()
    assert sequence.receive(FIRST, 5, 4, 0)


def test_messages_delay_the_order_ack_by_up_to_10_seconds() -> None:
    sequence = Incoming()
    sequence.receive(FIRST, 1, 0, 0)
    sequence.durable(sequence.position, 0)
    assert sequence.tick(500) is not None
    number, sent_at = 1, None
    for now in range(600, 12_000, 100):
        if sequence.tick(now):
            sent_at = now
            break
        number += 1
        sequence.receive(FIRST, number, number - 1, now)
        sequence.durable(sequence.position, now)
    assert sent_at == 10_900


@given(st.lists(st.integers(0, 9), max_size=60), st.sets(st.integers(1, 10)), st.randoms(use_true_random=False))
def test_resending_in_any_way_delivers_what_did_not_expire_once_and_in_order(
    steps: list[int], expired: set[int], chance: random.Random
) -> None:
    """Losses are suffixes of the sent messages, as in sessions; a sent message may still expire."""
    source, destination = outgoing(10), Incoming()
    delivered: list[int] = []

    def send(limit: int) -> None:
        for number in source.unacknowledged[:limit]:
            if destination.receive(source.identifier, number, source.previous(number), 0):
                delivered.append(number)
                destination.durable(destination.position, 0)

    for step in steps:
        send(step)
        for number in [number for number in source.unacknowledged if number in expired]:
            if chance.random() < 0.2:
                source.withdraw(number)
        if destination.synced.number and chance.random() < 0.3:
            identifier, number = destination.synced
            source.acknowledged(order_ack(number, identifier), 0)
    for number in set(source.unacknowledged) & expired:
        source.withdraw(number)
    send(10)
    assert delivered == sorted(set(delivered))
    assert set(range(1, 11)) - expired <= set(delivered)
