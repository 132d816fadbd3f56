"""Outgoing queues: messages for other machines ([MS-MQDMPR] 3.1.1.3, 3.1.7.1.5, [MS-MQQB] 3.1.7.1.2)."""

from __future__ import annotations

import bisect
from dataclasses import replace
from uuid import UUID

import pytest

from openmsmq.conversion.packets import user_message_of
from openmsmq.model import names, security
from openmsmq.model.constants import INFINITE, MAXIMUM_MESSAGE_SIZE, Access, MessageClass, ReceiveAction, Share
from openmsmq.model.errors import HResult, InsufficientResources, MsmqError
from openmsmq.model.message import Message
from openmsmq.model.names import PublicFormatName, Suffix
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.changes import UNUSED_PERIOD
from openmsmq.queueing.locations import QueueLocation
from openmsmq.queueing.machine import MachineLimits
from openmsmq.queueing.outgoing_queues import OutgoingQueue, OutgoingState
from openmsmq.store import DamagedRecord
from queueing.pipeline import draft, finalize, source
from queueing.world import ALICE, MACHINE, World, next_to_transfer, refused, snapshot

THERE = "DIRECT=OS:there\\private$\\q"
FAR = "DIRECT=TCP:192.0.2.7\\private$\\q"
ELSEWHERE = "PRIVATE=00000000-0000-0000-0000-0000000000aa\\00000007"
ADMIN = "DIRECT=OS:.\\private$\\admin"
FOUR_DAYS = 345600
NEG_ARRIVAL, NEG_RECEIVE, DEADLETTER, JOURNAL = 4, 8, 1, 2


@pytest.fixture
def world() -> World:
    world = World()
    world.create("q")
    world.create("admin")
    return world


def outgoing(world: World, name: str = THERE) -> OutgoingQueue:
    queue = world.registry.outgoing_queue(names.parse_format_name(name))
    assert queue is not None, name
    return queue


# -- making and dropping ---------------------------------------------------------------------------------------


def test_each_format_name_has_its_own_queue_without_regard_to_case(world: World) -> None:
    for name in (THERE, THERE.lower(), FAR, ELSEWHERE):
        world.send(name, label=name)
    assert [str(queue.destination) for queue in world.registry.outgoing.values()] == [THERE, FAR, ELSEWHERE]
    assert world.labels(outgoing(world)) == [THERE, THERE.lower()]
    assert world.labels("q") == []


def test_recoverable_messages_and_their_queue_survive_a_restart_and_express_ones_do_not(world: World) -> None:
    for checkpoint in (False, True):
        world.send(THERE, label=f"kept{checkpoint}", delivery_guarantee=1, priority=7)
        world.send(FAR, label="express")
        number = outgoing(world).number
        world.restart(checkpoint)
        assert outgoing(world).number == number
    assert world.labels(outgoing(world)) == ["keptFalse", "keptTrue"]
    assert [m.priority for m in world.messages(outgoing(world))] == [7, 7]
    assert len(outgoing(world, FAR)) == 0
    assert outgoing(world).total_bytes > 0


def test_numbers_of_queues_are_never_used_again(world: World) -> None:
    world.send(THERE, delivery_guarantee=1)
    numbers = [outgoing(world).number, world.create("b").number]
    world.manager.reading.purge(world.open(THERE, Access.RECEIVE_ADMIN, caller=SYSTEM))
    world.manager.handles.close_queue(next(iter(world.manager.handles.descriptors.values())))
    world.advance(UNUSED_PERIOD)
    world.advance(UNUSED_PERIOD)
    assert not world.registry.outgoing
    world.restart()
    assert not world.registry.outgoing
    world.send(THERE)
    numbers += [outgoing(world).number, world.create("c").number]
    assert len(set(numbers)) == 4 and numbers == sorted(numbers)


