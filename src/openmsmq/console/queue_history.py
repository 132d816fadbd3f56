"""History per queue of messages, arrivals and departures: every 10 seconds for an hour, and every minute for a day.

A thread polls the daemon, even if no page shows the figures. An entry of 16 bytes is added only if the figures of the
queue have changed. An idle queue takes about 600 bytes, a busy queue 29 kB. All entries together take at most
`MOST_BYTES`: if busy queues need more, the oldest samples of all queues are dropped early.
"""

from __future__ import annotations

import logging
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from openmsmq.model.left_out import LEFT_OUT
from openmsmq.processes.link import DaemonLink

logger = logging.getLogger(__name__)

STEP, SPAN = 10.0, 3600.0  # seconds between two samples, and seconds that are kept
DAY_STEP, DAY_SPAN = 60.0, 86400.0  # same for the day
MOST_BYTES: Final = 128 << 20  # maximum total size of the entries
_FIELDS: Final = 4  # fields of an entry: seconds since 1970, messages, came, left
_ENTRY: Final = 4 * _FIELDS  # bytes
_MASK: Final = 0xFFFFFFFF
_SHARE: Final = 0.02  # maximum share of the time spent on samples

PastRange = Literal["10m", "1h", "24h"]
_SECONDS: Final[dict[PastRange, float]] = {"10m": 600.0, "1h": SPAN, "24h": DAY_SPAN}


class QueueFigures(NamedTuple):
    """Current figures of a queue; `came` and `left` are counted since the start of the daemon."""

    id: str
    messages: int
    came: int
    left: int


class QueuePoint(NamedTuple):
    """Figures of a queue at a time in seconds since 1970; `came` and `left` are counted since the start of the daemon,
    modulo 2**32."""

    at: float
    messages: int
    came: int
    left: int


class _Ring:
    """Samples every `step` seconds for `span` seconds."""

    def __init__(self, step: float, span: float) -> None:
        self.step: Final = step
        self.span: Final = span
        self.looks: Final[deque[float]] = deque()
        self.entries = 0
        self._known: Final[dict[str, array[int]]] = {}

    def is_due(self, now: float) -> bool:
        return not self.looks or abs(now - self.looks[-1]) >= self.step

    def note(self, rows: Iterable[QueueFigures], now: float) -> None:
        if self.looks and now < self.looks[-1]:  # the clock was set back: times must increase
            self.looks.clear()
            self._known.clear()
            self.entries = 0
        self.looks.append(now)
        at, seen = int(now), set()
        for name, messages, came, left in rows:
            seen.add(name)
            values = (min(messages, _MASK), came & _MASK, left & _MASK)
            kept = self._known.get(name)
            if kept is None:
                kept = self._known[name] = array("I")
            if tuple(kept[1 - _FIELDS :]) != values:
                kept.extend((at, *values))
                self.entries += 1
        for name in self._known.keys() - seen:
            self.entries -= len(self._known.pop(name)) // _FIELDS
        self.forget(now - self.span)

    def forget(self, oldest: float) -> None:
        """Drop entries older than `oldest`, except the last one of each queue before it, which has the state at that
        time."""
        while self.looks and self.looks[0] < oldest:
            self.looks.popleft()
        first = int(self.looks[0]) if self.looks else int(oldest)
        for kept in self._known.values():
            if len(kept) <= _FIELDS or kept[_FIELDS] > first:
                continue
            gone = _FIELDS
            while gone + _FIELDS < len(kept) and kept[gone + _FIELDS] <= first:
                gone += _FIELDS
            del kept[:gone]
            self.entries -= gone // _FIELDS

    def forget_some(self) -> None:
        """Drop the oldest eighth of the samples, at least two."""
        count = max(2, len(self.looks) // 8)
        self.forget(self.looks[count - 1] + 0.001 if count < len(self.looks) else self.looks[-1])

    def of(self, queue: str, since: float) -> list[QueuePoint]:
        kept = self._known.get(queue)
        if kept is None:
            return []
        found, index, last = [], -_FIELDS, len(kept) - _FIELDS
        for at in self.looks:
            while index < last and kept[index + _FIELDS] <= int(at):
                index += _FIELDS
            if index >= 0 and at >= since:
                found.append(QueuePoint(at, *kept[index + 1 : index + _FIELDS]))
        return found


class QueueHistory:
    """History of all queues, by queue identifier. Thread-safe."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        """Keep at most `most` bytes of entries."""
        self._lock: Final = threading.Lock()
        self._most: Final = most
        self._hour: Final = _Ring(STEP, SPAN)
        self._day: Final = _Ring(DAY_STEP, DAY_SPAN)

    def note(self, rows: Iterable[QueueFigures], now: float) -> None:
        """Record a sample of all queues, and drop queues that are not in it. A sample that comes too early is
        ignored."""
        with self._lock:
            if not self._hour.is_due(now):
                return
            rows = list(rows)
            self._hour.note(rows, now)
            if self._day.is_due(now):
                self._day.note(rows, now)
            for ring in (self._day, self._hour):
                while self.bytes > self._most and len(ring.looks) > 1:
                    ring.forget_some()

    @property
    def bytes(self) -> int:
        """Total size of the entries in bytes."""
        return _ENTRY * (self._hour.entries + self._day.entries)

    def of(self, queue: str, span: PastRange = "10m") -> list[QueuePoint]:
        """Return the points of a queue, oldest first: one per sample since the queue is known."""
        with self._lock:
            ring = self._day if span == "24h" else self._hour
            since = ring.looks[-1] - _SECONDS[span] if ring.looks else 0.0
            return ring.of(queue, since)


def step_of(points: list[QueuePoint]) -> float:
    """Return the seconds between two samples."""
    gaps = sorted(after.at - before.at for before, after in pairwise(points))
    return DAY_STEP if gaps and gaps[len(gaps) // 2] >= DAY_STEP / 2 else STEP


def record_queues(link: DaemonLink, history: QueueHistory, wait: Callable[[float], object] = time.sleep) -> None:
    """Record a sample every 10 seconds until the daemon closes the connection; less often if that would take more than
    2% of the time."""
    while True:
        started = time.monotonic()
        try:
            _, data = link.ask("depths").result()
            history.note(map(_figures, bytes(data).decode().splitlines()), time.time())
        except ConnectionError as error:
            logger.info("connection to the daemon lost; stopped collecting queue figures: %s", error)
            return
        except Exception as error:
            LEFT_OUT.note("figures of queues", "a sample", error)
        wait(max(STEP, (time.monotonic() - started) / _SHARE))


def _figures(line: str) -> QueueFigures:
    name, messages, came, left = line.split(" ")
    return QueueFigures(name, int(messages), int(came), int(left))
