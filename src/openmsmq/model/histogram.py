"""Histogram of durations."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

#: Upper bounds in seconds, 100 µs to 10 s.
BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 10.0)


class Histogram:
    """Number of observations per bucket, and their sum in seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)  # the last is for longer durations
        self.total = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += times
        self.total += seconds * times
