"""The figures of a daemon for metrics, by the names of `operating.metrics.FAMILIES`, and how late its event loop is."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from openmsmq import __version__
from openmsmq.compiled import how_it_runs
from openmsmq.model.histogram import Histogram
from openmsmq.model.reasons import REASONS
from openmsmq.operating.metrics import KINDS, OTHER_REASON
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import OutgoingQueue, OutgoingState
from openmsmq.rpc.server import RpcServer
from openmsmq.rpc.timing import STRIDE
from openmsmq.web.rows import KINDS as KINDS_OF_QUEUES
from openmsmq.web.rows import kind_of

_SLUGS: Final = {reason.code: reason.slug for reason in REASONS}
_MOST_OPERATIONS: Final = 500  # that are timed: more than there are
_PERIOD: Final = 0.5  # seconds between two looks at the event loop


class LoopDelay:
    """How much later than asked for the event loop calls."""

    def __init__(self) -> None:
        self.histogram: Final = Histogram()

    async def watch(self) -> None:
        """Until this is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _PERIOD
            await asyncio.sleep(_PERIOD)
            self.histogram.observe(max(0.0, loop.time() - due))


class Latency:
    """How long calls took, by interface and operation; see `rpc.timing`."""

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
        """Interface, operation, counts, sum."""
        return [
            [interface, self._name(interface, opnum), *histogram.counts, histogram.total]
            for (interface, opnum), histogram in self._histograms.items()
        ]

    def _name(self, interface: str, opnum: int) -> str:
        known = self._operations.get(interface, ())
        return known[opnum] if opnum < len(known) else f"opnum {opnum}"


def of_queues(manager: QueueManager) -> Iterator[dict[str, Any] | None]:
    """None after each queue, so that whoever reads stops now and then; at the end the figures of all."""
    messages, sizes, queues, came, left = (dict.fromkeys(KINDS, 0) for _ in range(5))
    states = dict.fromkeys((state.value for state in OutgoingState), 0)
    handles = waiting = 0
    for queue in list(manager.registry.queues.values()):
        named = kind_of(queue)
        if named is not None:
            kind = _kind(named)
            messages[kind] += len(queue)
            sizes[kind] += queue.total_bytes
            queues[kind] += 1
            came[kind] += queue.came
            left[kind] += queue.left
            handles += queue.openers
            waiting += queue.waiters
        if isinstance(queue, OutgoingQueue):
            states[queue.state(manager.outgoing.online).value] += 1
        yield None
    for gone, (of_those_came, of_those_left) in manager.registry.gone.items():
        came[_kind(KINDS_OF_QUEUES[gone])] += of_those_came
        left[_kind(KINDS_OF_QUEUES[gone])] += of_those_left
    yield {
        "messages_in_total": came, "messages_out_total": left,
        "messages": messages, "bytes": sizes, "queues": queues, "outgoing_queues": states, "handles": handles,
        "waiting_readers": waiting,
    }  # fmt: skip


def _kind(kind: str) -> str:
    return "queue" if kind == "subqueue" else kind


def _deaths(manager: QueueManager) -> dict[str, int]:
    """By the slug of the reason; classes that no specification names are together."""
    found: dict[str, int] = {}
    for code, count in manager.changes.deaths.items():
        slug = _SLUGS.get(code, OTHER_REASON)
        found[slug] = found.get(slug, 0) + count
    return found


def of_server(manager: QueueManager, rpc: RpcServer, syncs: Histogram, delay: LoopDelay, epoch: int) -> dict[str, Any]:
    """What is counted already. A label has its values as a dictionary, histograms are lists with their sum at the
    end; `epoch` is that of the store."""
    return {
        "messages_dead_total": _deaths(manager),
        "transactions_total": {state.value: count for state, count in manager.transactions.ended.items()},
        "copies_discarded_total": manager.changes.discarded,
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
