"""Queue history in the console."""

from __future__ import annotations

import re
from itertools import pairwise
from unittest import mock

from console.browser import Browser, FreshDaemon
from daemon import eventually
from openmsmq.console import tiles
from openmsmq.console.queue_history import (
    DAY_SPAN,
    DAY_STEP,
    SPAN,
    STEP,
    QueueFigures,
    QueueHistory,
    QueuePoint,
    record_queues,
    step_of,
)


def row(name: str, messages: int, came: int = 0, left: int = 0) -> QueueFigures:
    return QueueFigures(name, messages, came, left)


def test_a_queue_has_a_point_per_sample_although_only_changes_are_stored() -> None:
    history = QueueHistory()
    for step, messages in enumerate((5, 5, 7)):
        history.note([row("p1", messages)], 1000 + step * STEP)
    assert [(point.at, point.messages) for point in history.of("p1")] == [(1000, 5), (1010, 5), (1020, 7)]
    assert history.of("p2") == []
    assert history.bytes == 16 * (2 + 1), "two changes in the hour, one look of the day"


def test_samples_are_at_least_ten_seconds_apart() -> None:
    history = QueueHistory()
    history.note([row("p1", 1)], 1000)
    history.note([row("p1", 9)], 1000 + STEP - 1)
    assert [point.messages for point in history.of("p1")] == [1]


def test_ten_minutes_and_an_hour_have_ten_seconds_and_a_day_has_minutes() -> None:
    history = QueueHistory()
    for step in range(int(2 * DAY_SPAN / DAY_STEP)):
        history.note([row("p1", step, step, step), row("p2", 3)], step * DAY_STEP)
    last = (2 * DAY_SPAN / DAY_STEP - 1) * DAY_STEP
    day = history.of("p1", "24h")
    assert (day[0].at, day[-1].at, len(day)) == (last - DAY_SPAN, last, DAY_SPAN / DAY_STEP + 1)
    assert [point.messages for point in day[-2:]] == [2 * DAY_SPAN / DAY_STEP - 2, 2 * DAY_SPAN / DAY_STEP - 1]
    assert {point.messages for point in history.of("p2", "24h")} == {3} and step_of(day) == DAY_STEP
    for step in range(1, 500):
        history.note([row("p1", step)], last + step * STEP)
    hour, minutes = history.of("p1", "1h"), history.of("p1")
    assert (len(hour), hour[-1].at - hour[0].at) == (SPAN / STEP + 1, SPAN) and step_of(hour) == STEP
    assert (len(minutes), minutes[-1].at - minutes[0].at) == (61, 600)


def test_after_the_clock_is_set_back_history_continues() -> None:
    history = QueueHistory()
    for at in (90_000, 90_010, 1000, 1010):
        history.note([row("p1", at)], at)
    assert [point.at for point in history.of("p1")] == [1000, 1010]
    assert [point.at for point in history.of("p1", "24h")] == [1000] and history.bytes == 16 * 3


def test_queues_that_are_gone_are_forgotten() -> None:
    history = QueueHistory()
    history.note([row("p1", 1), row("p2", 3)], 1000)
    history.note([row("p2", 3)], 1000 + STEP)
    assert history.of("p1") == [] and history.bytes == 16 * (1 + 2), "the day looks once a minute"


def test_the_memory_is_bounded_and_the_oldest_is_forgotten_first() -> None:
    most = 16 * 1000
    history = QueueHistory(most)
    names = [f"p{number}" for number in range(20)]
    for step in range(2000):
        history.note([row(name, step, step, step) for name in names], step * STEP)
        assert history.bytes <= most
    hour = history.of("p1", "1h")
    assert len(hour) > 10 and hour[-1].messages == 1999
    assert all(after.messages == before.messages + 1 for before, after in pairwise(hour))


def test_counters_beyond_32_bits_are_kept_modulo() -> None:
    history = QueueHistory()
    history.note([row("p1", 1, (1 << 32) + 5, 1 << 33)], 1000)
    history.note([row("p1", 1, (1 << 32) + 25, (1 << 33) + 10)], 1010)
    assert tiles.flow_of(history.of("p1")) == [(1010, 2.0, 1.0)]


def test_rates_of_a_queue_are_none_across_a_restart_of_the_daemon() -> None:
    points = [QueuePoint(0, 0, 10, 4), QueuePoint(10, 0, 30, 14), QueuePoint(20, 0, 1, 1), QueuePoint(30, 0, 2, 1)]
    assert tiles.flow_of(points) == [(10, 2.0, 1.0), (30, 0.1, 0.0)]


def test_a_line_has_a_gap_where_samples_are_missing() -> None:
    assert tiles.evenly([0, 10.4, 30, 80], [1, 2, 3, 4]) == [1, 2, 2, 3, None, None, None, None, 4]
    assert tiles.evenly([0, 61, 180], [1, 2, 3], 60) == [1, 2, 2, 3]
    assert tiles.evenly([], []) == [] and tiles.even_times(5, 3) == [5, 15, 25] == tiles.even_times(5, 3, 10)


def test_figures_are_noted_until_the_daemon_is_gone_and_a_failure_is_passed_over() -> None:
    history, answers = QueueHistory(), [b"p1 7 9 2\no3 1 1 0", ValueError("x"), ConnectionError("gone")]

    def ask(operation: str) -> mock.Mock:
        answer = answers.pop(0)
        return mock.Mock(result=mock.Mock(side_effect=[({}, answer)] if isinstance(answer, bytes) else answer))

    record_queues(mock.Mock(ask=ask), history, wait=lambda seconds: None)
    assert [point[1:] for point in history.of("p1")] == [(7, 9, 2)] and len(history.of("o3")) == 1 and not answers


def test_the_history_of_a_queue_is_recorded_without_viewers(own: FreshDaemon) -> None:
    """History is recorded while no page is open. A monitor without administrator rights can see it."""
    queue = own.client.post("/queues", name="alone")["id"]
    own.client.send(queue, "a", "b")
    browser = Browser(own.daemon)
    browser.login()

    def charts() -> bool:
        page = browser.ask("GET", f"/queues/{queue}/activity?range=1h").text
        return "<figure" in page and "known since" in page

    eventually(charts, 120)
    assert browser.ask("GET", f"/queues/{queue}/activity?range=week").status == 400
    for span in ("10m", "24h"):
        page = browser.ask("GET", f"/queues/{queue}/activity?range={span}").text
        assert re.search(rf'range={span}" aria-current="true"', page)
