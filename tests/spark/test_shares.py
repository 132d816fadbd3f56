"""Distribution of a trigger's row limit among queues."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from openmsmq.spark.shares import shares


@given(st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 10**6)), st.integers(0, 10**7))
def test_a_limit_is_used_fully_and_in_proportion(waiting: dict[str, int], amount: int) -> None:
    given = shares(waiting, amount)
    total = sum(waiting.values())
    assert sum(given.values()) == (amount if total else 0)
    for queue, count in waiting.items():
        assert abs(given[queue] * total - amount * count) < max(1, total)


def test_the_remainder_goes_to_the_first_queues() -> None:
    assert shares({"a": 1000, "b": 1, "c": 1}, 1) == {"a": 1, "b": 0, "c": 0}
    assert shares({"b": 1, "c": 1, "a": 1000}, 1) == {"b": 1, "c": 0, "a": 0}
    assert shares({"a": 60, "b": 60, "idle": 0}, 10) == {"a": 5, "b": 5, "idle": 0}