def test_an_outgoing_queue_is_deleted_after_two_checks_find_it_unused(world: World) -> None:
    descriptor = world.open(THERE, Access.SEND)
    assert world.manager.next_expiry() == UNUSED_PERIOD
    for _ in range(3):
        world.advance(UNUSED_PERIOD)
    assert outgoing(world).is_active
    world.manager.handles.close_queue(descriptor)
    world.manager.handles.close_queue(world.open(THERE, Access.SEND))  # used again
    world.advance(UNUSED_PERIOD)
    assert not outgoing(world).is_active
    world.advance(UNUSED_PERIOD)
    assert not world.registry.outgoing
    assert world.manager.next_expiry() is None


def test_a_queue_with_messages_or_on_hold_stays(world: World) -> None:
    world.send(THERE)
    world.manager.handles.close_queue(world.open(FAR, Access.SEND))
    world.manager.outgoing.pause(outgoing(world, FAR))
    for _ in range(3):
        world.advance(UNUSED_PERIOD)
    assert len(world.registry.outgoing) == 2


def test_a_full_disk_refuses_the_open_and_keeps_an_unused_queue(world: World) -> None:
    world.manager.handles.close_queue(world.open(FAR, Access.SEND))
    world.store.full = True
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        world.open(THERE, Access.SEND)
    for _ in range(3):
        world.advance(UNUSED_PERIOD)
    assert list(world.registry.outgoing) == [FAR.lower()]
    world.store.full = False
    world.advance(UNUSED_PERIOD)
    assert not world.registry.outgoing


def test_the_number_of_outgoing_queues_is_bounded() -> None:
    world = World(replace(MACHINE, limits=MachineLimits(max_outgoing_queues=1)))
    world.open(THERE, Access.SEND)
    world.open(THERE, Access.SEND)
    with refused(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES):
        world.open(FAR, Access.SEND)


# -- sending ---------------------------------------------------------------------------------------------------


def test_a_multiple_element_name_mixes_machines(world: World) -> None:
    world.send(f"{THERE},DIRECT=OS:.\\private$\\q", label="both")
    assert world.labels(outgoing(world)) == world.labels("q") == ["both"]
    (away,), (here,) = world.messages(outgoing(world)), world.messages(world.queue())
    assert (away.time_to_reach_queue, here.time_to_reach_queue) == (FOUR_DAYS, INFINITE)
    assert (away.destination_queue_format_name, here.destination_queue_format_name) == (
        THERE, "DIRECT=OS:.\\private$\\q",
    )  # fmt: skip


def test_a_transaction_sends_here_and_there_or_nowhere(world: World) -> None:
    world.create("t", TRANSACTION=1)
    for number, end in enumerate((world.manager.transactions.abort, world.manager.transactions.commit)):
        transaction = world.begin(number + 1)
        for name in (THERE, "t", THERE):
            world.send(name, label=name, transaction=transaction)
        assert world.labels(outgoing(world)) == []
        end(transaction)
    assert (world.labels(outgoing(world)), world.labels("t")) == ([THERE, THERE], ["t"])
    world.restart()
    first, last = world.messages(outgoing(world))
    assert (first.first_in_transaction, first.last_in_transaction) == (True, False)
    assert (last.first_in_transaction, last.last_in_transaction) == (False, True)
    assert first.is_transactional and world.labels("t") == ["t"]


def test_the_machine_quota_counts_outgoing_messages() -> None:
    world = World(replace(MACHINE, quota=2))
    world.send(THERE, body=bytes(1000))
    before = snapshot(world)
    with refused(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES):
        world.send(THERE, body=bytes(1000))
    assert snapshot(world) == before


def test_nobody_can_encrypt_for_an_unknown_machine(world: World) -> None:
    with refused(HResult.MQ_ERROR_PUBLIC_KEY_NOT_FOUND):
        world.send(ELSEWHERE, privacy_level=1)


def takes(world: World, name: str, size: int, response_queue: str) -> bool:
    try:
        world.send(name, body=bytes(size), response_queue_format_name=response_queue)
    except InsufficientResources:
        return False
    return True


