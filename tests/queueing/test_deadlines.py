"""Deadlines of messages: a heap, with equal results in native code and Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import seeds
from openmsmq.queueing import deadlines as module
from openmsmq.queueing.deadlines import Deadlines, Heap, HeapInPython
from openmsmq.queueing.entries import ready_room

BOTH = [HeapInPython] if Heap is HeapInPython else [HeapInPython, Heap]
LARGEST = (1 << 64) - 1


@pytest.fixture(params=BOTH)
def heap_type(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    monkeypatch.setattr(module, "Heap", request.param)
    return request.param  # type: ignore[no-any-return]


class Model:
    """Pending deadlines, as a set."""

    def __init__(self) -> None:
        self.there: set[tuple[int, int]] = set()
        self.changes = 0
        self.deadlines = Deadlines(lambda key, number: (key, number) in self.there, self.changed)

    def changed(self) -> None:
        self.changes += 1

    def add(self, deadline: int, key: int, number: int = 1) -> None:
        self.there.add((key, number))
        self.deadlines.add(deadline, key, number)


def test_the_earliest_deadline_is_first(heap_type: object) -> None:
    model = Model()
    assert model.deadlines.next() is None and model.deadlines.pop(LARGEST) is None
    for deadline, changes in ((50, 1), (60, 1), (40, 2), (40, 2), (39, 3)):
        model.add(deadline, deadline * 100 + model.changes)
        assert model.changes == changes
    assert model.deadlines.next() == 39 and model.deadlines.pop(38) is None
    assert [model.deadlines.pop(50) for _ in range(5)] == [(3902, 1), (4001, 1), (4002, 1), (5000, 1), None]
    assert model.deadlines.next() == 60 and len(model.deadlines) == 1


def test_finished_deadlines_are_skipped(heap_type: object) -> None:
    model = Model()
    for key in range(10):
        model.add(key, key)
    model.there -= {(0, 1), (1, 1), (5, 1)}
    assert model.deadlines.next() == 2
    assert [model.deadlines.pop(7) for _ in range(6)] == [(2, 1), (3, 1), (4, 1), (6, 1), (7, 1), None]


@pytest.mark.parametrize("number", range(5))
def test_deadlines_agree_with_a_model(heap_type: object, number: int) -> None:
    chance = seeds.chance(f"deadlines {number}")
    model, expected, now = Model(), set(), 0
    for key in range(4000):
        deadline = now + chance.randrange(1, 500)
        model.add(deadline, key, key % 3)
        expected.add((deadline, key, key % 3))
        if chance.random() < 0.5:
            gone = chance.choice(sorted(expected))
            expected.remove(gone)
            model.there.remove(gone[1:])
        if chance.random() < 0.1:
            now += chance.randrange(100)
            due = sorted(entry for entry in expected if entry[0] <= now)
            assert [model.deadlines.pop(now) for _ in due] == [entry[1:] for entry in due]
            assert model.deadlines.pop(now) is None
            expected -= set(due)
            assert model.deadlines.next() == (min(expected)[0] if expected else None)


def test_finished_deadlines_are_removed_eventually(heap_type: object) -> None:
    """This happens in a queue whose messages are received long before they expire."""
    model, most = Model(), 0
    for key in range(60_000):
        model.add(10**9 + key, key)
        if key >= 5000:
            model.there.remove((key - 5000, 1))
        most = max(most, len(model.deadlines))
    assert most < 3 * 5000 + 2 * 4096
    assert model.deadlines.pop(10**10) == (55_000, 1)


def test_many_finished_deadlines_do_not_delay_a_lookup(heap_type: object) -> None:
    model = Model()
    for key in range(3000):
        model.add(key, key)
    model.there.clear()
    assert model.deadlines.next() == 1000  # the deadline of a removed message; the caller asks again then
    assert model.deadlines.next() == 2000
    assert model.deadlines.next() is None


def test_a_copy_is_sorted_by_queue(heap_type: Callable[[], Any]) -> None:
    chance, heaps = random.Random(4), [kind() for kind in BOTH]
    rows = [
        (chance.randrange(1 << 40), chance.randrange(LARGEST), chance.choice((1, 2, 900, LARGEST))) for _ in range(500)
    ]
    for heap in heaps:
        for row in rows:
            heap.add(*row)
    rooms = (None, ready_room(10), ready_room(500 * 24), ready_room(20_000))
    made = {bytes(type(heap).ordered(heap.capture(room))) for heap in heaps for room in rooms}
    assert len(made) == 1
    (ordered,) = made
    for number in (0, 1, 2, 3, 900, 901, LARGEST):
        parts = {bytes(kind.of_queue(ordered, number)) for kind in BOTH}
        assert {len(part) for part in parts} == {24 * sum(row[2] == number for row in rows)}
    assert bytes(heap_type.ordered(b"")) == bytes(heap_type.of_queue(b"", 5)) == b""  # type: ignore[attr-defined]


def test_a_copy_stays_as_it_was(heap_type: object) -> None:
    model = Model()
    model.add(5, 17)
    captured = model.deadlines.capture(ready_room(1000))
    model.deadlines.pop(5)
    model.add(6, 18)
    assert bytes(captured.of_queue(1)) == b"".join(word.to_bytes(8, "little") for word in (1, 17, 5))
