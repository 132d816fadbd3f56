"""Abort counts of messages over restarts and crashes."""

from __future__ import annotations

import pytest

from openmsmq.model import names
from openmsmq.model.constants import Access, Share
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.records import ABORT_PREFIX, abort_definition
from openmsmq.store import Put
from queueing.pipeline import claim, commit, crashed
from queueing.world import ALICE, World


@pytest.fixture
def world() -> World:
    world = World()
    world.create("t", TRANSACTION=1)
    transaction = world.begin()
    for label in "ab":
        world.send("t", label, transaction)
    world.manager.transactions.commit(transaction)
    world.store.sync()
    return world


def abort_receive(world: World, times: int = 1) -> None:
    reader = world.open("t")
    for number in range(times):
        transaction = world.begin(100 + number)
        world.read(reader, transaction=transaction)
        world.manager.transactions.abort(transaction)
    world.manager.handles.close_queue(reader)


def counts(world: World) -> list[tuple[str, int]]:
    return [(message.label, message.abort_count) for message in world.messages(world.queue("t"))]


def remembered(world: World) -> list[bytes]:
    return [name for name in world.store.definitions if name.startswith(ABORT_PREFIX)]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_count_survives_a_restart_and_continues(world: World, checkpoint: bool) -> None:
    abort_receive(world, 2)
    world.restart(checkpoint)
    assert counts(world) == [("a", 2), ("b", 0)]
    abort_receive(world)
    world.restart(checkpoint)
    assert counts(world) == [("a", 3), ("b", 0)]


def test_after_a_crash_a_count_is_what_it_was_at_some_sync_and_no_message_is_lost(world: World) -> None:
    abort_receive(world)
    world.store.sync()
    abort_receive(world)
    seen = set()
    for survivor in crashed(world):
        assert [label for label, _ in counts(survivor)] == ["a", "b"]
        seen.add(counts(survivor)[0][1])
    assert seen == {1, 2}


def test_a_count_is_removed_with_its_message(world: World) -> None:
    abort_receive(world)
    assert len(remembered(world)) == 1
    transaction = world.begin()
    world.read(world.open("t"), transaction=transaction)
    world.manager.transactions.commit(transaction)
    assert remembered(world) == []
    abort_receive(world)
    world.manager.reading.purge(world.open("t"))
    assert remembered(world) == []


def test_a_count_is_removed_with_a_message_received_by_a_consumer_group(world: World) -> None:
    end = world.manager.changes.sequence
    abort_receive(world)
    claim(world, 0, queue="t")
    commit(world, end, queue="t")
    assert (counts(world), remembered(world)) == ([], [])


def test_a_move_resets_the_abort_count_in_the_log_too(world: World) -> None:
    abort_receive(world)
    name = names.parse_format_name(r"DIRECT=OS:.\private$\t;s")
    target = world.manager.handles.open_queue(name, Access.MOVE, Share.DENY_NONE, ALICE)
    world.manager.subqueues.move(world.open("t"), target, next(iter(world.queue("t").available)))
    assert remembered(world) == []
    world.restart()
    assert [m.abort_count for m in world.messages(world.queue("t;s"))] == [0]


def test_a_message_that_expired_in_the_transaction_leaves_no_count(world: World) -> None:
    transaction = world.begin()
    world.send("t", "short", transaction, time_to_be_received=5)
    world.manager.transactions.commit(transaction)
    work, reader = world.begin(2), world.open("t")
    for _ in range(3):
        world.read(reader, transaction=work)
    world.advance(6_000)
    world.manager.transactions.abort(work)
    assert counts(world) == [("a", 1), ("b", 1)]
    assert len(remembered(world)) == 2


def test_an_orphaned_count_is_removed_at_the_next_start(world: World) -> None:
    number = world.queue("t").number
    world.store.append([Put(abort_definition(number, 12345), b"7"), Put(abort_definition(99, 1), b"1")])
    world.restart()
    assert remembered(world) == []


def test_on_a_full_disk_a_count_lasts_until_the_next_start(world: World) -> None:
    world.store.full = True
    abort_receive(world)
    assert counts(world) == [("a", 1), ("b", 0)]
    world.store.full = False
    world.restart()
    assert counts(world) == [("a", 0), ("b", 0)]


def test_an_express_message_has_its_count_in_memory_only(world: World) -> None:
    queue = world.registry.create(QueueProperties(r"HERE\private$\e", transactional=False))
    world.send("e", "express")
    assert queue.note_abort(next(iter(queue.available))) == 0
    assert world.messages(queue)[0].abort_count == 1
