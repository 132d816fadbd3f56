"""What the console keeps of the past of queues."""

from __future__ import annotations

from typing import Any

from openmsmq.console import tiles
from openmsmq.console.queue_history import SPAN, STEP, QueueHistory, QueuePoint


def row(name: str, messages: int, came: int = 0, left: int = 0) -> dict[str, Any]:
    return {"id": name, "messages": messages, "came": came, "left": left}


def test_a_queue_has_a_point_for_each_look_though_only_changes_are_kept() -> None:
    history = QueueHistory()
    for step, messages in enumerate((5, 5, 7)):
        history.note([row("p1", messages)], 1000 + step * STEP)
    assert [(point.at, point.messages) for point in history.of("p1")] == [(1000, 5), (1010, 5), (1020, 7)]
    assert history.of("p2") == []


def test_looks_are_ten_seconds_apart_at_least() -> None:
    history = QueueHistory()
    assert history.is_due(1000)
    history.note([row("p1", 1)], 1000)
    assert not history.is_due(1000 + STEP - 1) and history.is_due(1000 + STEP)
    history.note([row("p1", 9)], 1000 + STEP - 1)
    assert [point.messages for point in history.of("p1")] == [1]


def test_the_past_is_bounded_and_queues_that_are_gone_are_forgotten() -> None:
    history = QueueHistory()
    for step in range(500):
        history.note([row("p1", step), row("p2", 3)], 1000 + step * STEP)
    found = history.of("p1")
    assert len(found) == SPAN / STEP + 1 and found[-1].messages == 499 and found[0].at == found[-1].at - SPAN
    assert {point.messages for point in history.of("p2")} == {3} and len(history.of("p2")) == len(found)
    history.note([row("p2", 3)], 1000 + 500 * STEP)
    assert history.of("p1") == []


def test_rates_of_a_queue_are_none_across_a_restart_of_the_daemon() -> None:
    points = [QueuePoint(0, 0, 10, 4), QueuePoint(10, 0, 30, 14), QueuePoint(20, 0, 1, 1), QueuePoint(30, 0, 2, 1)]
    assert tiles.flow_of(points) == [(10, 2.0, 1.0), (30, 0.1, 0.0)]


def test_a_line_has_a_gap_where_nobody_looked_for_long() -> None:
    assert tiles.evenly([0, 10.4, 30, 80], [1, 2, 3, 4]) == [1, 2, 2, 3, None, None, None, None, 4]
    assert tiles.evenly([], []) == [] and tiles.even_times(5, 3) == [5, 15, 25]