def test_a_message_that_would_be_too_large_with_names_for_others_is_refused(world: World) -> None:
    """Queues of this machine are named differently in the packet (D-108); the largest packet has 4 MiB."""
    sizes = range(MAXIMUM_MESSAGE_SIZE - (1 << 14), MAXIMUM_MESSAGE_SIZE)
    sizes = sizes[: bisect.bisect(sizes, 0, key=lambda size: not takes(world, THERE, size, ADMIN))]
    assert len(sizes) > 1
    assert takes(world, "q", sizes[-1] + 8, ADMIN), "here the name is not changed"
    message = world.messages(outgoing(world))[-1]
    message = replace(message, body=bytes(sizes[-1]))
    elsewhere = replace(message, response_queue_format_name=ADMIN.replace("OS:.", f"OS:{MACHINE.computer_name}"))
    assert len(user_message_of(elsewhere).pack()) <= MAXIMUM_MESSAGE_SIZE


def test_waiting_messages_are_neither_journaled_nor_acknowledged(world: World) -> None:
    world.send(THERE, journaling_requested=JOURNAL, acknowledgements_requested=0x0F,
               administration_queue_format_name=ADMIN)  # fmt: skip
    assert not world.messages(world.registry.system_journal) and not world.labels("admin")


# -- time ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recoverable", [0, 1])
def test_a_message_that_misses_its_time_to_reach_queue_expires_with_an_acknowledgment(
    world: World, recoverable: int
) -> None:
    world.send(THERE, label="late", time_to_reach_queue=60, journaling_requested=DEADLETTER, body=b"x",
               acknowledgements_requested=NEG_ARRIVAL, administration_queue_format_name=ADMIN,
               delivery_guarantee=recoverable)  # fmt: skip
    world.advance(59_999)
    assert len(outgoing(world)) == 1
    if recoverable:
        world.restart(checkpoint=True)
    world.advance(1)
    assert len(outgoing(world)) == 0
    (dead,), (told,) = world.messages(world.registry.dead_letters), world.messages(world.queue("admin"))
    assert dead.message_class == told.message_class == MessageClass.NACK_REACH_QUEUE_TIMEOUT
    assert (dead.label, told.body, told.correlation_identifier) == ("late", b"x", dead.identifier)


def test_four_days_are_the_default(world: World) -> None:
    world.send(THERE, journaling_requested=DEADLETTER)
    world.advance(FOUR_DAYS * 1000 - 1)
    assert len(outgoing(world)) == 1
    world.advance(1)
    assert len(outgoing(world)) == 0
    assert len(world.registry.dead_letters) == 1


def test_an_expired_transactional_message_goes_to_the_transactional_dead_letter_queue(world: World) -> None:
    transaction = world.begin()
    world.send(THERE, transaction=transaction, time_to_reach_queue=10, journaling_requested=DEADLETTER)
    world.advance(10_000)
    world.manager.transactions.commit(transaction)
    world.advance(0)
    assert len(outgoing(world)) == 0
    assert [m.message_class for m in world.messages(world.registry.transactional_dead_letters)] == [
        MessageClass.NACK_REACH_QUEUE_TIMEOUT
    ]


@pytest.mark.parametrize(("asked", "told"), [(NEG_ARRIVAL, 1), (NEG_RECEIVE, 0)])
def test_the_time_to_be_received_runs_in_transit_too(world: World, asked: int, told: int) -> None:
    world.send(THERE, time_to_be_received=5, journaling_requested=DEADLETTER, acknowledgements_requested=asked,
               administration_queue_format_name=ADMIN)  # fmt: skip
    world.advance(5000)
    assert [m.message_class for m in world.messages(world.registry.dead_letters)] == [
        MessageClass.NACK_REACH_QUEUE_TIMEOUT
    ]
    assert len(world.queue("admin")) == told


# -- administrators --------------------------------------------------------------------------------------------


