"""Captures of large queues for checkpoints, which block the event loop."""

from __future__ import annotations

from array import array

from openmsmq.model.lookup_id import lookup_id, sequence_of
from openmsmq.queueing.entries import LARGE
from queueing.columns import unpacked
from queueing.world import World


def test_a_capture_goes_where_memory_is_ready_and_is_the_same() -> None:
    world = World()
    world.create("large")
    world.create("small")
    queue, count = world.queue("large"), LARGE + 1000
    first = world.manager.changes.sequence + 1
    keys = array("Q", [lookup_id(3, first + number) for number in range(count)])
    world.manager.changes.next_sequences(count)
    numbers = array("Q", map(sequence_of, keys))
    words = array("Q", [key - number for key, number in zip(keys, numbers, strict=True)])
    queue.place(numbers, array("Q", range(8, 8 * count + 8, 8)), array("I", [100] * count), words)
    for key in keys[::7]:
        world.manager.changes.deadlines.add(10**12 + key % 1000, key, queue.number)
    world.send("small", "x", delivery_guarantee=1, time_to_be_received=5)
    before = [unpacked(capture.packed()) for _, capture in world.manager.capture()]
    rooms = world.manager.rooms()()
    assert set(rooms.queues) == {queue.number} and rooms.deadlines is not None
    captured = list(world.manager.capture(rooms))
    entries = dict(captured)[queue.number].captured
    assert isinstance(entries, memoryview) and entries.obj is rooms.queues[queue.number]
    after = [unpacked(capture.packed()) for _, capture in captured]
    assert [list(columns.rows()) for columns in before] == [list(columns.rows()) for columns in after]
    (large,) = (columns for columns in after if len(columns) == count)
    assert sum(word & (1 << 56) - 1 > 0 for word in large.deadlines) == len(keys[::7])
    full = {number: bytearray() for number in rooms.queues}
    too_small = type(rooms)(full, bytearray())
    made = [unpacked(capture.packed()) for _, capture in world.manager.capture(too_small)]
    assert [list(columns.rows()) for columns in made] == [list(columns.rows()) for columns in after]
