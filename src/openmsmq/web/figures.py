"""The figures of a daemon for metrics, by the names of `operating.metrics.FAMILIES`, and how late its event loop is."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterator
from typing import Any, Final

from openmsmq import __version__
from openmsmq.compiled import how_it_runs
from openmsmq.operating.metrics import KINDS, Histogram
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import OutgoingQueue, OutgoingState
from openmsmq.rpc.server import RpcServer
from openmsmq.web.rows import kind_of

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


def of_queues(manager: QueueManager) -> Iterator[dict[str, Any] | None]:
    """None after each queue, so that whoever reads stops now and then; at the end the figures of all."""
    messages, sizes, queues = (dict.fromkeys(KINDS, 0) for _ in range(3))
    states = dict.fromkeys((state.value for state in OutgoingState), 0)
    handles = waiting = 0
    for queue in list(manager.registry.queues.values()):
        kind = kind_of(queue)
        kind = "queue" if kind == "subqueue" else kind
        if kind is not None:
            messages[kind] += len(queue)
            sizes[kind] += queue.total_bytes
            queues[kind] += 1
            handles += queue.openers
            waiting += queue.waiters
        if isinstance(queue, OutgoingQueue):
            states[queue.state(manager.outgoing.online).value] += 1
        yield None
    yield {
        "messages": messages, "bytes": sizes, "queues": queues, "outgoing_queues": states, "handles": handles,
        "waiting_readers": waiting,
    }  # fmt: skip


def of_server(manager: QueueManager, rpc: RpcServer, delay: LoopDelay) -> dict[str, Any]:
    """What is counted already. A label has its values as a dictionary, histograms are lists with their sum at the
    end."""
    return {
        "copies_discarded_total": manager.changes.discarded,
        "rpc_requests_total": rpc.statistics.calls_in,
        "rpc_faults_total": rpc.statistics.faults,
        "rpc_connections_total": rpc.statistics.connections,
        "sessions": {"rpc": len(rpc.connections)},
        "throttled": int(manager.changes.throttled),
        "quota_bytes": manager.machine.quota * 1024,
        "event_loop_delay_seconds": [*delay.histogram.counts, delay.histogram.total],
        "build_info": [__version__, platform.python_version(), how_it_runs()],
    }