def test_an_administrator_peeks_receives_and_purges(world: World) -> None:
    for label in "abc":
        world.send(THERE, label=label, journaling_requested=DEADLETTER, acknowledgements_requested=0x0F,
                   administration_queue_format_name=ADMIN)  # fmt: skip
    peeker = world.open(THERE, Access.PEEK_ADMIN, caller=SYSTEM)
    assert world.read(peeker, ReceiveAction.PEEK_CURRENT).label == "a"
    with refused(HResult.MQ_ERROR_ACCESS_DENIED):
        world.manager.reading.purge(peeker)
    taker = world.open(THERE, Access.RECEIVE_ADMIN, caller=SYSTEM)
    assert world.read(taker).label == "a"
    assert world.manager.reading.purge(taker) == 2
    dead = world.messages(world.registry.dead_letters)
    assert [(m.label, m.message_class) for m in dead] == [(label, MessageClass.NACK_DELETED) for label in "abc"]
    assert [m.message_class for m in world.messages(world.queue("admin"))] == [MessageClass.NACK_DELETED] * 3


@pytest.mark.parametrize("access", [Access.PEEK_ADMIN, Access.RECEIVE_ADMIN])
def test_nobody_else_reads_what_others_send(world: World, access: Access) -> None:
    world.send(THERE)
    with refused(HResult.MQ_ERROR_ACCESS_DENIED):
        world.open(THERE, access, caller=ALICE)
    assert not outgoing(world).openers


def test_an_administrator_may_exclude_other_readers(world: World) -> None:
    world.send(THERE)
    world.open(THERE, Access.RECEIVE_ADMIN, Share.DENY_RECEIVE_SHARE, SYSTEM)
    with refused(HResult.MQ_ERROR_SHARING_VIOLATION):
        world.open(THERE, Access.RECEIVE_ADMIN, caller=SYSTEM)
    world.open(THERE, Access.SEND)


def test_the_descriptor_of_the_machine_determines_the_administrators(world: World) -> None:
    world.send(THERE)
    dacl = (*world.manager.authorization.machine.dacl, security.allow(ALICE.sid, 0x10))
    world.manager.authorization.machine = replace(world.manager.authorization.machine, dacl=dacl)
    assert world.read(world.open(THERE, Access.RECEIVE_ADMIN)).label == ""


# -- state and transfer ----------------------------------------------------------------------------------------


def test_the_state_follows_messages_holds_and_the_network(world: World) -> None:
    def state(name: str = THERE) -> OutgoingState:
        return outgoing(world, name).state(world.manager.outgoing.online)

    world.open(THERE, Access.SEND)
    assert state() is OutgoingState.INACTIVE
    world.send(THERE)
    assert state() is OutgoingState.WAITING
    world.send(ELSEWHERE)
    assert state(ELSEWHERE) is OutgoingState.NEED_VALIDATION
    world.manager.outgoing.set_online(False)
    assert state() is OutgoingState.DISCONNECTED
    world.manager.outgoing.pause(outgoing(world))
    assert state() is OutgoingState.ON_HOLD
    world.manager.outgoing.set_online(True)
    assert state() is OutgoingState.ON_HOLD
    world.manager.outgoing.resume(outgoing(world))
    outgoing(world).link = OutgoingState.CONNECTED
    assert state() is OutgoingState.CONNECTED


def test_holds_and_the_offline_state_end_with_a_restart(world: World) -> None:
    world.send(THERE, delivery_guarantee=1)
    world.manager.outgoing.pause(outgoing(world))
    world.manager.outgoing.set_online(False)
    world.restart()
    assert outgoing(world).state(world.manager.outgoing.online) is OutgoingState.WAITING


def test_an_address_in_a_format_name_is_the_next_hop(world: World) -> None:
    for name, hops in ((FAR, ["IP=192.0.2.7"]), (THERE, []), (ELSEWHERE, []), ("DIRECT=TCP:2001:db8::1\\q", None)):
        world.send(name)
        assert outgoing(world, name).next_hops == (["IPv6=2001:db8::1"] if hops is None else hops)


class Recorder:
    """A transport that counts its wake-ups."""

    woken = 0

    def wake(self, queue: OutgoingQueue | None) -> None:
        self.woken += 1

    def resend(self, queue: OutgoingQueue) -> None:
        raise NotImplementedError


