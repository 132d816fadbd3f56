"""Opening, closing and deleting queues ([MS-MQDMPR] 3.1.7.1.4 to 3.1.7.1.6)."""

from __future__ import annotations

from itertools import product

import pytest

from openmsmq.model import names
from openmsmq.model.constants import Access, MessageClass, PropId, Share
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message
from queueing.world import ALICE, World, refused

P = PropId


@pytest.fixture
def world() -> World:
    return World()


# -- opening ---------------------------------------------------------------------------------------------------

NONE, DENY = Share.DENY_NONE, Share.DENY_RECEIVE_SHARE
R, K, S = Access.RECEIVE, Access.PEEK, Access.SEND
MODES = [(R, NONE), (R, DENY), (K, NONE), (K, DENY), (S, NONE)]
# [MS-MQDMPR] 3.1.7.1.5: an open handle, and the opens that it prevents.
CONFLICTS = {
    (R, DENY): {(R, NONE), (R, DENY), (K, DENY)},
    (K, DENY): {(R, NONE), (R, DENY)},
    (R, NONE): {(R, DENY), (K, DENY)},
    (K, NONE): set(),
    (S, NONE): set(),
}


@pytest.mark.parametrize(("first", "second"), list(product(MODES, MODES)))
def test_sharing_rules_decide_who_may_open_a_queue(
    world: World, first: tuple[Access, Share], second: tuple[Access, Share]
) -> None:
    world.create()
    opened = world.open("q", *first)
    if second in CONFLICTS[first]:
        with refused(HResult.MQ_ERROR_SHARING_VIOLATION):
            world.open("q", *second)
        world.manager.handles.close_queue(opened)
    world.open("q", *second)


def test_a_journal_is_shared_apart_from_its_queue(world: World) -> None:
    world.create()
    world.open("q", R, DENY)
    world.open("DIRECT=OS:.\\private$\\q;JOURNAL", R, DENY)


