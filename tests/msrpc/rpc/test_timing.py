"""Sampling of timed calls, and exclusions."""

from __future__ import annotations

import random

from msrpc.rpc.timing import STRIDE, Timings


def test_one_of_sixteen_calls_is_timed_whatever_clients_repeat() -> None:
    draw = random.Random(7)
    timings = Timings(lambda *arguments: None, lambda: 0.0, draw.randrange)
    number, timed = 0, []
    while number < 160_000:
        number = timings.next_after(number)
        timed.append(number)
    assert abs(len(timed) - 160_000 / STRIDE) < 400
    for period in (2, 3, 16):
        hit = [sum(1 for number in timed if number % period == rest) for rest in range(period)]
        assert max(hit) < 1.3 * min(hit), (period, hit)


def test_a_call_that_ends_is_observed_with_its_duration() -> None:
    seen: list[tuple[str, int, float]] = []
    now = 5.0
    timings = Timings(lambda *arguments: seen.append(arguments), lambda: now)
    timings.ended("qmcomm", 3, 4.5)
    assert seen == [("qmcomm", 3, 0.5)]
