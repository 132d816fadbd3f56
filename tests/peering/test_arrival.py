"""Dispositions of single packets: permission to send, duplicates, counts."""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

import pytest

from openmsmq.conversion.packets import user_message_of
from openmsmq.model import security
from openmsmq.model.constants import INFINITE, Delivery, MessageClass, PropId
from openmsmq.model.message import Message
from openmsmq.model.names import DirectFormatName, parse_format_name
from openmsmq.model.security import SecurityDescriptor
from openmsmq.packet import UserMessage
from openmsmq.packet.headers import TransactionHeader
from openmsmq.packet.internal import FinalAckBody
from openmsmq.packet.queue_names import NameType, QueueName
from openmsmq.peering.arrival import (
    MAXIMUM_HOPS,
    Arrival,
    ArrivalOrigin,
    DeliveryResult,
    Disposition,
    SenderTrustPolicy,
    _final_ack,
    reply_to,
)
from openmsmq.protection.arrival import Accepted
from openmsmq.protection.sign import Version, signed_bytes
from openmsmq.queueing.arrivals import Arriving
from openmsmq.queueing.authorization import SYSTEM, QueueAccessMask
from openmsmq.queueing.changes import MOST_REFUSED, OTHERS
from openmsmq.queueing.outgoing_queues import meant_machine, wire_name
from openmsmq.transport.sequence import SequenceId
from peering.conftest import Pair
from peering.network import EPOCH
from peering.test_outcomes import settled
from peering.test_routes import GUIDS, FourMachines

SOURCE = b"\x44" * 16
ORIGIN = ArrivalOrigin(SOURCE, "127.0.0.44")
ALICE = "S-1-5-21-1-2-3-1001"
_numbers = itertools.count(1)


def packet(queue: str = "plain", **values: Any) -> UserMessage:
    return user_message_of(Message(**{
        "label": "m", "identifier": SOURCE + next(_numbers).to_bytes(4, "little"), "source_machine_identifier": SOURCE,
        "destination_queue_format_name": f"DIRECT=TCP:127.0.0.12\\private$\\{queue}", "sent_time": EPOCH // 1000,
        "delivery_guarantee": Delivery.RECOVERABLE, "time_to_reach_queue": INFINITE, **values,
    }))  # fmt: skip


def numbered(number: int, previous: int, queue: str = "tx") -> UserMessage:
    made = packet(queue)
    made.base.priority = 0
    made.transaction = TransactionHeader(1, True, True)
    made.transaction.sequence_timestamp, made.transaction.sequence_ordinal = 5, 1
    made.transaction.sequence_number, made.transaction.previous_sequence_number = number, previous
    return made


@pytest.fixture
def arrival(pair: Pair) -> Arrival:
    return pair.beta.service._arrival


def judge(arrival: Arrival, packet: UserMessage, origin: ArrivalOrigin) -> Disposition:
    """Return the disposition of a single packet."""
    batch = arrival.begin(origin)
    verdict = arrival.receive(packet, origin, batch)
    assert arrival.finish(batch)
    return verdict


def refused(reason: MessageClass) -> Any:
    return lambda verdict: (verdict.fate, verdict.message_class) == (DeliveryResult.REJECTED, reason)


def accepted(verdict: Disposition) -> bool:
    return verdict.fate is DeliveryResult.ACCEPTED


@pytest.mark.parametrize("level", [0, 1, 3, 5])
@pytest.mark.parametrize("trusts", [False, True])
@pytest.mark.parametrize("sender", [ALICE, "S-1-5-21-1-2-3-1002", security.ANONYMOUS, security.EVERYONE])
def test_a_sid_counts_if_a_signature_proves_it_or_if_all_are_trusted(
    pair: Pair, arrival: Arrival, monkeypatch: pytest.MonkeyPatch, level: int, trusts: bool, sender: str
) -> None:
    """Deviation D-105."""
    only_alice = SecurityDescriptor(
        owner=ALICE, group=ALICE, dacl=(security.allow(ALICE, QueueAccessMask.GENERIC_ALL),)
    ).pack()
    pair.beta.manager.administration.create_queue(".\\private$\\alices", {}, only_alice, SYSTEM)
    monkeypatch.setattr(arrival, "_policy", SenderTrustPolicy(trusts))
    monkeypatch.setattr(arrival._protection, "judge", lambda packet, demands: Accepted(sender, level, 0, b""))
    verdict = judge(arrival, packet("alices"), ORIGIN)
    if sender == ALICE and (level or trusts):
        assert accepted(verdict)
    else:
        assert refused(MessageClass.NACK_ACCESS_DENIED)(verdict)


