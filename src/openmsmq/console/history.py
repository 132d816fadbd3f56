"""Figures of the last 10 minutes per second and of the last day per minute, in memory only."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from openmsmq.admin.series import Range, Rates
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.processes.link import DaemonLink

logger = logging.getLogger(__name__)

SECOND: Final = 1.0  # seconds between two samples, unless sampling takes long
MINUTE: Final = 60.0
_SHARE: Final = 0.02  # maximum share of the time spent on samples
_RECENT, _DAY = 600, 24 * 60  # samples


class Timed(NamedTuple):
    """Number of operations since the start of the daemon, and their total duration."""

    times: int = 0
    seconds: float = 0.0


class Sample(NamedTuple):
    """Figures of all application queues at the time `at` (seconds since 1970). `messages` is the current number.
    Counted since the start of the daemon are `came` (enqueued), `left` (removed) and `dead` (removed without being
    received, included in `left`). Then disk syncs, RPC calls, and the free bytes of the disk (None if unknown)."""

    at: float
    messages: int
    came: int
    left: int
    dead: int
    syncs: Timed = Timed()
    calls: Timed = Timed()
    free: int | None = None


class Sums(NamedTuple):
    """Numbers of queues and of their messages, by kind of queue."""

    queues: Mapping[str, int]
    messages: Mapping[str, int]


def sample_of(figures: Mapping[str, Any], at: float, free: int | None) -> Sample:
    """Convert the figures of the daemon to a sample."""
    return Sample(
        at, figures["messages"]["queue"], figures["messages_in_total"]["queue"], figures["messages_out_total"]["queue"],
        sum(figures["messages_dead_total"].values()), _timed([figures["store_sync_duration_seconds"]]),
        _timed([numbers for _, _, *numbers in figures["rpc_duration_seconds"]]), free,
    )  # fmt: skip


def _timed(histograms: Iterable[Sequence[float]]) -> Timed:
    """Add up histograms, each of which is a count per bucket followed by the sum of the seconds."""
    found = [(sum(counts), seconds) for *counts, seconds in histograms]
    return Timed(int(sum(count for count, _ in found)), sum(seconds for _, seconds in found))


def rates(samples: Iterable[Sample]) -> list[Rates]:
    """Return the rates between each sample and the one before it; none across a restart of the daemon, which resets the
    counters."""
    found = []
    for before, after in pairwise(samples):
        seconds = after.at - before.at
        if seconds > 0 and after.came >= before.came and after.left >= before.left and after.dead >= before.dead:
            found.append(Rates(
                after.at, after.messages, (after.came - before.came) / seconds, (after.left - before.left) / seconds,
                (after.dead - before.dead) / seconds, _mean(before.syncs, after.syncs),
                _mean(before.calls, after.calls), after.free,
            ))  # fmt: skip
    return found


def _mean(before: Timed, after: Timed) -> float | None:
    times = after.times - before.times
    return max(0.0, after.seconds - before.seconds) / times if times > 0 else None


class FigureHistory:
    """Samples of the last 10 minutes and of the last day. Thread-safe."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._recent: Final[deque[Sample]] = deque(maxlen=_RECENT + 1)
        self._day: Final[deque[Sample]] = deque(maxlen=_DAY + 1)
        self.sums: Sums | None = None  # of the latest figures; None before the first sample
        self._taken: float | None = None  # monotonic time of the last sample

    def add(self, sample: Sample) -> None:
        with self._lock:
            self._taken = time.monotonic()
            if self._recent and self._recent[-1].at - sample.at >= MINUTE:  # the clock was set back
                self._recent.clear()
                self._day.clear()
            self._recent.append(sample)
            if not self._day or sample.at - self._day[-1].at >= MINUTE:
                self._day.append(sample)

    def rates(self, span: Range) -> list[Rates]:
        """Return the rates of a time range, oldest first."""
        with self._lock:
            samples = list(self._recent if span == "10m" else self._day)
        return rates(samples)

    @property
    def age(self) -> float | None:
        """Seconds since the last sample; None before the first one."""
        with self._lock:
            return None if self._taken is None else time.monotonic() - self._taken

    def latest(self) -> Rates | None:
        """Return the rates of the last two samples; None before there are two."""
        with self._lock:
            samples = [self._recent[index] for index in (-2, -1)] if len(self._recent) > 1 else []
        return next(iter(rates(samples)), None)


def record(
    link: DaemonLink, history: FigureHistory, directory: str | Path, wait: Callable[[float], object] = time.sleep
) -> None:  # fmt: skip
    """Take one sample per second until the daemon closes the connection; less often if sampling would take more than 2%
    of the time. A sample includes the free space on the disk of `directory`. A failed sample is left out: charts have a
    gap there, and pages show the age of the figures."""
    while True:
        started = time.monotonic()
        try:
            figures = link.call("figures")
            history.add(sample_of(figures, time.time(), _free(directory)))
            history.sums = Sums(figures.get("queues", {}), figures["messages"])
        except ConnectionError as error:
            logger.info("the daemon is gone, no more figures for the charts: %s", error)
            return
        except Exception as error:
            LEFT_OUT.note("figures for the charts", "a sample", error)
        wait(max(SECOND, (time.monotonic() - started) / _SHARE))


def _free(directory: str | Path) -> int | None:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None
