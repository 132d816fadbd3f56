"""Refused transactional messages: [MS-MQQB] 3.1.5.6 to 3.1.5.8, when the answer is lost and when it is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from openmsmq.model.constants import Journal, MessageClass, PropId
from openmsmq.model.errors import MsmqError
from openmsmq.peering import memory, receiver
from openmsmq.peering.arrival import DeliveryResult
from openmsmq.peering.memory import SourceState
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.transport.sequence import Incoming
from peering.conftest import Pair
from peering.test_arrival import ORIGIN, judge, numbered
from peering.test_outcomes import TX, message, outgoing, settled

MISSING = "DIRECT=TCP:127.0.0.12\\private$\\missing"
DEAD = int(Journal.DEADLETTER)


def limit(pair: Pair, kilobytes: int) -> None:
    """Set the quota of the destination queue."""
    beta = pair.beta.manager
    beta.administration.set_properties(beta.registry.by_name["tx"], {PropId.PROPID_Q_QUOTA: kilobytes}, SYSTEM)


def dead_letters(pair: Pair) -> list[tuple[str, int]]:
    dead = pair.alpha.manager.registry.transactional_dead_letters
    return [(each.label, each.message_class) for each in (dead.message(key) for key in dead.available)]


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of answers that are still to be lost, with their connections."""
    left, send = [0], receiver._answer

    def answer(connection: Any, answers: Sequence[Any]) -> None:
        if left[0] and any(each is not None for each in answers):
            left[0] -= 1
            connection.close()
        else:
            send(connection, answers)  # type: ignore[arg-type]

    monkeypatch.setattr(receiver, "_answer", answer)
    return left


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_refused_message_becomes_a_dead_letter_although_its_answer_was_lost(
    pair: Pair, losses: list[int], lost: int
) -> None:
    async def story() -> None:
        limit(pair, 0)
        losses[0] = lost
        await pair.alpha.send(TX, [message("a", journaling_requested=DEAD)], transactional=True)
        await settled(1000)
        assert dead_letters(pair) == [("a", MessageClass.NACK_Q_EXCEED_QUOTA)]
        queue = outgoing(pair.alpha, TX)
        assert not queue.entries and not pair.beta.manager.registry.outgoing

    pair.run(story)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_message_refused_before_the_first_accepted_one_becomes_a_dead_letter(
    pair: Pair, losses: list[int], lost: int, together: bool
) -> None:
    """The order acknowledgment of the second one completes both; only the final one says what became of the first."""

    async def story() -> None:
        limit(pair, 1)
        losses[0] = lost
        sent = [
            message("big", body=bytes(3000), journaling_requested=DEAD),
            message("small", journaling_requested=DEAD),
        ]
        if together:
            await pair.alpha.send(TX, sent, transactional=True)
        else:
            for each in sent:
                await pair.alpha.send(TX, [each], transactional=True)
                await settled(1)
        await settled(1000)
        assert pair.beta.labels("tx") == ["small"]
        assert dead_letters(pair) == [("big", MessageClass.NACK_Q_EXCEED_QUOTA)]
        awaiting = outgoing(pair.alpha, TX).journal
        assert awaiting is not None and [awaiting.message(key).label for key in awaiting.available] == ["small"]

    pair.run(story)


def test_a_refused_message_is_not_resent(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        for name in (TX, MISSING):
            limit(pair, 0)
            await pair.alpha.send(name, [message("a", journaling_requested=DEAD)], transactional=True)
            await settled(100)
            queue = outgoing(pair.alpha, name)
            info = queue.transfer_info
            assert not queue.entries and info.eod_no_ack_count == 0 and info.eod_resend_count == 0
            with pytest.raises(MsmqError, match="no message"):
                pair.alpha.service.resend(queue)
        assert "are resent" not in caplog.text and len(dead_letters(pair)) == 2
        limit(pair, 1000)
        await pair.alpha.send(TX, [message("b")], transactional=True)
        await settled(10)
        assert pair.beta.labels("tx") == ["b"]

    pair.run(story)


def test_the_last_order_acknowledgment_is_that_of_the_completed_sequence(pair: Pair) -> None:
    """[MS-MQDMPR] 3.1.1.4, EodLastAck."""

    async def story() -> None:
        await pair.alpha.send(TX, [message(label) for label in "abc"], transactional=True)
        await settled(10)
        queue = outgoing(pair.alpha, TX)
        last, following = queue.transfer_info.eod_last_ack, queue.transfer_info.eod_next_seq
        assert (last.number, last.previous) == (3, 2) and last.identifier < following.identifier

    pair.run(story)


def test_repetitions_are_answered_until_a_message_is_accepted(pair: Pair) -> None:
    async def story() -> None:
        arrival = pair.beta.service._arrival
        limit(pair, 0)
        first = numbered(1, 0)
        verdicts = [judge(arrival, first, ORIGIN) for _ in range(3)]
        assert [each.fate for each in verdicts] == [DeliveryResult.REJECTED, *[DeliveryResult.OUT_OF_ORDER] * 2]
        assert all(each.answer is not None for each in verdicts)
        assert judge(arrival, numbered(9, 8), ORIGIN).answer is None, "was not refused, but is early"
        limit(pair, 1000)
        assert judge(arrival, numbered(2, 1), ORIGIN).fate is DeliveryResult.ACCEPTED
        assert judge(arrival, first, ORIGIN).answer is None, "its final acknowledgment is stored"
        [queue] = pair.beta.manager.registry.outgoing.values()
        assert [queue.message(key).message_class for key in queue.entries] == [MessageClass.NACK_Q_EXCEED_QUOTA]
        await settled(1)

    pair.run(story)


def test_a_known_source_gets_one_final_acknowledgment(pair: Pair) -> None:
    async def story() -> None:
        arrival, beta = pair.beta.service._arrival, pair.beta.manager
        assert judge(arrival, numbered(1, 0), ORIGIN).fate is DeliveryResult.ACCEPTED
        beta.administration.create_queue(".\\private$\\limited", {PropId.PROPID_Q_TRANSACTION: 1}, None, SYSTEM)
        other = beta.registry.by_name["limited"]
        beta.administration.set_properties(other, {PropId.PROPID_Q_QUOTA: 0}, SYSTEM)
        refused = numbered(1, 0, "limited")
        assert judge(arrival, refused, ORIGIN).fate is DeliveryResult.REJECTED
        assert judge(arrival, refused, ORIGIN).answer is None
        beta.administration.set_properties(other, {PropId.PROPID_Q_QUOTA: 1000}, SYSTEM)
        assert judge(arrival, numbered(2, 1, "limited"), ORIGIN).fate is DeliveryResult.ACCEPTED
        [queue] = beta.registry.outgoing.values()
        assert [queue.message(key).message_class for key in queue.entries] == [MessageClass.NACK_Q_EXCEED_QUOTA]
        await settled(1)

    pair.run(story)


def test_few_final_acknowledgments_of_a_stranger_are_kept() -> None:
    state = SourceState(b"s" * 16, 1, Incoming())
    for number in range(100):
        state.note_unconfirmed(bytes([number]), MessageClass.NACK_BAD_DST_Q)
    assert list(state.unconfirmed) == [bytes([n]) for n in range(100 - memory.MOST_UNCONFIRMED, 100)]
