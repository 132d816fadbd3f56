"""Figures of the last ten minutes by the second, and of the last day by the minute; they are gone with this process."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from openmsmq.model.errors import MsmqError
from openmsmq.operating.series import Range, Rates
from openmsmq.processes.link import Link

logger = logging.getLogger(__name__)

SECOND: Final = 1.0  # between two samples, unless they take long
MINUTE: Final = 60.0
_SHARE: Final = 0.02  # of the time, at most, that samples may take
_RECENT, _DAY = 600, 24 * 60  # samples


class Sample(NamedTuple):
    """Of all application queues, at a time in seconds since 1970: messages that are there, and, counted since the start
    of the daemon, those that came, that left, and that nobody received (which are among those that left)."""

    at: float
    messages: int
    came: int
    left: int
    dead: int


def sample_of(figures: Mapping[str, Any], at: float) -> Sample:
    """A sample of the figures that the daemon gives."""
    return Sample(
        at, figures["messages"]["queue"], figures["messages_in_total"]["queue"], figures["messages_out_total"]["queue"],
        sum(figures["messages_dead_total"].values()),
    )  # fmt: skip


def rates(samples: Iterable[Sample]) -> list[Rates]:
    """Between each sample and the one before it; none across a restart of the daemon, which begins to count anew."""
    found = []
    for before, after in pairwise(samples):
        seconds = after.at - before.at
        if seconds > 0 and after.came >= before.came and after.left >= before.left and after.dead >= before.dead:
            found.append(Rates(
                after.at, after.messages, (after.came - before.came) / seconds, (after.left - before.left) / seconds,
                (after.dead - before.dead) / seconds,
            ))  # fmt: skip
    return found


class History:
    """Threads may share it."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._recent: Final[deque[Sample]] = deque(maxlen=_RECENT + 1)
        self._day: Final[deque[Sample]] = deque(maxlen=_DAY + 1)

    def add(self, sample: Sample) -> None:
        with self._lock:
            self._recent.append(sample)
            if not self._day or sample.at - self._day[-1].at >= MINUTE:
                self._day.append(sample)

    def rates(self, span: Range) -> list[Rates]:
        """The oldest first."""
        with self._lock:
            samples = list(self._recent if span == "10m" else self._day)
        return rates(samples)

    def latest(self) -> Rates | None:
        """Of the last two samples; None before there are two."""
        with self._lock:
            samples = [self._recent[index] for index in (-2, -1)] if len(self._recent) > 1 else []
        return next(iter(rates(samples)), None)


def record(link: Link, history: History, wait: Callable[[float], object] = time.sleep) -> None:
    """Take a sample a second, or less often where the daemon has so many queues that this would take more than two
    hundredths of the time; until the daemon is gone."""
    while True:
        started = time.monotonic()
        try:
            history.add(sample_of(link.call("figures"), time.time()))
        except (MsmqError, ConnectionError) as error:
            logger.warning("no more figures for the charts: %s", error)
            return
        wait(max(SECOND, (time.monotonic() - started) / _SHARE))