def test_a_transport_gets_the_most_urgent_message_of_all_queues() -> None:
    transport = Recorder()
    world = World(transport=transport)
    world.send(THERE, label="second", delivery_guarantee=1)
    world.send(FAR, label="third", journaling_requested=JOURNAL)
    world.send(FAR, label="first", priority=7)
    world.send(ELSEWHERE, label="held")
    assert transport.woken == 0  # in its own event-loop iteration
    world.turn()
    assert transport.woken == 3  # once for each queue
    world.manager.outgoing.pause(outgoing(world, ELSEWHERE))
    world.manager.outgoing.set_online(False)
    assert next_to_transfer(world) is None
    world.manager.outgoing.set_online(True)
    sent = []
    while (following := next_to_transfer(world)) is not None:
        queue, message = following
        sent.append(message.label)
        if sent.count("second") == 1 and message.label == "second":  # at the first attempt
            world.manager.outgoing.put_back(queue, message.lookup_identifier)
        else:
            world.manager.outgoing.transferred(queue, [message])
    assert sent == ["first", "second", "second", "third"]
    assert world.labels(world.registry.system_journal) == ["third"]
    world.restart()
    assert len(outgoing(world)) == 0


def test_a_recoverable_message_leaves_after_the_sync(world: World) -> None:
    """Otherwise a crash could leave it where a relay took it from, although it has left."""
    operations = world.manager.outgoing
    world.store.sync()
    world.send(THERE, label="express")
    world.send(THERE, label="first", delivery_guarantee=1)
    queue = outgoing(world)
    assert not operations.awaits_sync(queue)
    assert len(operations.heads(queue, 9, 1 << 20)[0]) == 1
    assert operations.take(queue) is not None
    assert operations.awaits_sync(queue)
    assert operations.heads(queue, 9, 1 << 20) == ([], [])
    assert operations.take(queue) is None
    world.store.sync()
    assert not operations.awaits_sync(queue)
    assert len(operations.heads(queue, 9, 1 << 20)[0]) == 1
    world.send(THERE, label="second", delivery_guarantee=1)
    keys, records = operations.heads(queue, 9, 1 << 20)
    assert len(keys) == len(records) == 1
    found = operations.take(queue)
    assert found is not None and found.label == "first"
    assert operations.take(queue) is None


def test_a_transactional_message_is_taken_before_the_sync_to_be_numbered(world: World) -> None:
    """It is sent once its number is durable, which is written later."""
    transaction = world.begin()
    world.send(THERE, transaction=transaction)
    world.manager.transactions.commit(transaction)
    queue = outgoing(world)
    assert world.manager.outgoing.awaits_sync(queue)
    taken = world.manager.outgoing.take(queue)
    assert taken is not None
    world.manager.outgoing.put_back(queue, taken.lookup_identifier)
    assert world.manager.outgoing.take(queue, taken.lookup_identifier) is not None


def test_a_message_in_transit_leaves_after_the_sync(world: World) -> None:
    """The source of the message has assigned its number, so this queue manager does not."""
    queue = world.manager.changes.outgoing_for(names.parse_format_name(THERE))
    message = Message(
        identifier=b"\7" * 20,
        source_machine_identifier=b"\7" * 16,
        transaction_identifier=b"\7" * 20,
        delivery_guarantee=1,
    )
    arriving = world.manager.arrivals.begin("")
    arriving.accept(queue, message, message.size, b"")
    arriving.commit([])
    assert message.is_transactional
    assert world.manager.outgoing.take(queue) is None
    world.store.sync()
    assert world.manager.outgoing.take(queue) is not None


def test_a_message_purged_or_expired_during_a_failed_transfer_is_removed(world: World) -> None:
    for purge in (False, True):
        world.send(THERE, time_to_reach_queue=10, journaling_requested=DEADLETTER)
        queue, message = next_to_transfer(world) or pytest.fail("nothing to transfer")
        if purge:
            world.manager.reading.purge(world.open(THERE, Access.RECEIVE_ADMIN, caller=SYSTEM))
        else:
            world.advance(10_000)
        assert len(queue) == 1
        assert next_to_transfer(world) is None
        world.manager.outgoing.put_back(queue, message.lookup_identifier)
        assert len(queue) == 0
    assert [m.message_class for m in world.messages(world.registry.dead_letters)] == [
        MessageClass.NACK_REACH_QUEUE_TIMEOUT, MessageClass.NACK_DELETED,
    ]  # fmt: skip


