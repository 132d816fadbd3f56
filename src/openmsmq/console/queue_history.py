"""How many messages queues had, and how many came and left, by queue: every ten seconds for an hour, and every minute
for a day.

A thread asks the daemon for them, whether anybody looks or not. A queue has an entry only where something has changed.
An entry takes 16 bytes. An idle queue takes about 600 bytes, one that changes all the time 29 kB. All entries together
take `MOST_BYTES` at most: where busy queues need more, the oldest minutes of all queues are forgotten earlier.
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

STEP, SPAN = 10.0, 3600.0  # seconds between two looks, and that are kept
DAY_STEP, DAY_SPAN = 60.0, 86400.0  # the same of the day
MOST_BYTES: Final = 128 << 20  # of entries
_FIELDS: Final = 4  # of an entry: seconds since 1970, messages, came, left
_ENTRY: Final = 4 * _FIELDS  # bytes
_MASK: Final = 0xFFFFFFFF
_SHARE: Final = 0.02  # of the time, at most, that looks may take

PastRange = Literal["10m", "1h", "24h"]
_SECONDS: Final[dict[PastRange, float]] = {"10m": 600.0, "1h": SPAN, "24h": DAY_SPAN}


class QueueFigures(NamedTuple):
    """A queue as it is: `came` and `left` are counted since the start of the daemon."""

    id: str
    messages: int
    came: int
    left: int


class QueuePoint(NamedTuple):
    """A queue at a time in seconds since 1970; `came` and `left` are counted since the start of the daemon, modulo
    2**32."""

    at: float
    messages: int
    came: int
    left: int


class _Ring:
    """Looks that are `step` seconds apart, for `span` seconds."""

    def __init__(self, step: float, span: float) -> None:
        self.step: Final = step
        self.span: Final = span
        self.looks: Final[deque[float]] = deque()
        self.entries = 0
        self._known: Final[dict[str, array[int]]] = {}

    def is_due(self, now: float) -> bool:
        return not self.looks or now - self.looks[-1] >= self.step

    def note(self, rows: Iterable[QueueFigures], now: float) -> None:
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
        """Drop entries older than `oldest`, except the last one before it of each queue, which has the state at that
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
        """The oldest eighth of the looks, two at least."""
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
    """Figures of all queues, by their identifiers. Thread-safe."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        """`most` bytes of entries are kept."""
        self._lock: Final = threading.Lock()
        self._most: Final = most
        self._hour: Final = _Ring(STEP, SPAN)
        self._day: Final = _Ring(DAY_STEP, DAY_SPAN)

    def note(self, rows: Iterable[QueueFigures], now: float) -> None:
        """Keep how all queues are, and forget those that are not among them. Looks that come too early are left out."""
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
        """Bytes of entries."""
        return _ENTRY * (self._hour.entries + self._day.entries)

    def of(self, queue: str, span: PastRange = "10m") -> list[QueuePoint]:
        """The oldest first, one for each look since the queue is known; a look finds what the last change left."""
        with self._lock:
            ring = self._day if span == "24h" else self._hour
            since = ring.looks[-1] - _SECONDS[span] if ring.looks else 0.0
            return ring.of(queue, since)


def step_of(points: list[QueuePoint]) -> float:
    """Seconds between two looks."""
    gaps = sorted(after.at - before.at for before, after in pairwise(points))
    return DAY_STEP if gaps and gaps[len(gaps) // 2] >= DAY_STEP / 2 else STEP


def record_queues(link: DaemonLink, history: QueueHistory, wait: Callable[[float], object] = time.sleep) -> None:
    """Note all queues every ten seconds, or less often where that would take more than two hundredths of the time;
    return when the daemon is gone."""
    while True:
        started = time.monotonic()
        try:
            _, data = link.ask("depths").result()
            history.note(map(_figures, bytes(data).decode().splitlines()), time.time())
        except ConnectionError as error:
            logger.info("the daemon is gone, no more figures of queues: %s", error)
            return
        except Exception as error:
            LEFT_OUT.note("figures of queues", "a look", error)
        wait(max(STEP, (time.monotonic() - started) / _SHARE))


def _figures(line: str) -> QueueFigures:
    name, messages, came, left = line.split(" ")
    return QueueFigures(name, int(messages), int(came), int(left))
