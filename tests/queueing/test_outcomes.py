"""Outcomes of messages with full quotas, full disks, small buffers and restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from openmsmq.model import names
from openmsmq.model.constants import Access, MessageClass, ReceiveAction, SecurityInformation, Share
from openmsmq.model.default_descriptors import default_machine_security
from openmsmq.model.errors import HResult, InsufficientResources
from openmsmq.model.security import SecurityDescriptor
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.machine import MachineLimits
from openmsmq.queueing.registry import FIRST_QUEUE_NUMBER
from queueing.pipeline import stage
from queueing.world import ALICE, BOB, MACHINE, World, refused

JOURNAL, DEADLETTER = 2, 1


@pytest.fixture
def world() -> World:
    world = World()
    world.create("q")
    world.create("x", TRANSACTION=1)
    return world


def small_machine(kilobytes: int) -> World:
    world = World(replace(MACHINE, quota=kilobytes))
    world.create("q")
    world.create("j", JOURNAL=1)
    world.create("x", TRANSACTION=1)
    return world


def fill_up(world: World, queue: str = "q", **values: Any) -> int:
    """Send until the machine is full. Return the number of accepted messages."""
    count = 0
    while True:
        try:
            transaction = world.begin(count + 1) if queue == "x" else None
            world.send(queue, str(count), transaction, delivery_guarantee=1, body=bytes(500), **values)
        except InsufficientResources:
            if transaction is not None:
                world.manager.transactions.abort(transaction)
            return count
        if transaction is not None:
            world.manager.transactions.commit(transaction)
        count += 1


def test_dead_letters_are_stored_on_a_full_machine(world: World) -> None:
    full = small_machine(10)
    count = fill_up(full, journaling_requested=DEADLETTER, time_to_be_received=5)
    full.advance(10_000)
    assert full.labels() == []
    assert len(full.labels(full.registry.dead_letters)) == count > 5
    assert full.manager.changes.discarded == 0


def test_transactional_dead_letters_of_a_purge_are_stored_on_a_full_machine() -> None:
    full = small_machine(10)
    count = fill_up(full, "x", journaling_requested=DEADLETTER)
    full.manager.reading.purge(full.open("x"))
    assert len(full.labels(full.registry.transactional_dead_letters)) == count > 5


def test_journal_copies_of_received_messages_are_stored_on_a_full_machine() -> None:
    full = small_machine(10)
    count = fill_up(full, "j")
    reader = full.open("j")
    for number in range(count):
        assert full.read(reader).label == str(number)
    assert len(full.labels("j")) == 0 and len(full.queue("j").journal.entries) == count  # type: ignore[union-attr]


def test_freed_space_is_used_for_copies_only(world: World) -> None:
    full = small_machine(10)
    fill_up(full)
    with refused(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES):
        full.send("j", body=bytes(500))


def test_peek_next_moves_the_cursor_whether_or_not_the_buffer_was_large_enough(world: World) -> None:
    for label in "abc":
        world.send("q", label)
    descriptor = world.open("q")
    cursor = world.manager.handles.open_cursor(descriptor)
    small = int(HResult.MQ_ERROR_BUFFER_OVERFLOW)
    first = world.read(descriptor, ReceiveAction.PEEK_CURRENT, cursor=cursor, accept=small)
    assert first.status == small
    assert world.read(descriptor, ReceiveAction.PEEK_CURRENT, cursor=cursor).label == "a"
    assert world.read(descriptor, ReceiveAction.PEEK_NEXT, cursor=cursor, accept=small).status == small
    assert world.read(descriptor, ReceiveAction.PEEK_CURRENT, cursor=cursor).label == "b"
    assert world.read(descriptor, ReceiveAction.PEEK_NEXT, cursor=cursor).label == "c"


def test_transactions_before_and_after_a_restart_have_different_identifiers(world: World) -> None:
    for _ in range(3):
        transaction = world.begin()
        world.send("x", "a", transaction)
        world.manager.transactions.commit(transaction)
        world.restart()
    identifiers = {message.transaction_identifier for message in world.messages(world.queue("x"))}
    assert len(identifiers) == 3


def test_a_negative_acknowledgment_carries_the_body_only_of_a_message_that_is_not_private(world: World) -> None:
    world.create("admin")
    for level in (0, 1):
        world.send(
            "q", "a", body=b"body", body_type=8, privacy_level=level, time_to_be_received=1,
            acknowledgements_requested=0x0E, administration_queue_format_name="DIRECT=OS:.\\private$\\admin",
        )  # fmt: skip
    world.advance(5000)
    plain, private = world.messages(world.queue("admin"))
    assert plain.message_class == private.message_class == MessageClass.NACK_RECEIVE_TIMEOUT
    assert (plain.body, plain.body_type) == (b"body", 8)
    assert (private.body, private.body_type) == (b"", 0)


def test_a_change_of_no_part_of_a_descriptor_changes_nothing(world: World) -> None:
    """[MS-MQMQ] 2.2.3: SECURITY_INFORMATION has zero or more flags."""
    before = world.store.end
    world.manager.administration.set_security(world.queue(), 0, SecurityDescriptor(owner=BOB.sid).pack(), BOB)
    assert world.store.end == before


@pytest.mark.parametrize("information", [0x80000000, 0x10])
def test_a_change_of_an_unknown_part_of_a_descriptor_is_refused(world: World, information: int) -> None:
    before = world.store.end
    with refused(HResult.MQ_ERROR_INVALID_PARAMETER):
        world.manager.administration.set_security(world.queue(), information, SecurityDescriptor().pack(), BOB)
    assert world.store.end == before


def test_an_owner_is_not_erased_by_a_descriptor_without_one(world: World) -> None:
    with refused(HResult.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR):
        world.manager.administration.set_security(
            world.queue(), SecurityInformation.OWNER, SecurityDescriptor().pack(), ALICE
        )
    assert SecurityDescriptor.parse(world.queue().properties.security).owner == ALICE.sid


@pytest.mark.parametrize("name", [
    "DIRECT=TCP:nonsense\\private$\\q", "DIRECT=TCP:999.1.1.1\\private$\\q", "DIRECT=TCP:1.2.3\\private$\\q",
    "DIRECT=OS:private$\\orders", "DIRECT=OS:system$\\orders",
])  # fmt: skip
def test_an_invalid_host_is_refused_when_the_queue_is_opened(world: World, name: str) -> None:
    with refused(HResult.MQ_ERROR_ILLEGAL_FORMATNAME):
        world.open(name, Access.SEND)
    assert not world.registry.outgoing


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "0:0:0:0:0:0:0:1", "[::ffff:127.0.0.1]"])
def test_every_spelling_of_a_local_address_means_this_machine(world: World, host: str) -> None:
    assert world.open(f"DIRECT=TCP:{host}\\private$\\q", Access.SEND).queue is world.queue()


def test_an_address_of_this_machine_is_local_however_it_is_written() -> None:
    world = World(replace(MACHINE, addresses=frozenset(["2001:db8::7", "192.0.2.1"])))
    world.create("q")
    for host in ("2001:db8::7", "[2001:DB8:0::7]", "192.0.2.1", "::ffff:192.0.2.1"):
        assert world.open(f"DIRECT=TCP:{host}\\private$\\q", Access.SEND).queue is world.queue()
    assert world.open("DIRECT=TCP:192.0.2.2\\private$\\q", Access.SEND).queue is not world.queue()


@pytest.mark.parametrize(
    ("listen", "host", "local"),
    [
        ("127.0.0.1", "[::1]", True), ("127.0.0.1", "0.0.0.0", True), ("127.0.0.1", "::", True),
        ("127.0.0.1", "127.0.0.2", False), ("::1", "127.0.0.1", True), ("127.0.0.2", "127.0.0.1", False),
        ("127.0.0.2", "127.0.0.2", True), ("127.0.0.2", "HERE.", True), ("127.0.0.2", "here.example.com.", True),
        ("127.0.0.2", "localhost.", True), ("127.0.0.2", "there.", False),
    ],
)  # fmt: skip
def test_names_of_this_machine_with_other_queue_managers_on_loopback(listen: str, host: str, local: bool) -> None:
    machine = replace(MACHINE, addresses=frozenset([listen]), own_loopback=True)
    assert machine.is_local(host) is local


def test_a_prepare_that_fails_on_a_full_disk_leaves_no_message_marked_as_the_last(world: World) -> None:
    transaction = world.begin()
    world.send("x", "a", transaction)
    world.store.full = True
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        world.manager.transactions.prepare(transaction)
    world.store.full = False
    world.send("x", "b", transaction)
    world.manager.transactions.prepare(transaction)
    world.restart()
    world.decide(world.manager.transactions.find(transaction.identifier))
    assert [(m.label, m.first_in_transaction, m.last_in_transaction) for m in world.messages(world.queue("x"))] == [
        ("a", True, False), ("b", False, True),
    ]  # fmt: skip


def test_a_prepared_transaction_takes_no_rejection(world: World) -> None:
    sender = world.begin(7)
    world.send("x", "a", sender)
    world.manager.transactions.commit(sender)
    transaction, descriptor = world.begin(), world.open("x")
    key = world.read(descriptor, transaction=transaction).message.lookup_identifier
    world.manager.transactions.prepare(transaction)
    with refused(HResult.MQ_ERROR_TRANSACTION_SEQUENCE):
        world.manager.subqueues.reject(descriptor, key)


def test_staged_messages_count_for_the_quotas_of_batched_sends() -> None:
    world = World()
    world.create("q", QUOTA=2)
    made = stage(world, 0, "ab")
    taken = fill_up(world)
    world.manager.staged_writes.finalize("s", 0, [made.handle], ALICE)
    assert taken >= 1 and world.queue().charged_bytes <= 2048


def test_queue_numbers_keep_clear_of_those_that_name_queues_of_the_queue_manager() -> None:
    world = World()
    numbers = [world.create(name).number for name in "abcde"]
    assert min(numbers) == FIRST_QUEUE_NUMBER > 4


class NotIterable(dict[int, Any]):
    def __iter__(self) -> Any:
        raise AssertionError("all open queues were listed")

    values = items = keys = __iter__


def test_opening_a_queue_does_not_scan_its_open_handles(world: World) -> None:
    world.manager.handles.descriptors = NotIterable()
    opened = [world.open("q", access) for access in (Access.RECEIVE, Access.PEEK, Access.SEND) for _ in range(3)]
    with refused(HResult.MQ_ERROR_SHARING_VIOLATION):
        world.open("q", Access.PEEK, Share.DENY_RECEIVE_SHARE)
    for descriptor in opened:
        world.manager.handles.close_queue(descriptor)
    alone = world.open("q", Access.RECEIVE, Share.DENY_RECEIVE_SHARE)
    for access in (Access.RECEIVE,):
        with refused(HResult.MQ_ERROR_SHARING_VIOLATION):
            world.open("q", access)
    world.open("q", Access.PEEK)
    world.manager.handles.close_queue(alone)
    world.open("q", Access.RECEIVE)


def test_queues_have_a_limit_for_each_owner_and_in_all() -> None:
    world = World(replace(MACHINE, limits=MachineLimits(max_queues=5, max_queues_per_owner=2, max_outgoing_queues=1)))
    for name in "ab":
        world.create(name)
    with pytest.raises(Exception, match="max_queues_per_owner"):
        world.create("c")
    for name in "cd":
        world.create(name, BOB)
    world.manager.administration.delete_queue(world.queue("a"), ALICE)
    world.create("e")
    world.create("f", ALICE.as_administrator())
    with pytest.raises(Exception, match="max_queues"):
        world.create("g", ALICE.as_administrator())
    world.open("DIRECT=OS:there\\private$\\q", Access.SEND)
    with pytest.raises(Exception, match="max_outgoing_queues"):
        world.open("DIRECT=OS:elsewhere\\private$\\q", Access.SEND)


def test_a_message_with_a_deadline_that_outlives_the_machine_maximum_is_given_that(world: World) -> None:
    there = "DIRECT=OS:there\\private$\\q"
    world.send(there, time_to_reach_queue=10)
    world.send(there)
    name = names.parse_format_name(there)
    outgoing = world.registry.outgoing_queue(name)
    assert outgoing is not None
    found = [m.time_to_reach_queue for m in world.messages(outgoing)]
    assert found == [10, MACHINE.default_time_to_reach_queue]


@pytest.mark.parametrize("how", ["express", "stored", "staged", "outgoing"])
def test_a_lifetime_counts_from_the_millisecond_of_sending_also_after_a_restart(world: World, how: str) -> None:
    world.now += 900
    there = "DIRECT=OS:there\\private$\\q"
    values: dict[str, Any] = {"time_to_be_received": 1, "delivery_guarantee": int(how != "express")}
    if how == "staged":
        world.manager.staged_writes.finalize("s", 0, [stage(world, 0, "a", **values).handle], ALICE)
    else:
        world.send(there if how == "outgoing" else "q", "a", **values)
    if how != "express":
        world.restart()
    name = names.parse_format_name(there)
    queue = world.registry.outgoing_queue(name) if how == "outgoing" else world.queue()
    assert queue is not None
    world.advance(999)
    assert len(queue) == 1
    world.advance(1)
    assert len(queue) == 0


@pytest.mark.parametrize("suffix", ["JOURNAL", "DEADLETTER", "DEADXACT"])
def test_system_queues_are_for_administrators_and_whoever_is_granted(suffix: str) -> None:
    """System queues hold messages of queues that a caller may not read."""
    world = World(replace(MACHINE, security=default_machine_security([BOB.sid])))
    name = f"MACHINE={UUID(bytes_le=MACHINE.identifier)};{suffix}"
    for access in (Access.PEEK, Access.RECEIVE):
        for caller in (ALICE, Caller.anonymous()):
            with refused(HResult.MQ_ERROR_ACCESS_DENIED):
                world.open(name, access, caller=caller)
        for caller in (BOB, ALICE.as_administrator()):
            world.open(name, access, caller=caller)
