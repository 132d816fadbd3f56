"""How queues change from look to look. The protocols give depths and sizes, so a rate here is that of the
depth: what came less what went. Arrivals and departures by themselves are not known, nor who waits for messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from openmsmq.client.calls import UNANSWERED
from openmsmq.client.sync import QueueManager
from openmsmq.model.errors import MsmqError, ReceiveTimeout
from openmsmq.operating.naming import DEAD_LETTER_QUEUES, path_of


class Depth(NamedTuple):
    """What a queue holds; `state` is empty for one of this machine."""

    messages: int
    bytes: int
    journal: int
    state: str


class Row(NamedTuple):
    """`change`: messages in a second since the last look, None at the first. `oldest`: when the message arrived or was
    sent that is first in the queue, in seconds since 1970; None where the queue is empty or may not be read."""

    name: str
    depth: Depth
    change: float | None
    oldest: int | None = None


def look(qm: QueueManager) -> dict[str, Depth]:
    """Each private queue, the dead-letter queues, and outgoing queues that are in use. What is refused is left out."""
    depths = {}
    for name in (*qm.queues(), *DEAD_LETTER_QUEUES):
        try:
            counts = qm.counts(path_of(name))
        except UNANSWERED:
            raise
        except MsmqError:  # deleted meanwhile, or not for this caller
            continue
        depths[name] = Depth(counts["message_count"], counts["bytes_in_queue"], counts["journal_message_count"], "")
    for queue in qm.outgoing():
        depths[queue["format_name"]] = Depth(queue["message_count"], queue["bytes_in_queue"], 0, queue["state"])
    return depths


def rows(now: Mapping[str, Depth], before: Mapping[str, Depth] | None, seconds: float) -> list[Row]:
    """The fullest first; of the same depth those that change most."""
    found = []
    for name, depth in now.items():
        change = None
        if before is not None and seconds > 0:
            known = before.get(name)
            change = (depth.messages - (known.messages if known else 0)) / seconds
        found.append(Row(name, depth, change))
    return sorted(found, key=lambda row: (-row.depth.messages, -abs(row.change or 0), row.name.lower()))


def with_age(qm: QueueManager, shown: Iterable[Row]) -> list[Row]:
    """The rows with the time of the message that is first, which takes a look into each queue that is not empty."""
    return [row._replace(oldest=_first(qm, row)) if row.depth.messages else row for row in shown]


def _first(qm: QueueManager, row: Row) -> int | None:
    if row.depth.state:
        return None  # messages of outgoing queues are for administrators
    try:
        with qm.open(path_of(row.name), "peek") as opened:
            message = opened.peek(0)
    except UNANSWERED:
        raise
    except (MsmqError, ReceiveTimeout):
        return None
    return message.arrival_time or message.sent_time