@pytest.mark.sources
def test_a_transactional_message_that_did_not_fit_is_resent_and_is_then_no_duplicate(
    pair: Pair, arrival: Arrival, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = numbered(1, 0), numbered(2, 1)
    assert accepted(judge(arrival, first, ORIGIN))
    with monkeypatch.context() as full:
        full.setattr(Arriving, "may_store", lambda self, queue, message: False)
        assert judge(arrival, second, ORIGIN).fate is DeliveryResult.COMES_AGAIN
        assert judge(arrival, packet(), ORIGIN).fate is DeliveryResult.COMES_AGAIN
    assert accepted(judge(arrival, second, ORIGIN))
    assert judge(arrival, second, ORIGIN).fate is DeliveryResult.OUT_OF_ORDER
    (source,) = arrival._sources.of_queue(pair.beta.manager.registry.by_name["tx"].number)
    assert (source.sequence.position.number, source.sequence.reject_count) == (2, 1)
    assert source.accessed == EPOCH // 1000 and source.peer == SOURCE


def test_management_shows_the_position_of_a_source_and_its_refused_messages(pair: Pair, arrival: Arrival) -> None:
    queue = pair.beta.manager.registry.by_name["tx"]
    assert judge(arrival, numbered(2, 1), ORIGIN).fate is DeliveryResult.OUT_OF_ORDER
    assert not queue.incoming, "nothing of it was accepted"
    judge(arrival, numbered(1, 0), ORIGIN)
    judge(arrival, numbered(1, 0), ORIGIN)
    (info,) = queue.incoming.values()
    whole = SequenceId(5, 1).timestamp * 2**32 + 1
    assert info == type(info)("DIRECT=TCP:127.0.0.12\\private$\\tx", SOURCE, whole, 1, EPOCH // 1000, 1)


@pytest.mark.parametrize(
    ("age", "reach", "received", "expired"),
    [
        (9, 10, INFINITE, False), (10, 10, INFINITE, False), (11, 10, INFINITE, True), (11, INFINITE, 10, True),
        (11, INFINITE, INFINITE, False), (-3600, 10, 10, False), (11, 12, 10, True), (11, 10, 12, True),
    ],
)  # fmt: skip
def test_a_message_expires_when_either_of_its_timers_ends(
    arrival: Arrival, age: int, reach: int, received: int, expired: bool
) -> None:
    late = packet(sent_time=EPOCH // 1000 - age, time_to_reach_queue=reach, time_to_be_received=received)
    verdict = judge(arrival, late, ORIGIN)
    assert refused(MessageClass.NACK_REACH_QUEUE_TIMEOUT)(verdict) if expired else accepted(verdict)


def test_a_time_of_sending_beyond_32_bits_of_seconds_is_compared_as_it_wraps(pair: Pair, arrival: Arrival) -> None:
    pair.beta.drift = ((1 << 32) + 5) * 1000 - EPOCH
    values = {"time_to_reach_queue": 100, "delivery_guarantee": Delivery.EXPRESS}
    assert accepted(judge(arrival, packet(sent_time=(1 << 32) - 1, **values), ORIGIN))
    late = packet(sent_time=(1 << 32) - 200, **values)
    assert refused(MessageClass.NACK_REACH_QUEUE_TIMEOUT)(judge(arrival, late, ORIGIN))


def test_a_queue_accepts_messages_up_to_its_quota(pair: Pair, arrival: Arrival) -> None:
    pair.beta.manager.administration.create_queue(".\\private$\\small", {PropId.PROPID_Q_QUOTA: 1}, None, SYSTEM)
    size = Message(label="m", destination_queue_format_name="DIRECT=TCP:127.0.0.12\\private$\\small").size
    fits = packet("small", body=bytes(1024 - size))
    assert refused(MessageClass.NACK_Q_EXCEED_QUOTA)(judge(arrival, packet("small", body=bytes(1025 - size)), ORIGIN))
    assert accepted(judge(arrival, fits, ORIGIN))
    assert refused(MessageClass.NACK_Q_EXCEED_QUOTA)(judge(arrival, packet("small"), ORIGIN))
    assert arrival.rejected == 2


def test_messages_that_arrive_together_count_for_the_quota_as_those_that_arrive_one_by_one(
    pair: Pair, arrival: Arrival
) -> None:
    taken = []
    for queue in ("apart", "group"):
        pair.beta.manager.administration.create_queue(f".\\private$\\{queue}", {PropId.PROPID_Q_QUOTA: 2}, None, SYSTEM)
        batch = arrival.begin(ORIGIN)
        for _ in range(40):
            arrival.receive(packet(queue), ORIGIN, batch)
            if queue == "apart":
                assert arrival.finish(batch)
                batch = arrival.begin(ORIGIN)
        assert arrival.finish(batch)
        taken.append(len(pair.beta.labels(queue)))
    assert taken[0] == taken[1] < 40


@pytest.mark.parametrize(("journal", "kept"), [(0, 0), (1, 1), (2, 0), (3, 1)])
def test_only_what_a_full_queue_refuses_becomes_a_dead_letter_here_if_it_was_asked_for(
    pair: Pair, arrival: Arrival, journal: int, kept: int
) -> None:
    """3.1.5.8.8."""
    pair.beta.manager.administration.create_queue(".\\private$\\none", {PropId.PROPID_Q_QUOTA: 0}, None, SYSTEM)
    judge(arrival, packet("none", journaling_requested=journal), ORIGIN)
    judge(arrival, packet("missing", journaling_requested=journal), ORIGIN)
    assert len(pair.beta.manager.registry.dead_letters) == kept


def test_a_machine_that_is_not_a_router_refuses_messages_for_others(arrival: Arrival) -> None:
    elsewhere = packet()
    elsewhere.user.queue_manager_address = b"\x55" * 16
    assert refused(MessageClass.NACK_BAD_DST_Q)(judge(arrival, elsewhere, ORIGIN))
    assert MAXIMUM_HOPS == 29


def test_the_log_names_the_source_of_a_refused_message(arrival: Arrival, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "openmsmq.peering.arrival")
    judge(arrival, packet("missing"), ORIGIN)
    assert f"from queue manager {UUID(bytes_le=SOURCE)}" in caplog.text and "NACK_BAD_DST_Q" in caplog.text


def test_the_log_has_the_times_of_a_message_that_is_too_late(
    pair: Pair, arrival: Arrival, caplog: pytest.LogCaptureFixture
) -> None:
    """The message becomes no dead letter. Only these times show that the clock of its sender may be behind."""
    caplog.set_level("INFO", "openmsmq.peering.arrival")
    judge(arrival, packet(sent_time=1_700_000_000 - 7200, time_to_reach_queue=60), ORIGIN)
    assert "NACK_REACH_QUEUE_TIMEOUT: its limit is 60 s, and by its sender's clock it was sent at " in caplog.text
    assert "2023-11-14 20:13:20 UTC" in caplog.text


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("peer", [SOURCE, b"\7" * 16], ids=["source", "hop"])
def test_an_unknown_source_is_answered_on_the_session_if_its_address_is_known(
    arrival: Arrival, direct: bool, peer: bytes
) -> None:
    """A direct format name has the address; otherwise the peer of the session has to be the source."""
    made = numbered(1, 0, "missing")
    if not direct:
        made.user.destination = QueueName(NameType.PRIVATE_ON_DESTINATION, number=77)
    verdict = judge(arrival, made, ArrivalOrigin(peer, "127.0.0.44"))
    assert refused(MessageClass.NACK_BAD_DST_Q)(verdict)
    assert (verdict.answer is not None) is (direct or peer == SOURCE)


def test_order_acknowledgments_go_to_the_previous_hop_or_to_the_source() -> None:
    """Deviation D-106."""
    direct, private, nameless = numbered(1, 0), numbered(2, 1), numbered(3, 2)
    private.user.destination = QueueName(NameType.PRIVATE_ON_DESTINATION, number=7)
    nameless.user.destination = None
    assert reply_to(direct, ORIGIN) == "DIRECT=TCP:127.0.0.44\\private$\\order_queue$;irceirceirceirceirceirceiq"
    name = parse_format_name(reply_to(direct, ORIGIN))
    assert isinstance(name, DirectFormatName) and meant_machine(name) == SOURCE
    assert wire_name(name) == "DIRECT=TCP:127.0.0.44\\private$\\order_queue$"
    assert reply_to(private, ORIGIN) == reply_to(nameless, ORIGIN) == f"PRIVATE={UUID(bytes_le=SOURCE)}\\00000004"


def test_a_router_forwards_a_nontransactional_message_once_and_a_sequence_message_each_time() -> None:
    """The destination detects duplicates of a sequence; for plain messages, each hop does."""
    line = FourMachines()

    async def story() -> None:
        await line.start()
        router, registry = line.nodes["ROUTER"], line.nodes["ROUTER"].manager.registry
        arrival = router.service._arrival
        line.nodes["GATE"].crash()
        for made, times in ((packet(), 1), (numbered(1, 0), 2)):
            made.user.queue_manager_address = GUIDS["OMEGA"]
            made.user.destination = QueueName(NameType.PRIVATE_ON_DESTINATION, number=7)
            verdicts = [judge(arrival, made, ORIGIN) for _ in range(2)]
            assert verdicts[0].is_stored, "the packet is acknowledged when it is on the disk"
            assert [verdict.fate for verdict in verdicts] == [
                DeliveryResult.ACCEPTED,
                DeliveryResult.ACCEPTED if times == 2 else DeliveryResult.DUPLICATE,
            ]
        (outgoing,) = [queue for queue in registry.outgoing.values() if len(queue)]
        assert len(outgoing) == 3
        # If a message of a sequence expires here, its source is told.
        owed = [value for value in router.store.definitions.values() if reply_to(made, ORIGIN).encode() in value]
        assert len(owed) == 2
        await settled(1)

    line.run(story)


@pytest.mark.parametrize("address", [bytes(16), b"\x02" * 16], ids=["nobody", "this machine"])
def test_a_number_names_a_local_queue_if_this_machine_or_none_is_addressed(
    pair: Pair, arrival: Arrival, address: bytes
) -> None:
    """Deviation D-94."""
    assert pair.beta.machine.identifier == b"\x02" * 16
    made = packet()
    made.user.queue_manager_address = address
    number = pair.beta.manager.registry.by_name["other"].number
    made.user.destination = QueueName(NameType.PRIVATE_ON_DESTINATION, number=number)
    assert accepted(judge(arrival, made, ORIGIN)) and pair.beta.labels("other") == ["m"]


@pytest.mark.parametrize("journal", [0, 1, 2])
@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("always", [False, True])
def test_a_final_acknowledgment_is_sent_if_the_source_waits_for_it(journal: int, required: bool, always: bool) -> None:
    """3.1.7.2.2: with JN, JP or FA, and for every refusal."""
    made = numbered(3, 2)
    assert made.transaction is not None
    made.transaction.final_ack_required = required
    message = Message(journaling_requested=journal)
    owed = _final_ack(made, message, ORIGIN, always=always)
    assert bool(owed) is bool(journal or required or always)
    if owed:
        body = FinalAckBody(1, 5, 3, 2, SOURCE, made.user.message_id)
        assert owed == body.pack() + reply_to(made, ORIGIN).encode()
    assert _final_ack(packet(), message, ORIGIN, always=always) == b"", "a plain message has none"


@pytest.mark.parametrize(("made_hops", "goes_on"), [(0, True), (28, True), (29, False), (31, False)])
def test_t21_a_message_makes_29_hops(made_hops: int, goes_on: bool) -> None:
    line = FourMachines()

    async def story() -> None:
        await line.start()
        made = packet()
        made.user.routing_count, made.user.queue_manager_address = made_hops, GUIDS["OMEGA"]
        made.user.destination = QueueName(NameType.PRIVATE_ON_DESTINATION, number=7)
        verdict = judge(line.nodes["ROUTER"].service._arrival, made, ORIGIN)
        assert accepted(verdict) if goes_on else refused(MessageClass.NACK_HOP_COUNT_EXCEEDED)(verdict)
        await settled(1)

    line.run(story)


def test_refused_messages_are_counted_by_reason_and_source_for_metrics(arrival: Arrival) -> None:
    refused_so_far = arrival._manager.changes.refused
    for number in range(2 * MOST_REFUSED):
        made = packet("missing")
        made.user.source_queue_manager = number.to_bytes(16, "little")
        judge(arrival, made, ORIGIN)
    reason = int(MessageClass.NACK_BAD_DST_Q)
    assert refused_so_far[reason, str(UUID(int=0))] == 1 and refused_so_far[reason, OTHERS] == MOST_REFUSED
    assert len(refused_so_far) == MOST_REFUSED + 1


_OTHER = b"\x66" * 16
_DIRECT = QueueName(NameType.DIRECT, direct="OS:alpha\\private$\\admin")


@pytest.mark.parametrize(
    ("administration", "response"),
    [
        (_DIRECT, QueueName(NameType.SAME_AS_ADMINISTRATION)),
        (QueueName(NameType.PRIVATE, _OTHER, 5), QueueName(NameType.PRIVATE_ON_ADMINISTRATION, number=6)),
        (QueueName(NameType.PUBLIC, _OTHER), QueueName(NameType.PRIVATE_ON_ADMINISTRATION, number=6)),
        (QueueName(NameType.PRIVATE_ON_DESTINATION, number=5), QueueName(NameType.PRIVATE_ON_DESTINATION, number=6)),
        (QueueName(NameType.PRIVATE, SOURCE, 5), QueueName(NameType.PRIVATE, SOURCE, 6)),
        (None, _DIRECT),
    ],
    ids=lambda name: name.type.name if name is not None else "none",
)
def test_a_router_leaves_what_a_signature_covers(administration: QueueName | None, response: QueueName) -> None:
    """[MS-MQMQ] 2.5.2: a signature covers administration and response queue in the form that the packet has."""
    line = FourMachines()

    async def story() -> None:
        await line.start()
        router = line.nodes["ROUTER"]
        line.nodes["GATE"].crash()
        made = packet()
        made.user.queue_manager_address = GUIDS["OMEGA"]
        made.user.destination = QueueName(NameType.PRIVATE_ON_DESTINATION, number=7)
        made.user.administration, made.user.response = administration, response
        assert accepted(judge(router.service._arrival, made, ORIGIN))
        router.committer.when_durable(lambda: None)
        await settled(1)
        (outgoing,) = [queue for queue in router.manager.registry.outgoing.values() if len(queue)]
        taken = router.service._sender.next(outgoing, GUIDS["GATE"])
        assert taken is not None
        assert (taken[0].user.administration, taken[0].user.response) == (administration, response)
        assert signed_bytes(taken[0], Version.MSMQ_2, b"") == signed_bytes(made, Version.MSMQ_2, b"")

    line.run(story)


@pytest.mark.parametrize("signature", ["", "signature", "multiple_destination_signature"])
def test_names_of_local_queues_get_the_computer_name_unless_they_are_signed(pair: Pair, signature: str) -> None:
    """Deviation D-108."""
    local = "DIRECT=OS:.\\private$\\answers"
    message = Message(
        destination_queue_format_name="DIRECT=OS:beta\\private$\\plain", response_queue_format_name=local,
        administration_queue_format_name=local, source_machine_identifier=pair.alpha.machine.identifier,
        **({signature: b"signature"} if signature else {}),  # type: ignore[arg-type]
    )  # fmt: skip
    queue = pair.alpha.manager.outgoing.outgoing_for(DirectFormatName("OS", "beta", "private$\\plain"))
    sent = pair.alpha.service._sender._packet(queue, message).user
    expected = QueueName(NameType.DIRECT, direct=f"OS:{'.' if signature else 'ALPHA'}\\private$\\answers")
    assert (sent.administration, sent.response) == (expected, expected)
