"""Sending: order, quotas, several queues, journals, dead letters, acknowledgments ([MS-MQDMPR] 3.1.7.1.27)."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest

from openmsmq.model.admission import packed_size
from openmsmq.model.constants import Access, Acknowledge, Journal, MessageClass, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.records import final_ack_definition
from openmsmq.store import Drop
from queueing.world import ALICE, MACHINE, World, refused, snapshot

ADMIN = "DIRECT=OS:.\\private$\\admin"
R, K, S = Access.RECEIVE, Access.PEEK, Access.SEND
CURRENT, NEXT = ReceiveAction.PEEK_CURRENT, ReceiveAction.PEEK_NEXT
OK, TIMEOUT = HResult.MQ_OK, HResult.MQ_ERROR_IO_TIMEOUT


# -- order and numbering ---------------------------------------------------------------------------------------


def test_messages_come_by_priority_and_then_by_arrival(world: World) -> None:
    for label, priority in [("a3", 3), ("b7", 7), ("c0", 0), ("d7", 7), ("e3", 3)]:
        world.send(label=label, priority=priority)
    reader = world.open()
    assert [world.read(reader).label for _ in range(5)] == ["b7", "d7", "a3", "e3", "c0"]
    assert world.read(reader).status == TIMEOUT


@pytest.mark.parametrize("checkpoint", [False, True])
def test_recoverable_messages_survive_a_restart_in_order_and_express_ones_do_not(
    world: World, checkpoint: bool
) -> None:
    for label, priority in [("a", 3), ("b", 7), ("c", 3)]:
        world.send(label=label, priority=priority, delivery_guarantee=1)
        world.send(label=label + "-express", priority=priority)
    world.restart(checkpoint)
    assert world.labels() == ["b", "a", "c"]
    queue = world.queue()
    for _ in range(3):
        world.read(world.open())
    assert queue.total_bytes == 0


def test_lookup_identifiers_rise_within_a_priority_and_are_never_used_again(world: World) -> None:
    sequences = []
    for guarantee in (0, 1, 0):
        for _ in range(3):
            world.send(delivery_guarantee=guarantee)
            outcome = world.read(world.open())
            assert outcome.message.lookup_identifier >> 56 == 7 - 3
            sequences.append(outcome.message.sequence)
        world.restart()
    assert sequences == sorted(set(sequences))


def test_a_failed_reservation_assigns_no_number(world: World) -> None:
    world.store.full = True
    for _ in range(2):
        with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
            world.send()
    world.store.full = False
    world.send()
    last = world.read(world.open()).message.sequence
    world.restart()
    world.send()
    assert world.read(world.open()).message.sequence > last


def test_a_message_gets_its_identity_when_it_is_sent(world: World) -> None:
    identifier = world.send(label="x")
    message = world.read(world.open()).message
    assert message.identifier == identifier
    assert identifier[:16] == message.source_machine_identifier == MACHINE.identifier
    assert message.sent_time == message.arrival_time == world.now // 1000
    assert message.destination_queue_format_name == "DIRECT=OS:.\\private$\\q"


def test_a_message_survives_the_store_with_every_attribute(world: World) -> None:
    values = {
        "body": b"body", "body_type": 8, "application_tag": 5, "correlation_identifier": b"c" * 20, "extension": b"ext",
        "response_queue_format_name": "DIRECT=OS:r\\q", "time_to_be_received": 1000, "time_to_reach_queue": 50,
        "tracing_requested": 1, "sender_identifier": b"sid", "sender_identifier_type": 1, "signature": b"s",
        "sender_certificate": b"c", "symmetric_key": b"k", "authentication_provider_name": "né\ud800",
        "connector_type_identifier": b"g" * 16, "hash_algorithm": 3, "encryption_algorithm": 4, "message_class": 1,
        "authentication_provider_type": 6, "privacy_level": 1,
    }  # fmt: skip
    world.send(label="express", **values)
    world.send(label="recoverable", delivery_guarantee=1, **values)
    one, other = (world.read(world.open()).message for _ in range(2))
    for name, value in values.items():
        assert getattr(one, name) == getattr(other, name) == value


# -- refusals --------------------------------------------------------------------------------------------------


def test_only_a_queue_opened_for_sending_takes_messages(world: World) -> None:
    with refused(HResult.MQ_ERROR_ACCESS_DENIED):
        world.manager.sending.enqueue(world.open(), Message())
    with refused(HResult.MQ_ERROR_ACCESS_DENIED):
        world.manager.handles.open_cursor(world.open(access=S))
    for access in (S, K):
        with refused(HResult.MQ_ERROR_ACCESS_DENIED):
            world.manager.reading.purge(world.open(access=access))


def test_transactional_queues_take_transactional_messages_only(world: World) -> None:
    world.create("t", TRANSACTION=1)
    with refused(HResult.MQ_ERROR_TRANSACTION_USAGE):
        world.send("t")
    with refused(HResult.MQ_ERROR_TRANSACTION_USAGE):
        world.send("q", transaction=world.begin())


@pytest.mark.parametrize(
    ("queue_level", "message_level", "taken"),
    [(0, 0, True), (0, 1, False), (1, 0, True), (1, 1, True), (2, 0, False), (2, 1, True)],
)
def test_the_privacy_level_of_a_queue(world: World, queue_level: int, message_level: int, taken: bool) -> None:
    world.create("p", PRIV_LEVEL=queue_level)
    if taken:
        world.send("p", privacy_level=message_level)
    else:
        with refused(HResult.MQ_ERROR_ILLEGAL_OPERATION):
            world.send("p", privacy_level=message_level)


def test_a_queue_that_demands_authentication_takes_only_what_is_authentic(world: World) -> None:
    world.create("signed", AUTHENTICATE=1)
    for unproved in ({}, {"signature": b"s", "sender_identifier_type": 1}, {"authentication_level": 3}):
        with refused(HResult.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED):
            world.send("signed", **unproved)
    world.send("signed", "taken", authentication_level=3, sender_identifier_type=1)
    assert world.labels("signed") == ["taken"]


def test_a_message_of_more_than_4_megabytes_is_refused(world: World) -> None:
    overhead = packed_size(Message(destination_queue_format_name="DIRECT=OS:.\\private$\\q"))
    world.send(body=bytes((4 << 20) - overhead))
    with refused(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES):
        world.send(body=bytes((4 << 20) - overhead + 1))


def test_a_queue_takes_messages_up_to_its_quota_and_again_when_they_are_gone(world: World) -> None:
    world.create("small", QUOTA=2)
    world.send("small", body=bytes(1000))
    with refused(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES):
        world.send("small", body=bytes(1000))
    world.read(world.open("small"))
    world.send("small", body=bytes(1000))


def test_a_quota_of_zero_takes_nothing(world: World) -> None:
    world.create("none", QUOTA=0)
    with refused(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES):
        world.send("none")


def test_the_quota_of_the_machine_counts_all_queues() -> None:
    world = World(replace(MACHINE, quota=3))
    world.create("a")
    world.create("b")
    world.send("a", body=bytes(1000))
    world.send("b", body=bytes(1000))
    with refused(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES):
        world.send("b", body=bytes(1000))


def test_the_quota_of_the_machine_is_checked_without_asking_each_queue() -> None:
    """With 99,000 queues, each send would take 10 ms."""

    class Asked(dict[int, Queue]):
        def values(self) -> NoReturn:
            raise AssertionError("each queue is asked")

    world = World(replace(MACHINE, quota=3))
    world.create("a")
    world.create("b")
    world.send("a", body=bytes(1000))
    world.registry.queues = Asked(world.registry.queues)
    world.send("b", body=bytes(1000))
    with refused(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES):
        world.send("b", body=bytes(1000))
    world.manager.administration.delete_queue(world.queue("a"), SYSTEM)
    world.send("b", body=bytes(1000))


def test_a_journal_beyond_its_quota_loses_copies_and_not_messages(world: World) -> None:
    queue = world.create("j", JOURNAL=1, JOURNAL_QUOTA=1)
    for number in range(2):
        world.send("j", label=str(number), body=bytes(500))
        assert world.read(world.open("j")).label == str(number)
    assert queue.journal is not None
    assert world.labels(queue.journal) == ["0"]
    assert world.manager.changes.discarded == 1


@pytest.mark.parametrize("guarantee", [0, 1])
def test_a_full_disk_refuses_recoverable_messages_and_changes_nothing(world: World, guarantee: int) -> None:
    world.create("admin")
    world.send(label="kept", delivery_guarantee=1)
    before = snapshot(world)
    world.store.full = True
    if guarantee:
        with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
            world.send(delivery_guarantee=1, journaling_requested=Journal.JOURNAL)
        assert world.read(world.open()).status == HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED
        with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
            world.manager.reading.purge(world.open())
        assert snapshot(world) == before
    else:
        world.send(label="express")
        assert world.labels() == ["kept", "express"]
    world.store.full = False
    assert world.read(world.open()).label == "kept"


# -- several queues --------------------------------------------------------------------------------------------

BOTH = "DIRECT=OS:.\\private$\\q,DIRECT=OS:.\\private$\\r,DIRECT=OS:.\\PRIVATE$\\q"


def test_a_multiple_element_name_sends_one_copy_to_each_queue(world: World) -> None:
    world.create("r")
    descriptor = world.open(BOTH, S)
    assert len(descriptor.parts) == 2
    world.manager.sending.enqueue(descriptor, Message(label="m"))
    assert (world.labels("q"), world.labels("r")) == (["m"], ["m"])
    world.manager.handles.close_queue(descriptor)
    assert not world.manager.handles.descriptors and not world.queue().openers


def test_each_copy_has_an_identifier_and_a_destination_of_its_own_and_names_all(world: World) -> None:
    """[MS-MQDMPR] 3.1.7.1.27."""
    world.create("r")
    descriptor = world.open(BOTH, S)
    world.manager.sending.enqueue(descriptor, Message(label="m"))
    (one,), (other,) = world.messages(world.queue()), world.messages(world.queue("r"))
    assert one.identifier != other.identifier
    assert [one.destination_queue_format_name, other.destination_queue_format_name] == BOTH.split(",")[:2]
    assert {one.destination_multi_queue_format_name, other.destination_multi_queue_format_name} == {
        BOTH.rpartition(",")[0]
    }, "a double is one queue"
    world.send(one.destination_queue_format_name, destination_multi_queue_format_name="left from another journey")
    assert not world.messages(world.queue())[-1].destination_multi_queue_format_name


def test_a_send_to_several_queues_reaches_all_or_none(world: World) -> None:
    world.create("r", QUOTA=0)
    with refused(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES):
        world.manager.sending.enqueue(world.open(BOTH, S), Message(label="m"))
    assert world.labels("q") == []
    world.create("t", TRANSACTION=1)
    transaction = world.begin()
    names = "DIRECT=OS:.\\private$\\t,DIRECT=OS:.\\private$\\q"
    with refused(HResult.MQ_ERROR_TRANSACTION_USAGE):
        world.manager.sending.enqueue(world.open(names, S), Message(label="m"), transaction)
    world.manager.transactions.commit(transaction)
    assert world.labels("t") == []


# -- journals, dead letters, acknowledgments -------------------------------------------------------------------


def test_a_received_message_is_copied_to_the_journal_of_a_queue_that_keeps_one(world: World) -> None:
    queue = world.create("j", JOURNAL=1)
    world.send("j", label="received", delivery_guarantee=1)
    world.send("j", label="purged")
    world.send("j", label="peeked")
    world.read(world.open("j"))
    world.read(world.open("j"), CURRENT)
    world.manager.reading.purge(world.open("j"))
    assert queue.journal is not None and world.labels(queue.journal) == ["received"]
    world.restart()
    assert world.labels(world.registry.queues[queue.journal.number]) == ["received"]
    assert world.read(world.open("DIRECT=OS:.\\private$\\j;JOURNAL")).label == "received"


def test_positive_journaling_copies_to_the_journal_of_the_machine(world: World) -> None:
    world.send(label="copied", journaling_requested=Journal.JOURNAL)
    world.send(label="not")
    assert world.labels(world.registry.system_journal) == ["copied"]
    assert world.labels() == ["copied", "not"]


@pytest.mark.parametrize("negative", [0, Journal.DEADLETTER])
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("end", ["receive", "expire", "purge", "delete"])
def test_messages_go_to_the_right_dead_letter_queue(world: World, negative: int, transactional: bool, end: str) -> None:
    world.create("d", TRANSACTION=int(transactional))
    transaction = world.begin() if transactional else None
    world.send("d", "m", transaction, journaling_requested=negative, time_to_be_received=10)
    if transaction is not None:
        world.manager.transactions.commit(transaction)
    if end == "receive":
        world.read(world.open("d"))
    elif end == "expire":
        world.advance(10_000)
    elif end == "purge":
        world.manager.reading.purge(world.open("d"))
    else:
        world.manager.administration.delete_queue(world.queue("d"), ALICE)
    dead, dead_transactional = (
        world.labels(world.registry.dead_letters),
        world.labels(world.registry.transactional_dead_letters),
    )
    lost = negative and end != "receive"
    assert dead == (["m"] if lost and not transactional and end == "expire" else [])
    assert dead_transactional == (["m"] if lost and transactional else [])


ENDS = [
    ("send", Acknowledge.POS_ARRIVAL, MessageClass.ACK_REACH_QUEUE),
    ("receive", Acknowledge.POS_RECEIVE, MessageClass.ACK_RECEIVE),
    ("expire", Acknowledge.NEG_RECEIVE, MessageClass.NACK_RECEIVE_TIMEOUT),
    ("purge", Acknowledge.NEG_RECEIVE, MessageClass.NACK_Q_PURGED),
    ("delete", Acknowledge.NEG_RECEIVE, MessageClass.NACK_Q_DELETED),
]


@pytest.mark.parametrize(("end", "asked", "expected"), ENDS)
@pytest.mark.parametrize("wanted", [True, False])
def test_each_outcome_of_a_message_is_acknowledged_if_requested(
    world: World, end: str, asked: Acknowledge, expected: MessageClass, wanted: bool
) -> None:
    world.create("admin")
    identifier = world.send(
        label="m", body=b"the body", body_type=8, time_to_be_received=10, delivery_guarantee=1,
        acknowledgements_requested=asked if wanted else 15 & ~asked & ~(1 if end != "send" else 0),
        administration_queue_format_name=ADMIN,
    )  # fmt: skip
    if end == "receive":
        world.read(world.open())
    elif end == "expire":
        world.advance(10_000)
    elif end == "purge":
        world.manager.reading.purge(world.open())
    elif end == "delete":
        world.manager.administration.delete_queue(world.queue(), ALICE)
    acknowledgments = world.messages(world.queue("admin"))
    if not wanted:
        assert acknowledgments == []
        return
    (acknowledgment,) = acknowledgments
    assert acknowledgment.message_class == expected
    assert (acknowledgment.correlation_identifier, acknowledgment.label) == (identifier, "m")
    assert acknowledgment.delivery_guarantee == 1
    negative = asked is Acknowledge.NEG_RECEIVE
    assert acknowledgment.body == (b"the body" if negative else b"")
    assert acknowledgment.response_queue_format_name == "DIRECT=OS:.\\private$\\q"


@pytest.mark.parametrize("admin", ["", "DIRECT=OS:elsewhere\\private$\\a", "nonsense", "DIRECT=OS:.\\private$\\missing",
                                   "DIRECT=OS:.\\SYSTEM$;DEADLETTER", "DIRECT=OS:.\\private$\\t"])  # fmt: skip
def test_an_acknowledgment_that_cannot_be_delivered_is_dropped(world: World, admin: str) -> None:
    world.create("t", TRANSACTION=1)
    world.send(label="m", acknowledgements_requested=15, administration_queue_format_name=admin)
    assert world.read(world.open()).label == "m"
    assert world.labels("t") == [] and world.labels(world.registry.dead_letters) == []


@pytest.mark.parametrize("end", ["receive", "purge"])
def test_copies_in_journals_and_dead_letter_queues_are_not_acknowledged_or_copied_again(world: World, end: str) -> None:
    world.create("admin")
    world.create("j", JOURNAL=1)
    values = {"acknowledgements_requested": 10, "administration_queue_format_name": ADMIN, "journaling_requested": 1}
    world.send("j", "received", **values)
    world.read(world.open("j"))
    world.send("j", "expired", time_to_be_received=10, **values)
    world.advance(10_000)
    assert len(world.queue("admin")) == 2
    for name in ("DIRECT=OS:.\\private$\\j;JOURNAL", "DIRECT=OS:.\\SYSTEM$;DEADLETTER"):
        reader = world.open(name)
        if end == "receive":
            assert world.read(reader).status == OK
        else:
            assert world.manager.reading.purge(reader) == 1
        assert reader.queue is not None and len(reader.queue) == 0
    assert len(world.queue("admin")) == 2


def test_copies_in_journals_do_not_expire(world: World) -> None:
    queue = world.create("j", JOURNAL=1)
    world.send("j", "m", time_to_be_received=10, delivery_guarantee=1, journaling_requested=2)
    world.read(world.open("j"))
    world.restart()
    world.advance(1 << 30)
    assert world.labels(world.registry.queues[queue.number | 1 << 31]) == ["m"]
    assert world.labels(world.registry.system_journal) == ["m"]


def test_a_restart_finds_the_notes_of_lost_messages_in_few_steps() -> None:
    """Notes are final acknowledgments and routes. With 10,000 of them in 10,000 queues, a step for each pair took
    minutes."""
    steps = 0

    class Entries(dict[int, int]):
        def __contains__(self, key: object) -> bool:
            nonlocal steps
            steps += 1
            return super().__contains__(key)

    world = World()
    for number in range(100):
        entries = Entries(dict.fromkeys(range(10 * number, 10 * number + 10), 0))
        world.create(f"q{number}").entries = entries  # type: ignore[assignment]
    notes = [final_ack_definition(key) for key in range(1100)]
    world.store.definitions.update(dict.fromkeys(notes, b""))
    orphans = world.manager._recover_definitions()
    assert orphans == [Drop(name) for name in notes[1000:]]
    assert steps <= 1000
