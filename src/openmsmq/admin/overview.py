"""Changes of queues between samples, which are taken through the protocols or the HTTP API.

The protocols provide depths and sizes, so that only the net change of the depth can be computed. The HTTP API also
provides the numbers of messages that were enqueued and removed, and of waiting readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, Protocol

from openmsmq.admin.naming import DEAD_LETTER_QUEUES, path_of
from openmsmq.client.arguments import COUNTS
from openmsmq.client.calls import UNANSWERED
from openmsmq.client.sync import QueueManager
from openmsmq.model.errors import MsmqError, QueueNotFound, ReceiveTimeout

Order = Literal["messages", "grown"]


class Depth(NamedTuple):
    """Figures of a queue; `state` is empty for a queue of this machine. `came` and `left` count messages since the
    start of the daemon, `waiting` is the number of waiting reads, `grown` the growth in messages over the last five
    minutes; None if unknown."""

    name: str
    messages: int
    bytes: int
    journal: int
    state: str
    came: int | None = None
    left: int | None = None
    waiting: int | None = None
    grown: int | None = None


class QueueRates(NamedTuple):
    """Messages per second since the previous sample, None for the first one and if unknown: `change` of the depth,
    messages that `came`, and messages that `left`. `oldest`: when the first message of the queue arrived or was sent,
    in seconds since 1970; None if the queue is empty or may not be read."""

    depth: Depth
    change: float | None
    came: float | None
    left: float | None
    oldest: int | None = None


class DepthSource(Protocol):
    """A source of depths. Its keys identify queues."""

    @property
    def counts(self) -> bool:
        """Whether the source provides the figures that may be None."""

    @property
    def seconds(self) -> float:
        """Maximum age of its figures in seconds."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Queues that the last sample does not include, with the name of the error."""

    def sample(self) -> dict[str, Depth]:
        """Return the depth of every queue that the caller may see."""

    def oldest(self, key: str, depth: Depth) -> int | None:
        """Return when the first message of a queue arrived, in seconds since 1970; None if there is none or it may not
        be read."""


class ByProtocols:
    """Depths of private queues, dead-letter queues and active outgoing queues through the protocols. `left_out` has the
    queues that the server does not show to this caller, with the name of the error."""

    counts = False
    seconds: float = 0.0

    def __init__(self, qm: QueueManager) -> None:
        self._qm: Final = qm
        self.left_out: dict[str, str] = {}

    def sample(self) -> dict[str, Depth]:
        depths = {}
        self.left_out = {}
        names = [*self._qm.queues(), *DEAD_LETTER_QUEUES]
        for name, counts in zip(names, self._qm.management_of_each(map(path_of, names), *COUNTS), strict=True):
            if isinstance(counts, QueueNotFound):  # deleted meanwhile
                continue
            if isinstance(counts, MsmqError):
                self.left_out[name] = counts.name
                continue
            if isinstance(counts, Exception):
                raise counts
            journal = counts["journal_message_count"]
            depths[name] = Depth(name, counts["message_count"], counts["bytes_in_queue"], journal, "")
        for queue in self._qm.outgoing():
            name = queue["format_name"]
            depths[name] = Depth(name, queue["message_count"], queue["bytes_in_queue"], 0, queue["state"])
        return depths

    def oldest(self, key: str, depth: Depth) -> int | None:
        if depth.state:
            return None  # only administrators may read messages of outgoing queues
        try:
            with self._qm.open(path_of(key), "peek") as opened:
                message = opened.peek(0)
        except UNANSWERED:
            raise
        except (MsmqError, ReceiveTimeout):
            return None
        return message.arrival_time or message.sent_time


def rows(
    now: Mapping[str, Depth], before: Mapping[str, Depth] | None, seconds: float, order: Order = "messages"
) -> dict[str, QueueRates]:
    """Return the rates sorted by `order`, largest first; ties are sorted by change."""
    found = {}
    for key, depth in now.items():
        change = came = left = None
        if before is not None and seconds > 0:
            known = before.get(key)
            change = (depth.messages - (known.messages if known else 0)) / seconds
            came = _rate(depth.came, known.came if known else 0, seconds)
            left = _rate(depth.left, known.left if known else 0, seconds)
        found[key] = QueueRates(depth, change, came, left)
    return dict(sorted(found.items(), key=lambda item: _place(item[1], order)))


def _rate(now: int | None, before: int | None, seconds: float) -> float | None:
    """Return the rate; None without two samples, and across a restart of the daemon, which resets the counters."""
    return None if now is None or before is None or now < before else (now - before) / seconds


def _place(row: QueueRates, order: Order) -> tuple[int, float, str]:
    most = row.depth.messages if order == "messages" else row.depth.grown or 0
    return -most, -max(abs(row.change or 0), row.came or 0, row.left or 0), row.depth.name.lower()


def with_age(source: DepthSource, shown: Iterable[tuple[str, QueueRates]]) -> list[QueueRates]:
    """Add the time of the first message to rows; this reads from each queue that is not empty."""
    return [row._replace(oldest=source.oldest(key, row.depth)) if row.depth.messages else row for key, row in shown]
