"""Changes of queues between samples."""

from __future__ import annotations

from openmsmq.admin.overview import Depth, rows


def depth(name: str, messages: int, *counts: int) -> Depth:
    return Depth(name, messages, 10 * messages, 0, "", *counts)


def test_a_rate_is_the_change_of_the_depth() -> None:
    before = {"a": depth("a", 1), "b": depth("b", 5)}
    first = rows(before, None, 0)
    assert [(name, row.change) for name, row in first.items()] == [("b", None), ("a", None)]
    second = rows({"a": depth("a", 9), "b": depth("b", 5), "new": depth("new", 2)}, before, 2.0)
    assert [(name, row.change, row.came) for name, row in second.items()] == [
        ("a", 4.0, None), ("b", 0.0, None), ("new", 1.0, None)
    ]  # fmt: skip


def test_rates_in_and_out_are_those_of_counts() -> None:
    found = rows({"p1": depth("a", 5, 30, 25, 2)}, {"p1": depth("a", 5, 10, 5, 0)}, 4.0)["p1"]
    assert (found.change, found.came, found.left) == (0.0, 5.0, 5.0)


def test_a_queue_that_is_new_has_its_first_rates() -> None:
    found = rows({"p1": depth("a", 2, 6, 4, 0)}, {}, 2.0)["p1"]
    assert (found.came, found.left) == (3.0, 2.0)


def test_a_restart_of_the_daemon_gives_no_rate() -> None:
    found = rows({"p1": depth("a", 5, 3, 0, 0)}, {"p1": depth("a", 5, 10, 5, 0)}, 4.0)["p1"]
    assert (found.change, found.came, found.left) == (0.0, None, None)


def test_among_equal_depths_the_busiest_queue_is_first() -> None:
    before = {"p1": depth("calm", 0, 5, 5, 0), "p2": depth("busy", 0, 0, 0, 0)}
    found = rows({"p1": depth("calm", 0, 5, 5, 0), "p2": depth("busy", 0, 9, 9, 0)}, before, 1.0)
    assert list(found) == ["p2", "p1"]