UNSUPPORTED = HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
GUID = "00000000-0000-0000-0000-0000000000aa"
HERE = "03020100-0504-0706-0809-0a0b0c0d0e0f"
OPENS: list[tuple[str, Access, Share, HResult]] = [
    ("DIRECT=OS:.\\private$\\missing", R, NONE, HResult.MQ_ERROR_QUEUE_NOT_FOUND),
    ("DIRECT=OS:.\\private$\\missing", S, NONE, HResult.MQ_ERROR_QUEUE_NOT_FOUND),
    ("DIRECT=OS:.\\public", R, NONE, HResult.MQ_ERROR_QUEUE_NOT_FOUND),
    ("DIRECT=IPX:there\\private$\\q", S, NONE, HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE),
    ("MULTICAST=234.1.1.1:80", S, NONE, UNSUPPORTED),
    ("DIRECT=OS:there\\private$\\q;JOURNAL", S, NONE, HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
    ("DIRECT=OS:there\\private$\\q", Access.PEEK_ADMIN, NONE, HResult.MQ_ERROR_QUEUE_NOT_FOUND),
    ("DIRECT=OS:there\\private$\\q", R, NONE, HResult.MQ_ERROR_QUEUE_NOT_FOUND),
    ("DIRECT=HTTP://here/msmq/private$/q", R, NONE, UNSUPPORTED),
    ("DIRECT=HTTP://there/msmq/private$/q", S, NONE, UNSUPPORTED),
    ("DIRECT=HTTPS://there/msmq/private$/q", S, NONE, UNSUPPORTED),
    ("DIRECT=OS:.\\private$\\q;sub", S, NONE, UNSUPPORTED),
    (f"MACHINE={HERE};DEADLETTER", S, NONE, UNSUPPORTED),
    (f"PUBLIC={GUID}", S, NONE, UNSUPPORTED),
    ("MULTICAST=234.1.1.1:80", R, NONE, UNSUPPORTED),
    (f"DL={GUID}", S, NONE, HResult.MQ_ERROR_NO_DS),
    (f"PRIVATE={HERE}\\000000ff", R, NONE, HResult.MQ_ERROR_QUEUE_NOT_FOUND),
    (f"PRIVATE={GUID}\\00000010;JOURNAL", S, NONE, HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
    ("DIRECT=OS:.\\private$\\q", S, DENY, HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
    ("DIRECT=OS:.\\private$\\q;JOURNAL", S, NONE, HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
    ("DIRECT=OS:.\\SYSTEM$;DEADXACT", S, NONE, HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
    ("DIRECT=OS:.\\private$\\q", Access.RECEIVE_ADMIN, NONE, HResult.MQ_ERROR_QUEUE_NOT_FOUND),
    ("DIRECT=OS:.\\private$\\q", Access.PEEK_ADMIN, NONE, HResult.MQ_ERROR_QUEUE_NOT_FOUND),
    ("DIRECT=OS:.\\private$\\q,DIRECT=OS:.\\private$\\q2", R, NONE, UNSUPPORTED),
    ("DIRECT=OS:.\\private$\\q,DIRECT=OS:.\\private$\\q2", S, DENY, HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
    ("DIRECT=OS:.\\private$\\q,DIRECT=OS:.\\private$\\q2", S, NONE, HResult.MQ_ERROR_QUEUE_NOT_FOUND),
]


@pytest.mark.parametrize(("name", "access", "share", "error"), OPENS)
def test_a_failed_open_names_the_reason_and_leaves_nothing_open(
    world: World, name: str, access: Access, share: Share, error: HResult
) -> None:
    world.create()
    with refused(error):
        world.open(name, access, share)
    assert not world.manager.handles.descriptors
    assert not world.queue().openers


def test_a_queue_opens_by_each_of_its_format_names(world: World) -> None:
    queue = world.create()
    for name in ("DIRECT=OS:HERE\\PRIVATE$\\Q", "DIRECT=TCP:127.0.0.1\\private$\\q", f"PRIVATE={HERE}\\00000010"):
        assert world.open(name).queue is queue
    assert world.open(f"PRIVATE={HERE}\\10;JOURNAL").queue is queue.journal
    assert world.open(f"MACHINE={HERE};DEADXACT").queue is world.registry.transactional_dead_letters


def test_a_handle_is_good_until_it_is_closed(world: World) -> None:
    world.create()
    descriptor = world.open()
    assert world.manager.handles.descriptor(descriptor.handle) is descriptor
    world.manager.handles.close_queue(descriptor)
    with refused(HResult.MQ_ERROR_INVALID_HANDLE):
        world.manager.handles.descriptor(descriptor.handle)


# -- deleting --------------------------------------------------------------------------------------------------


def test_a_deleted_queue_is_gone_with_its_journal_and_messages(world: World) -> None:
    world.create(JOURNAL=1)
    for _ in range(3):
        world.send(delivery_guarantee=1)
    world.read(world.open())
    reader, other = world.open(access=K), world.open(access=S)
    world.manager.administration.delete_queue(world.queue(), ALICE)
    assert world.read(reader).status == HResult.MQ_ERROR_QUEUE_DELETED
    with refused(HResult.MQ_ERROR_QUEUE_DELETED):
        world.manager.sending.enqueue(other, Message())
    for attempt in (world.manager.handles.open_cursor, lambda d: world.manager.reading.end_two_phase(d, 1, True)):
        with refused(HResult.MQ_ERROR_QUEUE_DELETED):
            attempt(reader)
    world.restart()
    assert not world.registry.by_name
    assert all(not queue.entries for queue in world.registry.queues.values())
    assert not world.store.recovered.queues


def test_waiting_reads_end_when_their_queue_is_deleted(world: World) -> None:
    world.create()
    waiting = [world.wait(world.open()), world.wait(world.open("DIRECT=OS:.\\private$\\q;JOURNAL"), timeout=10)]
    world.manager.administration.delete_queue(world.queue(), ALICE)
    assert [outcome.status for outcome in waiting] == [HResult.MQ_ERROR_QUEUE_DELETED] * 2
    world.advance(100)


def test_a_failed_deletion_leaves_the_queue_unchanged(world: World) -> None:
    world.create(TRANSACTION=1)
    transaction = world.begin()
    world.send(label="sent", transaction=transaction)
    world.store.full = True
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        world.manager.administration.delete_queue(world.queue(), ALICE)
    world.store.full = False
    world.manager.transactions.commit(transaction)
    assert world.labels() == ["sent"]


def test_closing_a_queue_is_idempotent(world: World) -> None:
    world.create()
    descriptor = world.open()
    world.manager.handles.close_queue(descriptor)
    world.manager.handles.close_queue(descriptor)
    assert not world.queue().openers


def test_senders_learn_that_their_message_was_in_a_deleted_queue(world: World) -> None:
    world.create()
    world.create("admin")
    world.send(label="m", acknowledgements_requested=8, administration_queue_format_name="DIRECT=OS:.\\private$\\admin")
    world.manager.administration.delete_queue(world.queue(), ALICE)
    assert [m.message_class for m in world.messages(world.queue("admin"))] == [MessageClass.NACK_Q_DELETED]


def test_find_a_queue_by_format_name(world: World) -> None:
    queue = world.create()
    assert world.registry.queue_for(names.parse_format_name("DIRECT=OS:.\\private$\\q")) is queue
    with refused(HResult.MQ_ERROR_QUEUE_NOT_FOUND):
        world.registry.queue_for(names.parse_format_name("DIRECT=OS:.\\private$\\other"))
    with refused(UNSUPPORTED):
        world.registry.queue_for(names.parse_format_name("DIRECT=OS:there\\private$\\q"))
