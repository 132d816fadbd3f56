"""The figures of a daemon for metrics, keyed by the names of `admin.metrics.FAMILIES`, and the delay of its event
loop."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msrpc.rpc.server import RpcServer
from msrpc.rpc.timing import STRIDE
from openmsmq import __version__
from openmsmq.admin.metrics import KINDS, OTHER_REASON
from openmsmq.compiled import how_it_runs
from openmsmq.gateways.rows import KINDS as KINDS_OF_QUEUES
from openmsmq.gateways.rows import kind_of
from openmsmq.model.histogram import Histogram
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.reasons import REASONS
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import OutgoingQueue, OutgoingState
from openmsmq.queueing.queue import Queue

_SLUGS: Final = {reason.code: reason.slug for reason in REASONS}
_MOST_OPERATIONS: Final = 500  # maximum timed operations; there are fewer
_PERIOD: Final = 0.5  # seconds between two measurements


class LoopDelay:
    """Measures the delay of scheduled calls of the event loop."""

    def __init__(self) -> None:
        self.histogram: Final = Histogram()

    async def watch(self) -> None:
        """Measure periodically until canceled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _PERIOD
            await asyncio.sleep(_PERIOD)
            self.histogram.observe(max(0.0, loop.time() - due))


class Latency:
    """Durations of calls by interface and operation; see `rpc.timing`."""

    def __init__(self, operations: Mapping[str, Sequence[str]]) -> None:
        """`operations`: interface -> names of its operations by number."""
        self._operations: Final = operations
        self._histograms: Final[dict[tuple[str, int], Histogram]] = {}

    def observe(self, interface: str, opnum: int, seconds: float) -> None:
        histogram = self._histograms.get((interface, opnum))
        if histogram is None:
            if len(self._histograms) >= _MOST_OPERATIONS:
                return
            histogram = self._histograms[interface, opnum] = Histogram()
        histogram.observe(seconds, STRIDE)

    def figures(self) -> list[list[Any]]:
        """Return rows of interface, operation, counts and sum."""
        return [
            [interface, self._name(interface, opnum), *histogram.counts, histogram.total]
            for (interface, opnum), histogram in self._histograms.items()
        ]

    def _name(self, interface: str, opnum: int) -> str:
        known = self._operations.get(interface, ())
        return known[opnum] if opnum < len(known) else f"opnum {opnum}"


def of_queues(manager: QueueManager) -> Iterator[dict[str, Any] | None]:
    """Yield None after each queue, so that the caller can yield to the event loop, and finally the totals. A queue
    whose figures cannot be read is left out."""
    sums = _Sums(manager)
    for _ in LEFT_OUT.each("figures of queues", list(manager.registry.queues.values()), sums.add, _name):
        yield None
    for gone, (came, left) in manager.registry.gone.items():
        kind = KINDS_OF_QUEUES.get(gone)  # None for queues that are not shown
        if kind is not None:
            sums.came[_kind(kind)] += came
            sums.left[_kind(kind)] += left
    yield sums.figures()


class _Sums:
    """Sums over the queues of a queue manager, by kind."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager: Final = manager
        self._messages, self._bytes, self._queues, self.came, self.left = (dict.fromkeys(KINDS, 0) for _ in range(5))
        self._states = dict.fromkeys((state.value for state in OutgoingState), 0)
        self._handles = self._waiting = 0

    def add(self, queue: Queue) -> None:
        named, state = kind_of(queue), None
        if isinstance(queue, OutgoingQueue):
            state = queue.state(self._manager.outgoing.online).value
        if named is not None:
            kind = _kind(named)
            self._messages[kind] += len(queue)
            self._bytes[kind] += queue.total_bytes
            self._queues[kind] += 1
            self.came[kind] += queue.came
            self.left[kind] += queue.left
            self._handles += queue.openers
            self._waiting += queue.waiters
        if state is not None:
            self._states[state] += 1

    def figures(self) -> dict[str, Any]:
        return {
            "messages_in_total": self.came, "messages_out_total": self.left, "messages": self._messages,
            "bytes": self._bytes, "queues": self._queues, "outgoing_queues": self._states, "handles": self._handles,
            "waiting_readers": self._waiting,
        }  # fmt: skip


def _name(queue: Queue) -> str:
    return queue.properties.path_name


def _kind(kind: str) -> str:
    return "queue" if kind == "subqueue" else kind


def _deaths(manager: QueueManager) -> dict[str, int]:
    """Return the number of dead messages by reason (slug); unspecified classes are combined."""
    found: dict[str, int] = {}
    for code, count in manager.changes.deaths.items():
        slug = _SLUGS.get(code, OTHER_REASON)
        found[slug] = found.get(slug, 0) + count
    return found


def of_server(manager: QueueManager, rpc: RpcServer, syncs: Histogram, delay: LoopDelay, epoch: int) -> dict[str, Any]:
    """Return the counters of the server. Values per label are dictionaries, histograms are lists that end with the sum;
    `epoch` is that of the store."""
    return {
        "messages_dead_total": _deaths(manager),
        "messages_refused_total": {
            f"{_SLUGS.get(code, OTHER_REASON)} {source}": count
            for (code, source), count in manager.changes.refused.items()
        },
        "transactions_total": {state.value: count for state, count in manager.transactions.ended.items()},
        "messages_poisoned_total": manager.changes.poisoned,
        "copies_discarded_total": manager.changes.discarded,
        "list_items_failed_total": dict(LEFT_OUT.counts),
        "rpc_requests_total": rpc.statistics.calls_in,
        "rpc_faults_total": rpc.statistics.faults,
        "rpc_connections_total": rpc.statistics.connections,
        "sessions": {"rpc": len(rpc.connections)},
        "throttled": int(manager.changes.throttled),
        "store_epoch": epoch,
        "quota_bytes": manager.machine.quota * 1024,
        "store_sync_duration_seconds": [*syncs.counts, syncs.total],
        "event_loop_delay_seconds": [*delay.histogram.counts, delay.histogram.total],
        "build_info": [__version__, platform.python_version(), how_it_runs()],
    }
