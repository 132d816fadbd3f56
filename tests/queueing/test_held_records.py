"""Express messages held as records: readers see no difference."""

from __future__ import annotations

from openmsmq.model.constants import Access, ReceiveAction
from openmsmq.model.message import Message
from openmsmq.queueing.queue import HeldRecord
from openmsmq.record.message_record import encode_message
from queueing.world import ACCEPT, World

KEYS = [4 << 56 | number for number in (7, 5, 6)]


def held(world: World) -> None:
    """Return a queue with three such messages."""
    queue = world.queue()
    messages = [Message(body=bytes(10 * n), label=f"label {n}", priority=3) for n in range(3)]
    queue.hold(KEYS, [encode_message(message) for message in messages], [100, 200, 300])


def test_held_records_are_read_in_order_and_count_for_the_quota(world: World) -> None:
    held(world)
    queue = world.queue()
    assert world.labels("q") == ["label 1", "label 2", "label 0"]
    assert (len(queue), queue.total_bytes, queue.came, queue.size_of(KEYS[1])) == (3, 600, 3, 200)
    assert queue.location(KEYS[0]) is None and queue.held_record(KEYS[0]) is not None
    descriptor = world.open("q", Access.RECEIVE)
    peeked = world.read(descriptor, ReceiveAction.PEEK_CURRENT)
    assert (peeked.status, peeked.label) == (ACCEPT, "label 1")
    assert world.read(descriptor, ReceiveAction.RECEIVE).message.body == bytes(10)
    assert (len(queue), queue.total_bytes, queue.left) == (2, 400, 1)


def test_rolled_back_receives_are_counted(world: World) -> None:
    held(world)
    queue = world.queue()
    assert [queue.note_abort(KEYS[0]) for _ in range(2)] == [0, 0]  # nothing is stored in the log
    assert queue.message(KEYS[0]).abort_count == 2 and queue.message(KEYS[1]).abort_count == 0
    assert all(isinstance(queue.entries[key], HeldRecord) for key in KEYS)
    assert queue.total_bytes == 600


def test_held_records_are_removed_by_a_restart_and_by_a_purge(world: World) -> None:
    held(world)
    world.manager.reading.purge(world.open("q", Access.RECEIVE))
    assert (len(world.queue()), world.queue().total_bytes) == (0, 0)
    world.queue().hold(KEYS[:1], [encode_message(Message(body=b"x"))], [1])
    world.restart(checkpoint=True)
    assert len(world.queue()) == 0
