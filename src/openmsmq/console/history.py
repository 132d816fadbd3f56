"""Figures of the last ten minutes by the second, and of the last day by the minute; they are gone with this process."""

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

SECOND: Final = 1.0  # between two samples, unless they take long
MINUTE: Final = 60.0
_SHARE: Final = 0.02  # of the time, at most, that samples may take
_RECENT, _DAY = 600, 24 * 60  # samples


class Timed(NamedTuple):
    """How many times something was done since the start of the daemon, and how long all of it took."""

    times: int = 0
    seconds: float = 0.0


class Sample(NamedTuple):
    """Figures of all application queues, at a time in seconds since 1970: current messages, and, counted since the
    start of the daemon, those that came, that left, and that nobody received (which are among those that left). Then
    syncs of the disk, calls by RPC, and bytes of the disk that are free, None where that is not known."""

    at: float
    messages: int
    came: int
    left: int
    dead: int
    syncs: Timed = Timed()
    calls: Timed = Timed()
    free: int | None = None


class Sums(NamedTuple):
    """Queues, and messages in them, by kind of queue."""

    queues: Mapping[str, int]
    messages: Mapping[str, int]


def sample_of(figures: Mapping[str, Any], at: float, free: int | None) -> Sample:
    """A sample of the figures that the daemon gives."""
    return Sample(
        at, figures["messages"]["queue"], figures["messages_in_total"]["queue"], figures["messages_out_total"]["queue"],
        sum(figures["messages_dead_total"].values()), _timed([figures["store_sync_duration_seconds"]]),
        _timed([numbers for _, _, *numbers in figures["rpc_duration_seconds"]]), free,
    )  # fmt: skip


def _timed(histograms: Iterable[Sequence[float]]) -> Timed:
    """Together: each has a count for each bucket, and then the sum of the seconds."""
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
    """Threads may share it."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._recent: Final[deque[Sample]] = deque(maxlen=_RECENT + 1)
        self._day: Final[deque[Sample]] = deque(maxlen=_DAY + 1)
        self.sums: Sums | None = None  # of the last figures; None before the first ones
        self._taken: float | None = None  # seconds of the clock that never goes back

    def add(self, sample: Sample) -> None:
        with self._lock:
            self._taken = time.monotonic()
            self._recent.append(sample)
            if not self._day or sample.at - self._day[-1].at >= MINUTE:
                self._day.append(sample)

    def rates(self, span: Range) -> list[Rates]:
        """The oldest first."""
        with self._lock:
            samples = list(self._recent if span == "10m" else self._day)
        return rates(samples)

    @property
    def age(self) -> float | None:
        """Seconds since the last sample was taken; None before the first one."""
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
    """Take a sample a second, with the free space on the disk of a directory, or less often if that would take more
    than 2% of the time; until the daemon is gone. A failed sample is left out: charts have a gap there, and pages show
    the age of the figures."""
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