def test_a_crash_during_a_transfer_leaves_the_message(world: World) -> None:
    world.send(THERE, label="m", delivery_guarantee=1, time_to_reach_queue=60)
    next_to_transfer(world)
    world.restart(checkpoint=True)
    assert world.labels(outgoing(world)) == ["m"]
    world.advance(60_000)
    assert len(outgoing(world)) == 0


@pytest.mark.sources
def test_an_unreadable_message_holds_up_its_own_queue_only(world: World) -> None:
    world.send(THERE, label="damaged", delivery_guarantee=1)
    world.send(FAR, label="sound", delivery_guarantee=1)

    def unreadable(location: int) -> bytes:
        raise DamagedRecord(location, "segment-1", 0, "checksum")

    outgoing(world).read = unreadable
    _, message = next_to_transfer(world) or pytest.fail("nothing to transfer")
    assert message.label == "sound"
    assert next_to_transfer(world) is None
    assert len(outgoing(world)) == 1


def test_a_pipeline_that_names_a_queue_of_another_machine_makes_no_queue_before_the_first_row(world: World) -> None:
    writes = world.manager.staged_writes
    target = writes.target(THERE, False, ALICE)
    assert target.queue is None and not world.registry.outgoing
    made = writes.begin("s", 0, 0, "0", ALICE)
    assert writes.stage(made, [draft(target, label="a", delivery_guarantee=1)], last=True) == []
    writes.seal(made)
    finalize(world, 0, made)
    assert world.labels(outgoing(world)) == ["a"]


def test_rows_find_their_outgoing_queue_also_when_it_was_dropped_meanwhile(world: World) -> None:
    world.send(THERE, "out")
    queue, message = next_to_transfer(world) or (None, None)
    assert queue is not None and message is not None
    world.manager.outgoing.transferred(queue, [message])
    writes = world.manager.staged_writes
    target, made = writes.target(THERE, False, ALICE), writes.begin("s", 0, 0, "0", ALICE)
    for _ in range(3):
        world.advance(UNUSED_PERIOD)
    assert queue.deleted
    assert writes.stage(made, [draft(target, label="a", delivery_guarantee=1)], last=True) == []
    assert target.queue is outgoing(world)


def test_rows_for_another_machine_are_refused_when_there_are_too_many_outgoing_queues() -> None:
    world = World(replace(MACHINE, limits=MachineLimits(max_outgoing_queues=0)))
    writes = world.manager.staged_writes
    target, made = writes.target(THERE, False, ALICE), writes.begin("s", 0, 0, "0", ALICE)
    refused_rows = writes.stage(made, [draft(target)], last=True, collect=True)
    assert [row.error.hresult for row in refused_rows] == [HResult.MQ_ERROR_INSUFFICIENT_RESOURCES]


def test_a_pipeline_that_reads_a_subqueue_does_not_create_it(world: World) -> None:
    before = list(world.registry.queues)
    with refused(HResult.MQ_ERROR_QUEUE_NOT_FOUND):
        source(world, ".\\private$\\q;s", "queue", ALICE)
    assert list(world.registry.queues) == before


def test_a_public_queue_is_sent_to_only_if_its_location_is_known_and_without_suffix(world: World) -> None:
    guid = UUID(int=7)
    unsupported = HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    with refused(unsupported):
        world.open(f"PUBLIC={guid}", Access.SEND)
    world.registry.remember_place(guid, QueueLocation("ELSEWHERE\\q", 0, b"e" * 16))
    world.open(f"PUBLIC={guid}", Access.SEND)
    assert world.registry.outgoing_queue(PublicFormatName(guid)) is not None
    with pytest.raises(MsmqError):
        world.manager.handles._known_elsewhere(PublicFormatName(guid, Suffix.JOURNAL))
    assert world.manager.handles._known_elsewhere(PublicFormatName(guid))
