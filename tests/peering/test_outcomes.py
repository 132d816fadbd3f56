"""Outcomes of single messages between two queue managers, and their acknowledgments."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest

from openmsmq.model import names
from openmsmq.model.constants import Access, Acknowledge, Delivery, Journal, MessageClass, PropId, Share
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from openmsmq.peering.arrival import Arrival
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.outgoing_queues import ConnectionStatus, OutgoingQueue, OutgoingState
from packets import reports
from peering.conftest import Pair
from peering.network import Node

PLAIN = "DIRECT=TCP:127.0.0.12\\private$\\plain"
OTHER = "DIRECT=OS:beta\\private$\\other"
TX = "DIRECT=TCP:127.0.0.12\\private$\\tx"
ADMIN = "DIRECT=TCP:127.0.0.11\\private$\\admin"
ALL = Acknowledge.POS_ARRIVAL | Acknowledge.POS_RECEIVE | Acknowledge.NEG_ARRIVAL | Acknowledge.NEG_RECEIVE


def outgoing(node: Node, name: str) -> OutgoingQueue:
    return node.manager.registry.outgoing[name.lower()]


def message(label: str = "m", **values: Any) -> Message:
    return Message(label=label, **{"delivery_guarantee": Delivery.RECOVERABLE, **values})


def asking(label: str = "m", **values: Any) -> Message:
    return message(label, acknowledgements_requested=int(ALL), administration_queue_format_name=ADMIN, **values)


def acknowledgments(node: Node) -> list[str]:
    queue = node.manager.registry.by_name["admin"]
    return [MessageClass(queue.message(key).message_class).name for key in queue.available]


async def settled(seconds: float = 30) -> None:
    await asyncio.sleep(seconds)


def test_messages_of_each_kind_arrive_with_everything_they_carry(pair: Pair) -> None:
    async def story() -> None:
        sent = message(
            "label", body=b"\x00body", body_type=4113, priority=6, application_tag=7, extension=b"ext",
            correlation_identifier=bytes(range(20)), response_queue_format_name="DIRECT=OS:.\\private$\\answers",
            time_to_be_received=600,
        )  # fmt: skip
        await pair.alpha.send(PLAIN, [replace(sent), replace(sent, delivery_guarantee=0, label="express")])
        await pair.alpha.send(TX, [message("1"), message("2")], transactional=True)
        await settled()
        queue = pair.beta.manager.registry.by_name["plain"]
        first = queue.message(next(iter(queue.available)))
        assert (first.label, first.body, first.body_type, first.priority) == ("label", b"\x00body", 4113, 6)
        assert (first.application_tag, first.extension) == (7, b"ext")
        assert (first.correlation_identifier, first.time_to_be_received) == (bytes(range(20)), 600)
        assert first.response_queue_format_name == "DIRECT=OS:ALPHA\\private$\\answers"
        assert first.source_machine_identifier == pair.alpha.machine.identifier
        assert first.identifier[:16] == pair.alpha.machine.identifier
        assert pair.beta.labels("plain") == ["label", "express"]
        assert pair.beta.labels("tx") == ["1", "2"]
        received = [pair.beta.take("tx"), pair.beta.take("tx")]
        ends = [(m.first_in_transaction, m.last_in_transaction) for m in received if m]
        assert ends == [(True, False), (False, True)]
        assert all(not queue.entries for queue in pair.alpha.manager.registry.outgoing.values())

    pair.run(story)


@pytest.mark.parametrize(
    ("name", "transactional", "reason"),
    [
        ("DIRECT=TCP:127.0.0.12\\private$\\missing", False, "NACK_BAD_DST_Q"),
        (TX, False, "NACK_NOT_TRANSACTIONAL_MSG"),
        (PLAIN, True, "NACK_NOT_TRANSACTIONAL_Q"),
    ],
)
def test_a_refused_message_is_acknowledged_and_not_resent(
    pair: Pair, name: str, transactional: bool, reason: str
) -> None:
    async def story() -> None:
        secret = reason == "NACK_BAD_DST_Q"
        sent = asking(journaling_requested=int(Journal.DEADLETTER))
        await pair.alpha.send(name, [sent], transactional=transactional)
        await settled()
        assert acknowledgments(pair.alpha) == ([] if secret else [reason])
        queue = outgoing(pair.alpha, name)
        assert not queue.entries and queue.journal is not None and not queue.journal.entries
        dead = pair.alpha.manager.registry.transactional_dead_letters
        assert [MessageClass(m.message_class).name for m in messages(dead)] == ([reason] if transactional else [])
        before = pair.alpha.service.sessions
        await pair.alpha.send(OTHER.replace("OS:beta", "TCP:127.0.0.12"), [message("next")])
        await settled()
        assert pair.beta.labels("other") == ["next"]
        assert pair.alpha.service.sessions == before, "the session stays"

    pair.run(story)


def messages(queue: Any) -> list[Message]:
    return [queue.message(key) for key in queue.available]


def test_administration_acknowledgments_come_back_to_the_machine_of_the_sender(pair: Pair) -> None:
    async def story() -> None:
        await pair.alpha.send(PLAIN, [asking()])
        await settled()
        assert acknowledgments(pair.alpha) == ["ACK_REACH_QUEUE"]
        received = pair.beta.take("plain")
        await settled()
        assert received is not None
        assert acknowledgments(pair.alpha) == ["ACK_REACH_QUEUE", "ACK_RECEIVE"]
        queue = pair.alpha.manager.registry.by_name["admin"]
        assert {queue.message(key).correlation_identifier for key in queue.available} == {received.identifier}
        assert not pair.beta.manager.registry.by_name["admin"].entries

    pair.run(story)


def test_a_private_administration_queue_of_the_sender_is_found_on_its_session(pair: Pair) -> None:
    async def story() -> None:
        admin = pair.alpha.manager.registry.by_name["admin"]
        name = str(pair.alpha.manager.registry.format_name(admin))
        asked = int(Acknowledge.POS_ARRIVAL)
        await pair.alpha.send(PLAIN, [message(acknowledgements_requested=asked, administration_queue_format_name=name)])
        await settled()
        assert acknowledgments(pair.alpha) == ["ACK_REACH_QUEUE"]

    pair.run(story)


def test_acknowledgments_are_never_acknowledged(pair: Pair) -> None:
    async def story() -> None:
        said, body = reports.EXAMPLE
        report = {"body": body.encode("utf-16-le"), "delivery_guarantee": Delivery.EXPRESS}
        await pair.alpha.send(PLAIN, [asking(message_class=int(MessageClass.ACK_RECEIVE))])
        await pair.alpha.send(PLAIN, [asking(said, message_class=int(MessageClass.REPORT), **report)])
        await settled()
        assert pair.beta.labels("plain") == ["m", said]
        assert acknowledgments(pair.alpha) == []

    pair.run(story)


def test_t20_the_journal_copy_of_a_transactional_message_waits_for_the_final_acknowledgment(pair: Pair) -> None:
    async def story() -> None:
        both = int(Journal.JOURNAL | Journal.DEADLETTER)
        await pair.alpha.send(TX, [message("a", journaling_requested=both), message("b", journaling_requested=both)],
                              transactional=True)  # fmt: skip
        await settled()
        registry = pair.alpha.manager.registry
        queue = outgoing(pair.alpha, TX)
        assert not queue.entries and queue.journal is not None and len(queue.journal) == 2
        assert queue.journal is not None and len(queue.journal) == 2
        assert not registry.system_journal.entries
        received = pair.beta.take("tx")
        assert received is not None and received.label == "a"
        await settled()
        assert [m.label for m in messages(registry.system_journal)] == ["a"]
        descriptor = pair.beta.manager.handles.open_queue(
            names.parse_format_name("DIRECT=OS:.\\private$\\tx"), Access.RECEIVE, Share.DENY_NONE, SYSTEM
        )
        pair.beta.manager.reading.purge(descriptor)
        await settled()
        dead = messages(registry.transactional_dead_letters)
        assert [(m.label, MessageClass(m.message_class).name) for m in dead] == [("b", "NACK_Q_PURGED")]
        assert not queue.journal.entries
        assert not pair.beta.manager.registry.transactional_dead_letters.entries, "dead letters are the sender's"

    pair.run(story)


@pytest.mark.parametrize("behind", [0, 2, 10])
def test_final_acknowledgments_name_messages_before_and_after_the_32nd_bit(pair: Pair, behind: int) -> None:
    """Packets have only the low 32 bits of a sequence number."""

    async def story() -> None:
        pair.alpha.store.reserve((1 << 33) - behind)
        pair.alpha.store.sync()
        pair.alpha.crash()
        await pair.alpha.start()
        given = [message(label, journaling_requested=int(Journal.JOURNAL)) for label in "abcd"]
        await pair.alpha.send(TX, given, transactional=True)
        await settled()
        if behind == 10:  # the acknowledgments come after the wrap
            await pair.alpha.send(PLAIN, [message() for _ in range(behind)])
        while pair.beta.take("tx") is not None:
            pass
        await settled()
        assert [m.label for m in messages(pair.alpha.manager.registry.system_journal)] == ["a", "b", "c", "d"]

    pair.run(story)


def test_final_acknowledgments_survive_restarts_of_both_sides(pair: Pair) -> None:
    async def story() -> None:
        await pair.alpha.send(TX, [message("a", journaling_requested=int(Journal.JOURNAL))], transactional=True)
        await settled()
        for node in (pair.alpha, pair.beta):
            node.crash(power=True)
            await settled(1)
            await node.start()
        assert pair.beta.take("tx") is not None
        await pair.beta.committer.drain()
        await settled(60)
        assert [m.label for m in messages(pair.alpha.manager.registry.system_journal)] == ["a"]
        assert not any(name.startswith(b"final-ack/") for name in pair.beta.store.definitions)

    pair.run(story)


def test_a_nontransactional_message_leaves_its_journal_copy_when_the_other_side_has_it(pair: Pair) -> None:
    async def story() -> None:
        journal = int(Journal.JOURNAL)
        await pair.alpha.send(PLAIN, [message("r", journaling_requested=journal, body=b"body")])
        await pair.alpha.send(PLAIN, [message("e", journaling_requested=journal, delivery_guarantee=0, body=b"body")])
        await settled()
        copies = messages(pair.alpha.manager.registry.system_journal)
        assert sorted((m.label, m.body) for m in copies) == [("e", b"body"), ("r", b"body")]
        assert not pair.beta.manager.registry.system_journal.entries

    pair.run(story)


def test_t12_a_resent_recoverable_message_is_stored_once_even_after_a_crash(pair: Pair) -> None:
    async def story() -> None:
        await pair.alpha.send(PLAIN, [message(str(n)) for n in range(10)])
        await settled(0.2)
        pair.network.partition = frozenset([pair.beta.address])
        await settled(1)
        pair.beta.crash()
        await settled(30)
        await pair.beta.start()
        pair.network.partition = frozenset()
        await settled(300)
        assert pair.beta.labels("plain") == [str(n) for n in range(10)]
        assert not outgoing(pair.alpha, PLAIN).entries

    pair.run(story)


def test_t19_a_message_that_expires_on_the_way_leaves_a_gap_that_the_next_one_bridges(pair: Pair) -> None:
    async def story() -> None:
        pair.network.partition = frozenset([pair.beta.address])
        for label, reach in (("1", 1000), ("2", 20), ("3", 1000)):
            await pair.alpha.send(TX, [message(label, time_to_reach_queue=reach)], transactional=True)
        await settled(60)
        pair.alpha.manager.expire()
        assert len(outgoing(pair.alpha, TX)) == 2
        pair.network.partition = frozenset()
        await settled(120)
        assert pair.beta.labels("tx") == ["1", "3"]
        assert not outgoing(pair.alpha, TX).entries

    pair.run(story)


def test_a_message_that_expired_before_arrival_is_refused_by_the_destination(pair: Pair) -> None:
    async def story() -> None:
        pair.beta.drift = 100_000
        await pair.alpha.send(
            PLAIN, [asking("late", time_to_reach_queue=50), asking("in time", time_to_reach_queue=500)]
        )
        pair.alpha.drift = 0
        await settled()
        assert pair.beta.labels("plain") == ["in time"]
        assert acknowledgments(pair.alpha) == ["NACK_REACH_QUEUE_TIMEOUT", "ACK_REACH_QUEUE"]

    pair.run(story)


def test_acknowledgments_arrive_from_a_machine_whose_clock_is_30_days_behind(pair: Pair) -> None:
    async def story() -> None:
        pair.beta.drift = -30 * 86_400_000
        await pair.alpha.send(PLAIN, [asking()])
        await settled()
        assert acknowledgments(pair.alpha) == ["ACK_REACH_QUEUE"]

    pair.run(story)


def test_t21_a_future_sending_time_does_not_expire_a_message(pair: Pair) -> None:
    async def story() -> None:
        pair.alpha.drift = 3_600_000
        await pair.alpha.send(PLAIN, [message(time_to_reach_queue=10)])
        await settled()
        assert pair.beta.labels("plain") == ["m"]

    pair.run(story)


def test_t24_a_paused_queue_sends_nothing_and_everything_afterwards(pair: Pair) -> None:
    async def story() -> None:
        await pair.alpha.send(PLAIN, [message("before")])
        await settled()
        queue = outgoing(pair.alpha, PLAIN)
        pair.alpha.manager.outgoing.pause(queue)
        await pair.alpha.send(PLAIN, [message(str(n)) for n in range(5)])
        await pair.alpha.send(OTHER, [message("others go on")])
        await settled()
        assert pair.beta.labels("plain") == ["before"] and pair.beta.labels("other") == ["others go on"]
        assert queue.state(online=True) is OutgoingState.ON_HOLD
        pair.alpha.manager.outgoing.resume(queue)
        await settled()
        assert pair.beta.labels("plain") == ["before", "0", "1", "2", "3", "4"]

    pair.run(story)


def test_offline_ends_the_sessions_and_online_continues(pair: Pair) -> None:
    async def story() -> None:
        await pair.alpha.send(PLAIN, [message("1")])
        await settled()
        pair.alpha.manager.outgoing.set_online(False)
        await pair.alpha.send(PLAIN, [message("2")])
        await settled()
        assert pair.beta.labels("plain") == ["1"]
        assert pair.alpha.service.sessions == 0
        pair.alpha.manager.outgoing.set_online(True)
        await settled()
        assert pair.beta.labels("plain") == ["1", "2"]

    pair.run(story)


def test_a_queue_over_its_quota_refuses_and_the_receiver_keeps_the_dead_letter(pair: Pair) -> None:
    async def story() -> None:
        pair.beta.manager.administration.set_properties(
            pair.beta.manager.registry.by_name["plain"], {PropId.PROPID_Q_QUOTA: 1}, SYSTEM
        )
        await pair.alpha.send(
            PLAIN, [asking(str(n), body=bytes(600), journaling_requested=int(Journal.DEADLETTER)) for n in range(3)]
        )
        await settled()
        assert pair.beta.labels("plain") == ["0"]
        assert [m.label for m in messages(pair.beta.manager.registry.dead_letters)] == ["1", "2"]
        assert sorted(acknowledgments(pair.alpha)) == ["ACK_REACH_QUEUE"] + ["NACK_Q_EXCEED_QUOTA"] * 2

    pair.run(story)


def test_a_full_machine_refuses_nothing_and_the_messages_are_resent(pair: Pair) -> None:
    async def story() -> None:
        pair.beta.manager.changes.throttled = True
        await pair.alpha.send(PLAIN, [message("plain")])
        await pair.alpha.send(TX, [message("1"), message("2")], transactional=True)
        await settled(60)
        assert not pair.beta.labels("plain") and not pair.beta.labels("tx")
        pair.beta.manager.changes.throttled = False
        await settled(60)
        assert pair.beta.labels("plain") == ["plain"] and pair.beta.labels("tx") == ["1", "2"]

    pair.run(story)


def test_messages_of_a_sequence_that_arrive_together_are_accepted_at_once(pair: Pair) -> None:
    async def story() -> None:
        await pair.alpha.send(TX, [message(str(n)) for n in range(300)], transactional=True)
        await settled(3)
        assert pair.beta.labels("tx") == [str(n) for n in range(300)]
        (incoming,) = pair.beta.manager.registry.by_name["tx"].incoming.values()
        assert incoming.reject_count == 0 and incoming.sequence_number == 300
        assert outgoing(pair.alpha, TX).transfer_info.eod_resend_count == 0

    pair.run(story)


@pytest.mark.parametrize("loss", ["created again", "forgotten"])
def test_a_stream_continues_in_a_queue_that_does_not_know_its_beginning(pair: Pair, loss: str) -> None:
    async def story() -> None:
        labels = (str(number) for number in itertools.count())

        async def send() -> str:
            await pair.alpha.send(TX, [message(label := next(labels))], transactional=True)
            await settled(0.1)
            return label

        await send()
        sequence = pair.alpha.service._sequences.of(outgoing(pair.alpha, TX)).core
        while not sequence.last_ack:  # a part of the sequence is acknowledged
            await send()
        old = pair.beta.manager.registry.by_name["tx"]
        if loss == "forgotten":
            assert pair.beta.service.forget_sequence(old, pair.alpha.machine.identifier)
        else:
            pair.beta.manager.administration.delete_queue(old, SYSTEM)
            pair.beta.create("tx", transactional=True)
        later = [await send() for _ in range(20)]
        await settled(60)
        assert not outgoing(pair.alpha, TX).entries
        assert pair.beta.labels("tx")[-20:] == later

    pair.run(story)


def test_a_transaction_that_commits_first_is_sent_first_and_both_arrive(pair: Pair) -> None:
    async def story() -> None:
        manager = pair.alpha.manager
        descriptor = manager.handles.open_queue(names.parse_format_name(TX), Access.SEND, Share.DENY_NONE, SYSTEM)
        early, late = manager.transactions.create(b"1" * 16), manager.transactions.create(b"2" * 16)
        manager.sending.enqueue(descriptor, message("early, commits late"), early)
        manager.sending.enqueue(descriptor, message("late, commits early"), late)
        manager.transactions.commit(late)
        await settled(0.5)
        pair.network.break_one()
        manager.transactions.commit(early)
        await settled(60)
        assert pair.beta.labels("tx") == ["late, commits early", "early, commits late"]
        assert not outgoing(pair.alpha, TX).entries

    pair.run(story)


def test_eod_resend_sends_what_has_no_order_acknowledgment_again(pair: Pair) -> None:
    async def story() -> None:
        await pair.alpha.send(TX, [message("1")], transactional=True)
        await settled()
        with pytest.raises(MsmqError) as refused:
            pair.alpha.manager.outgoing.transport.resend(outgoing(pair.alpha, TX))
        assert refused.value.hresult == HResult.MQ_ERROR
        await pair.alpha.send(TX, [message("2")], transactional=True)
        await settled(0.3)
        pair.alpha.manager.outgoing.transport.resend(outgoing(pair.alpha, TX))
        await settled()
        assert pair.beta.labels("tx") == ["1", "2"]

    pair.run(story)


def test_state_next_hops_and_history_describe_a_queue(pair: Pair) -> None:
    async def story() -> None:
        unknown = "DIRECT=OS:nowhere\\private$\\q"
        await pair.alpha.send(unknown, [message()])
        await pair.alpha.send(OTHER, [message()])
        await settled(0.5)
        queue = outgoing(pair.alpha, OTHER)
        assert queue.state(online=True) is OutgoingState.CONNECTED
        assert queue.next_hops == ["IP=127.0.0.12"]
        assert [event.status for event in queue.connection_history] == [
            ConnectionStatus.IN_PROCESS, ConnectionStatus.ESTABLISH_PACKET_RECEIVED, ConnectionStatus.ESTABLISHED,
        ]  # fmt: skip
        assert outgoing(pair.alpha, unknown).state(online=True) is OutgoingState.NEED_VALIDATION
        pair.beta.crash()
        await settled(5)
        await pair.alpha.send(OTHER, [message()])
        await settled(10)
        assert queue.state(online=True) is OutgoingState.WAITING
        assert queue.connection_history[-1].status is ConnectionStatus.SOCKET_CONNECT_FAILURE

    pair.run(story)


def test_an_idle_session_closes_and_a_new_one_opens_when_needed(pair: Pair) -> None:
    async def story() -> None:
        await pair.alpha.send(PLAIN, [message("1")])
        await settled(1200)
        assert pair.alpha.service.sessions == 0 == pair.beta.service.sessions
        await pair.alpha.send(PLAIN, [message("2")])
        await settled()
        assert pair.beta.labels("plain") == ["1", "2"]

    pair.run(story)


def test_messages_behind_an_acknowledgment_that_was_not_acknowledged_are_sent_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that ends has unacknowledged packets of both kinds."""
    service = pair.alpha.service
    closed, behind = service.closed, 0

    def behind_one(connection: Any, event: Any) -> None:
        nonlocal behind
        behind += len(event.unacknowledged)
        unacknowledged = tuple(token for sent in event.unacknowledged for token in (None, sent))
        closed(connection, replace(event, unacknowledged=unacknowledged))

    async def story() -> None:
        await pair.alpha.send(PLAIN, [message("first")])
        await settled(5)
        monkeypatch.setattr(service, "closed", behind_one)
        await pair.alpha.send(PLAIN, [message(label) for label in "ab"])
        pair.network.break_one()
        await settled(60)
        assert pair.beta.labels("plain") == ["first", "a", "b"] and behind == 2

    pair.run(story)


