"""How the limits of a batch are shared by the queues of a stream, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from openmsmq.spark.streaming import MsmqStreamReader


class FakeBatches:
    """Queues of messages of one size. At least one message is taken, also if it is larger than the limit."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = sizes
        self.asked: dict[str, int | None] = {}
        self.removed: list[str] = []

    def take(self, queue: str, value: Any, target: int | None, rows: int | None, size: int | None) -> Any:
        self.asked[queue] = size
        each = self._sizes[queue]
        return SimpleNamespace(value=value + 1, bytes=each if size is None else max(1, size // each) * each)

    def remove(self, queue: str, value: Any) -> None:
        self.removed.append(queue)


def taken(batches: FakeBatches, given: dict[str, tuple[int | None, int | None]]) -> dict[str, Any]:
    reader: Any = SimpleNamespace(batches=batches, _value=lambda start, queue: 0, _target=lambda queue: None)
    end, rest = MsmqStreamReader._take(reader, {}, given)
    assert rest == {}
    return end


def test_what_a_queue_takes_beyond_its_share_is_missing_for_the_next_ones() -> None:
    batches = FakeBatches({"a": 250, "b": 10, "c": 10})
    assert taken(batches, dict.fromkeys("abc", (None, 100))) == {"a": 1, "b": 1}
    assert batches.asked == {"a": 100, "b": 50} and batches.removed == ["c"]


def test_what_a_queue_leaves_is_not_added_to_the_share_of_the_next_one() -> None:
    batches = FakeBatches({"a": 60, "b": 10})
    assert taken(batches, dict.fromkeys("ab", (None, 100))) == {"a": 1, "b": 1}
    assert batches.asked == {"a": 100, "b": 100}


def test_a_share_of_nothing_takes_nothing() -> None:
    batches = FakeBatches({"a": 60, "b": 10, "c": 10})
    assert taken(batches, {"a": (0, None), "b": (None, 0), "c": (5, None)}) == {}
    batches = FakeBatches({"a": 60})
    assert taken(batches, {"a": (5, None)}) == {"a": 1} and batches.asked == {"a": None}
