"""How queues change from look to look."""

from __future__ import annotations

from openmsmq.operating.overview import Depth, rows


def depth(messages: int) -> Depth:
    return Depth(messages, 10 * messages, 0, "")


def test_a_rate_is_the_change_of_the_depth() -> None:
    first = rows({"a": depth(1), "b": depth(5)}, None, 0)
    assert [(row.name, row.change) for row in first] == [("b", None), ("a", None)]
    second = rows({"a": depth(9), "b": depth(5), "new": depth(2)}, {"a": depth(1), "b": depth(5)}, 2.0)
    assert [(row.name, row.change) for row in second] == [("a", 4.0), ("b", 0.0), ("new", 1.0)]