def test_a_failure_amid_a_batch_loses_no_message(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """State recorded by the failed batch must not mark its messages as duplicates when they are resent."""
    judge, failures = Arrival.receive, iter([False] * 5 + [True])

    def receive(self: Arrival, *arguments: Any) -> Any:
        if next(failures, False):
            raise RuntimeError("a defect")
        return judge(self, *arguments)

    monkeypatch.setattr(Arrival, "receive", receive)

    async def story() -> None:
        await pair.alpha.send(PLAIN, [message(str(n)) for n in range(10)])
        await pair.alpha.send(TX, [message(str(n)) for n in range(10)], transactional=True)
        await settled(120)
        assert next(failures, None) is None, "the defect was met"
        assert pair.beta.labels("plain") == pair.beta.labels("tx") == [str(n) for n in range(10)]

    pair.run(story)


@pytest.mark.parametrize(
    ("target", "transactional"),
    [
        pytest.param(PLAIN, False, marks=pytest.mark.sources, id="plain"),  # C code does not call `Arrival.receive`
        pytest.param(TX, True, id="transactional"),
    ],
)
def test_a_message_that_makes_the_receiver_fail_is_refused_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, target: str, transactional: bool
) -> None:
    judge = Arrival.receive

    def receive(self: Arrival, packet: Any, *arguments: Any) -> Any:
        if packet.properties.label == "poison":
            raise RuntimeError("a defect")
        return judge(self, packet, *arguments)

    monkeypatch.setattr(Arrival, "receive", receive)
    labels = [str(n) for n in range(4)] + ["poison"] + [str(n) for n in range(4, 9)]

    async def story() -> None:
        await pair.alpha.send(
            target, [message(label, journaling_requested=int(Journal.DEADLETTER)) for label in labels],
            transactional=transactional,
        )  # fmt: skip
        await pair.alpha.send(OTHER, [message("of another queue")])
        await settled(120)
        assert pair.beta.labels("tx" if transactional else "plain") == [each for each in labels if each != "poison"]
        assert pair.beta.labels("other") == ["of another queue"]
        assert not any(queue.entries for queue in pair.alpha.manager.registry.outgoing.values())
        assert pair.beta.service._arrival.rejected == 1
        if transactional:  # its sender has the final acknowledgment
            dead = pair.alpha.manager.registry.transactional_dead_letters
            assert [dead.message(key).label for key in dead.available] == ["poison"]

    pair.run(story)
    assert [record.exc_text is not None for record in caplog.records if "caused an internal error" in record.message]


