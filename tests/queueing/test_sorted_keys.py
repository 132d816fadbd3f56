"""SortedKeys compared with a plain sorted list."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from openmsmq.queueing import sorted_keys
from openmsmq.queueing.sorted_keys import SortedKeys

KEYS = st.integers(0, 300)


class PositionsMachine(RuleBasedStateMachine):
    """Uses chunks of four keys, so that a few hundred keys fill many chunks."""

    def __init__(self) -> None:
        super().__init__()
        self.positions, self.expected = SortedKeys(), list[int]()

    @rule(key=KEYS)
    def add(self, key: int) -> None:
        if key not in self.expected:
            self.positions.add(key)
            self.expected = sorted([*self.expected, key])

    @rule(key=KEYS)
    def remove(self, key: int) -> None:
        if key in self.expected:
            self.positions.remove(key)
            self.expected.remove(key)
        else:
            with pytest.raises(ValueError, match="does not exist"):
                self.positions.remove(key)

    @rule(keys=st.sets(KEYS))
    def update(self, keys: set[int]) -> None:
        new = keys.difference(self.expected)
        self.positions.update(new)
        self.expected = sorted([*self.expected, *new])

    @rule(keys=st.sets(KEYS, min_size=1), behind=st.booleans())
    def append(self, keys: set[int], behind: bool) -> None:
        least = self.expected[-1] if behind and self.expected else -1
        new = sorted(key for key in keys.difference(self.expected) if key > least)
        if new:
            self.positions.append(array("Q", new))
            self.expected = sorted([*self.expected, *new])

    @rule(keys=st.sets(KEYS))
    def remove_all(self, keys: set[int]) -> None:
        old = keys.intersection(self.expected)
        self.positions.remove_all(list(old))
        self.expected = [key for key in self.expected if key not in old]

    @rule(low=KEYS, high=KEYS, limit=st.integers(1, 20))
    def look(self, low: int, high: int, limit: int) -> None:
        expected, positions = self.expected, self.positions
        within = expected[bisect_left(expected, low) : bisect_right(expected, high)]
        assert positions.between(low, high, limit) == within[:limit]
        if low <= high:
            assert positions.count(low, high) == len(within)
        assert positions.heads(limit) == expected[:limit]
        assert positions.after(low) == next((key for key in expected if key > low), None)
        assert positions.before(low) == next((key for key in reversed(expected) if key < low), None)

    @invariant()
    def it_is_the_same(self) -> None:
        assert list(self.positions) == self.expected
        assert len(self.positions) == len(self.expected)
        ends = (self.expected[0], self.expected[-1]) if self.expected else (None, None)
        assert (self.positions.first(), self.positions.last()) == ends


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_keys, "_CHUNK", 4)


TestSortedKeys = PositionsMachine.TestCase
TestSortedKeys.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
