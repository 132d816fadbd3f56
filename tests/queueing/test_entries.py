"""Entries of a queue in arrays, compared with a dictionary."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from memory import kept_by
from openmsmq import compiled
from openmsmq.model.lookup_id import LAST_SEQUENCE
from openmsmq.model.message import Message
from openmsmq.queueing.deadlines import Deadlines
from openmsmq.queueing.entries import (
    LOCATION_BITS,
    LOCATION_MASK,
    CapturedEntries,
    Entries,
    EntriesInPython,
    ready_room,
    stored,
)
from queueing.columns import unpacked
from seeds import chance

LARGEST = 7 << 56 | (1 << 56) - 1
# Few keys, so that they collide, and arbitrary ones, which lie far apart.
KEYS = st.integers(0, 30) | st.integers(3 << 56, (3 << 56) + 30) | st.integers(0, LARGEST)
STORED = st.builds(stored, st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 3))
ENTRIES = STORED | st.builds(Message)
BOTH = [Entries, EntriesInPython]


def test_native_code_is_used_where_it_is_compiled() -> None:
    assert (Entries is not EntriesInPython) == compiled.is_native()


class EntriesMachine(RuleBasedStateMachine):
    """Compares a table with a dictionary while entries are added and removed."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: Any = Entries()
        self.expected: dict[int, Any] = {}

    @rule(key=KEYS, entry=ENTRIES)
    def put(self, key: int, entry: Any) -> None:
        self.entries[key] = self.expected[key] = entry

    @rule(key=KEYS, location=st.integers(0, (1 << 64) - 1), size=st.integers(0, (1 << 32) - 3))
    def place(self, key: int, location: int, size: int) -> None:
        self.entries.place(key, location, size)
        self.expected[key] = stored(location, size)
        assert (self.entries.location(key), self.entries.size(key)) == (location, size)

    @rule(key=KEYS)
    def remove(self, key: int) -> None:
        if key in self.expected:
            entry = self.expected.pop(key)
            location, size = (entry & LOCATION_MASK, entry >> 64) if isinstance(entry, int) else (None, entry.size)
            assert (self.entries.location(key), self.entries.size(key)) == (location, size)
            assert self.entries.remove(key) == size
        else:
            for act in (self.entries.remove, self.entries.location, self.entries.size):
                with pytest.raises(KeyError, match=str(key)):
                    act(key)

    @rule(keys=st.sets(KEYS))
    def remove_all(self, keys: set[int]) -> None:
        some = [key for key in keys if key in self.expected]
        locations = [self.entries.location(key) for key in some]
        volume = sum(self.entries.size(key) for key in some)
        assert self.entries.locations(some) == locations
        assert self.entries.volume(some) == volume
        assert self.entries.remove_all(some) == volume
        for key in some:
            del self.expected[key]
        absent = next((key for key in keys if key not in self.expected), None)
        if absent is not None:
            for act in (self.entries.remove_all, self.entries.locations, self.entries.volume):
                with pytest.raises(KeyError, match=str(absent)):
                    act([absent])

    @rule(entries=st.dictionaries(KEYS, ENTRIES))
    def update(self, entries: dict[int, Any]) -> None:
        self.entries.update(entries)
        self.expected.update(entries)

    @rule(start=st.integers(0, LARGEST - 200), count=st.integers(1, 200))
    def fill(self, start: int, count: int) -> None:
        for key in range(start, start + count):
            self.entries[key] = self.expected[key] = stored(key, 5)

    @rule(key=KEYS)
    def pop(self, key: int) -> None:
        if key in self.expected:
            assert self.entries.pop(key) == self.expected.pop(key)
        else:
            with pytest.raises(KeyError, match=str(key)):
                self.entries.pop(key)

    @rule(key=KEYS)
    def delete(self, key: int) -> None:
        if self.expected.pop(key, None) is not None:
            del self.entries[key]
        else:
            with pytest.raises(KeyError, match=str(key)):
                del self.entries[key]

    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        """Remove most of the entries."""
        for key in data.draw(st.permutations(sorted(self.expected)))[: len(self.expected) * 9 // 10]:
            assert self.entries.pop(key) == self.expected.pop(key)

    @rule(key=KEYS)
    def look(self, key: int) -> None:
        assert (key in self.entries) == (key in self.expected)
        assert self.entries.get(key) == self.expected.get(key) and self.entries.get(key, 7) == self.expected.get(key, 7)
        if key not in self.expected:
            with pytest.raises(KeyError, match=str(key)):
                self.entries[key]

    @rule()
    def clear(self) -> None:
        self.entries.clear()
        self.expected.clear()

    @invariant()
    def the_same(self) -> None:
        assert len(self.entries) == len(self.expected) and bool(self.entries) == bool(self.expected)
        assert list(self.entries) == sorted(self.expected)
        assert all(self.entries[key] == entry for key, entry in self.expected.items())


TestEntries = EntriesMachine.TestCase
TestEntries.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_queue_of_many_messages_has_what_a_dictionary_has() -> None:
    """Large tables are divided; a queue that becomes short again gives their memory back, an empty one all of it."""
    luck = chance("entries of a long queue")
    for in_order in (True, False):
        entries = Entries()
        expected: dict[int, int] = {}
        for number in range(120_000):
            key = 3 << 56 | (number if in_order else luck.getrandbits(56))
            expected[key] = stored(number, number % 5000)
            entries.place(key, number, number % 5000)
        some = luck.sample(sorted(expected), 5000)
        assert entries.locations(some) == [expected[key] & LOCATION_MASK for key in some]
        assert entries.volume(some) == sum(expected[key] >> LOCATION_BITS for key in some)
        assert list(entries) == sorted(expected)
        gone = luck.sample(sorted(expected), 119_000)
        assert entries.remove_all(gone) == sum(expected.pop(key) >> LOCATION_BITS for key in gone)
        assert {key: entries[key] for key in entries} == expected
        assert all(key not in entries for key in gone[:1000])
        assert entries.remove_all(list(expected)) == sum(entry >> LOCATION_BITS for entry in expected.values())
        assert (len(entries), list(entries)) == (0, [])


@pytest.mark.parametrize("entries", [Entries(), EntriesInPython()])
def test_a_key_that_is_no_key_is_refused_wherever_it_is_in_a_list(entries: Any) -> None:
    keys = list(range(40))
    for key in keys:
        entries.place(key, key, 2)
    for at in (0, 15, 16, 17, 39):
        for wrong in ("key", 40, -1, 1 << 64):
            given_keys = [*keys[:at], wrong, *keys[at + 1 :]]
            for act in (entries.locations, entries.volume, lambda some: entries.places(some, 0, 99, 99)):
                with pytest.raises((KeyError, TypeError, OverflowError)):
                    act(given_keys)
    assert entries.volume(keys) == entries.remove_all(keys) == 80


def test_a_table_that_grows_and_shrinks_again_and_again_has_what_a_dictionary_has() -> None:
    luck, entries, expected = chance("entries"), Entries(), {}
    for _ in range(6):
        for _ in range(luck.randrange(5000)):
            key = luck.choice([luck.randrange(1 << 14), luck.randrange(LARGEST)])
            entries[key] = expected[key] = stored(luck.getrandbits(64), luck.randrange(1 << 22))
        gone = luck.sample(sorted(expected), luck.randrange(len(expected) + 1))
        for key in gone:
            assert entries.pop(key) == expected.pop(key)
        assert {key: entries[key] for key in entries} == expected
        assert not any(key in entries for key in gone if key not in expected)


@pytest.mark.parametrize("kind", BOTH)
def test_removed_entries_are_no_longer_referenced(kind: Callable[[], Any]) -> None:
    class Held:
        pass

    def gone(act: Callable[[Any], object]) -> bool:
        entries, held = kind(), Held()
        entries[5] = held
        weak = ref(held)
        del held
        assert weak() is not None
        act(entries)
        return weak() is None

    def replace(entries: Any) -> None:
        entries[5] = 3

    assert gone(lambda entries: entries.pop(5)) and gone(lambda entries: entries.clear())
    assert (
        gone(replace) and gone(lambda entries: entries.__delitem__(5)) and gone(lambda entries: entries.update({5: 1}))
    )


queues = st.dictionaries(st.integers(0, LARGEST), STORED | st.just(Message()), max_size=40)


def filled(kind: Callable[[], Any], content: dict[int, Any]) -> Any:
    entries = kind()
    entries.update(content)
    return entries


@given(queues, st.data())
def test_columns(content: dict[int, Any], data: st.DataObject) -> None:
    content = {key & ~LAST_SEQUENCE | number: content[key] for number, key in enumerate(content)}  # like sequences
    some = st.sampled_from(sorted(content) or [0])
    times = data.draw(st.dictionaries(some, st.integers(0, (1 << 56) - 1)))
    left_out = data.draw(st.sets(some))
    others = data.draw(st.dictionaries(some, st.integers(0, (1 << 56) - 1)))
    deadlines = Deadlines(lambda key, number: True, lambda: None)
    for key, time in times.items():
        for earlier in sorted({time, time // 2, time // 3}):  # the latest counts
            deadlines.add(earlier, key, 7)
        deadlines.add(time + 1, key, 8)  # of another queue
    room = data.draw(st.none() | st.integers(0, 1000).map(ready_room))
    captured = filled(Entries, content).capture(room)
    packed = CapturedEntries(7, captured, left_out, deadlines.capture(), others).packed()
    expected = filled(EntriesInPython, content)
    columns = EntriesInPython.columns(expected.capture(None), left_out, deadlines.capture().of_queue(7), others)
    times |= others
    expected.clear()  # what is captured is a copy
    assert (packed.keys, packed.locations, packed.sizes, packed.deadlines) == columns
    made = unpacked(packed)
    assert list(made.keys) == sorted(made.keys)
    assert len(made) == sum(isinstance(content[key], int) for key in content.keys() - left_out)
    for kind in BOTH:
        loaded = kind()
        keys, total, deadlines = loaded.load(made.keys, made.locations, made.sizes, made.deadlines)
        there = {key: entry for key, entry in content.items() if isinstance(entry, int) and key not in left_out}
        assert {key: loaded[key] for key in loaded} == there and list(array("Q", keys)) == sorted(there)
        assert total == sum(entry >> 64 for entry in there.values())
        assert dict(deadlines) == {key: time for key, time in times.items() if time and key in there}


@given(queues, st.integers(0, 45), st.integers(0, 1 << 34), st.data())
def test_places(content: dict[int, Any], most: int, volume: int, data: st.DataObject) -> None:
    chosen = data.draw(st.permutations(list(content)))
    start = data.draw(st.integers(0, len(chosen)))
    made, expected = (filled(kind, content).places(chosen, start, most, volume) for kind in BOTH)
    assert made == expected


@pytest.mark.parametrize("kind", BOTH)
def test_a_position_that_is_not_there(kind: Callable[[], Any]) -> None:
    with pytest.raises(KeyError, match="2"):
        filled(kind, {1: stored(8, 5)}).places([1, 2], 0, 10, 1 << 30)


def test_nothing_is_kept() -> None:
    content = {(key * 7919 % 1009) | 3 << 56: stored(key << 40, 1000) for key in range(1009)}
    times = dict.fromkeys(content, 5)

    def work() -> None:
        entries = filled(Entries, content)
        captured = entries.capture(ready_room(30_000))
        deadlines = Deadlines(lambda key, number: True, lambda: None)
        for key in list(entries)[3:500]:
            deadlines.add(9, key, 1)
        captured_deadlines = deadlines.capture(ready_room(30_000))
        packed = CapturedEntries(1, captured, set(list(entries)[:3]), captured_deadlines, times).packed()
        made = unpacked(packed)
        assert len(made) == 1006 and made.find(17) is not None
        entries.places(list(entries), 0, 500, 1 << 30)
        with pytest.raises(KeyError):
            entries.places([1], 0, 1, 1)
        with pytest.raises(KeyError):
            entries.pop(1)
        Entries().load(made.keys, made.locations, made.sizes, made.deadlines)

    assert kept_by(work) < 40