def test_destinations_of_dropped_queues_are_forgotten(pair: Pair) -> None:
    async def story() -> None:
        for number in range(20):
            name = f"DIRECT=OS:nowhere{number}\\private$\\q"
            await pair.alpha.send(name, [message(time_to_reach_queue=5)])
        await settled(30)
        for _ in range(4):
            pair.alpha.manager.expire()
            await settled(301)
        assert not pair.alpha.manager.registry.outgoing and not pair.alpha.service._destinations

    pair.run(story)


def test_many_queues_share_one_session(pair: Pair) -> None:
    async def story() -> None:
        for name in ("plain", "other"):
            await pair.alpha.send(f"DIRECT=OS:beta\\private$\\{name}", [message() for _ in range(200)])
        await settled()
        assert len(pair.beta.labels("plain")) == len(pair.beta.labels("other")) == 200
        assert pair.alpha.service.sessions == 1

    pair.run(story)


def test_t22_each_of_several_destinations_has_a_message_and_acknowledgments_of_its_own(pair: Pair) -> None:
    here, second = "DIRECT=OS:.\\private$\\plain", "DIRECT=TCP:127.0.0.12\\private$\\other"

    async def story() -> None:
        await pair.alpha.send(f"{PLAIN},{here},{second}", [asking("to all", body=b"b")])
        await settled()
        taken = [pair.alpha.take("plain"), pair.beta.take("plain"), pair.beta.take("other")]
        await settled()
        received = [one for one in taken if one is not None]
        assert [one.destination_queue_format_name for one in received] == [here, PLAIN, second]
        assert len({one.identifier for one in received}) == 3
        # Sent messages must not name this machine `.`, which would mean the other machine there.
        listed = [one.destination_multi_queue_format_name for one in received]
        away = f"{PLAIN},DIRECT=OS:ALPHA\\private$\\plain,{second}"
        assert listed == [f"{PLAIN},{here},{second}", away, away]
        told = messages(pair.alpha.manager.registry.by_name["admin"])
        for one in received:
            mine = [ack for ack in told if ack.correlation_identifier == one.identifier]
            assert sorted(MessageClass(ack.message_class).name for ack in mine) == ["ACK_REACH_QUEUE", "ACK_RECEIVE"]
            assert {ack.response_queue_format_name for ack in mine} == {one.destination_queue_format_name}
        assert len(told) == 6

    pair.run(story)


def test_several_destinations_in_a_transaction_get_each_message_once_and_in_order(pair: Pair) -> None:
    async def story() -> None:
        pair.alpha.create("tx2", transactional=True)
        missing = "DIRECT=OS:beta\\private$\\missing"
        name = f"{TX},DIRECT=OS:.\\private$\\tx2,{missing}"
        for number in range(3):
            sent = [asking(f"{number}.{k}", journaling_requested=int(Journal.DEADLETTER)) for k in range(2)]
            await pair.alpha.send(name, sent, transactional=True)
        await settled()
        labels = [f"{number}.{k}" for number in range(3) for k in range(2)]
        assert pair.alpha.labels("tx2") == pair.beta.labels("tx") == labels
        dead = messages(pair.alpha.manager.registry.transactional_dead_letters)
        assert [one.label for one in dead] == labels
        assert {one.destination_queue_format_name for one in dead} == {missing}

    pair.run(story)
