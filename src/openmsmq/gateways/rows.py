"""Queues as rows for lists, from figures that need no message to be read."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from typing import Any, Final

from openmsmq.admin.naming import SYSTEM_QUEUES
from openmsmq.gateways.growth import DepthTrend
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.queueing.authorization import Caller, Right
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import ConnectorQueue, OutgoingQueue
from openmsmq.queueing.queue import (
    APPLICATION_QUEUES,
    SYSTEM_DEADLETTER,
    SYSTEM_DEADXACT,
    SYSTEM_JOURNAL,
    Queue,
    QueueKind,
)
from openmsmq.queueing.registry import JOURNAL_BIT

_SYSTEM: Final = {SYSTEM_JOURNAL: "journal", SYSTEM_DEADLETTER: "deadletter", SYSTEM_DEADXACT: "xactdeadletter"}
_NUMBERS: Final = {name: number for number, name in _SYSTEM.items()}
_LETTERS: Final = {
    QueueKind.PRIVATE: "p", QueueKind.PUBLIC: "p", QueueKind.SUBQUEUE: "s", QueueKind.OUTGOING: "o",
    QueueKind.CONNECTOR: "c",
}  # fmt: skip
_ID: Final = re.compile(r"([psoc])([0-9]{1,10})(j?)")
#: Queue kinds in metrics and lists; `AWAITING` is not shown.
KINDS: Final = {
    QueueKind.PRIVATE: "queue", QueueKind.PUBLIC: "queue", QueueKind.SUBQUEUE: "subqueue",
    QueueKind.JOURNAL: "journal", QueueKind.OUTGOING: "outgoing", QueueKind.CONNECTOR: "connector",
}  # fmt: skip


def kind_of(queue: Queue) -> str | None:
    """Return the kind of a queue for display; None if it is not shown."""
    if queue.kind is QueueKind.SYSTEM:
        return "journal" if queue.number == SYSTEM_JOURNAL else "deadletter"
    return KINDS.get(queue.kind)


def id_of(queue: Queue) -> str:
    """Return the identifier of a queue for use in URL paths, where names could contain any character. Numbers are never
    reused."""
    if queue.kind is QueueKind.SYSTEM:
        return _SYSTEM[queue.number]
    if queue.kind is QueueKind.JOURNAL:
        assert queue.owner is not None
        return f"{id_of(queue.owner)}j"
    return f"{_LETTERS[queue.kind]}{queue.number}"


def find(manager: QueueManager, identifier: str) -> Queue | None:
    """Return the queue with an identifier; None if there is none."""
    queues = manager.registry.queues
    if identifier in _NUMBERS:
        return queues.get(_NUMBERS[identifier])
    found = _ID.fullmatch(identifier)
    if found is None:
        return None
    queue = queues.get(int(found.group(2)))
    if queue is None or kind_of(queue) is None or queue.kind is QueueKind.JOURNAL:
        return None
    journal = queues.get(queue.number | JOURNAL_BIT) if found.group(3) else queue
    return journal if journal is not None and id_of(journal) == identifier else None


def visible(manager: QueueManager, growth: DepthTrend, caller: Caller) -> Iterator[dict[str, Any] | None]:
    """Yield a row for each queue that the caller may see, and None for the others, so that the caller can yield to the
    event loop. A queue whose row fails is left out."""

    def shown(queue: Queue) -> dict[str, Any] | None:
        is_listed = kind_of(queue) is not None and (queue.kind is not QueueKind.JOURNAL or _is_used(queue))
        return row(manager, growth, queue) if is_listed and is_seen(manager, queue, caller) else None

    queues = list(manager.registry.queues.values())
    return LEFT_OUT.each("lists of queues", queues, shown, lambda queue: queue.properties.path_name)


def depths(manager: QueueManager) -> Iterator[str]:
    """Yield a line for each shown queue: identifier, messages, and messages enqueued and removed since the start."""
    for queue in list(manager.registry.queues.values()):
        if kind_of(queue) is not None and (queue.kind is not QueueKind.JOURNAL or _is_used(queue)):
            yield f"{id_of(queue)} {len(queue)} {queue.came} {queue.left}"


def deepest(manager: QueueManager, growth: DepthTrend, count: int) -> list[dict[str, Any]]:
    """Return rows of the application, dead-letter and outgoing queues with the most messages."""
    kinds = ("queue", "deadletter", "outgoing")
    found = (queue for queue in list(manager.registry.queues.values()) if kind_of(queue) in kinds and len(queue))
    return [row(manager, growth, queue) for queue in heapq.nlargest(count, found, key=len)]


def is_seen(manager: QueueManager, queue: Queue, caller: Caller) -> bool:
    """Whether lists show a queue to a caller. The right to see the permissions, which the owner always has, is
    sufficient."""
    return any(manager.authorization.allows(caller, queue, right) for right in (Right.SEE, Right.GET_PERMISSIONS))


def _is_used(journal: Queue) -> bool:
    return bool(journal.entries) or (journal.owner is not None and journal.owner.properties.journaling)


def row(manager: QueueManager, growth: DepthTrend, queue: Queue) -> dict[str, Any]:
    """Return the row of a queue in a list. Quotas in kilobytes; `open` is the name by which clients open it."""
    properties = queue.properties
    guard = queue.owner or queue
    name, opened = _names(queue)
    journal = queue.journal if queue.kind in APPLICATION_QUEUES else None
    return {
        "id": id_of(queue), "kind": kind_of(queue), "name": name, "open": opened, "label": guard.properties.label,
        "transactional": guard.properties.transactional, "journaling": properties.journaling,
        "came": queue.came, "left": queue.left, "grown": growth.of(queue),
        "messages": len(queue), "bytes": queue.total_bytes,
        "journal_messages": 0 if journal is None else len(journal),
        "journal_bytes": 0 if journal is None else journal.total_bytes,
        "quota": properties.quota, "handles": queue.openers, "readers": queue.receivers, "waiting": queue.waiters,
        "exclusive": bool(queue.exclusive_receivers or queue.exclusive_peekers),
        "state": queue.state(manager.outgoing.online).value if isinstance(queue, OutgoingQueue) else "",
    }  # fmt: skip


def _names(queue: Queue) -> tuple[str, str]:
    """Return a queue's display name, and the name to open it by."""
    if queue.kind is QueueKind.SYSTEM:
        short = _SYSTEM[queue.number]
        return short, SYSTEM_QUEUES[short]
    if queue.kind is QueueKind.JOURNAL:
        assert queue.owner is not None
        path = queue.owner.properties.path_name
        return f"{path};journal", f"{path};journal"
    if isinstance(queue, OutgoingQueue):
        return str(queue.destination), str(queue.destination)
    if isinstance(queue, ConnectorQueue):
        return str(queue.format_name), str(queue.format_name)
    return queue.properties.path_name, queue.properties.path_name
