"""What the operations of the bulk plane share: the queue manager as they see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from openmsmq.queueing.groups import Limits
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.store import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Served:
    """The queue manager and its store.

    Attributes:
        when_durable: calls back when everything that was appended is on the disk.
    """

    manager: QueueManager
    store: Store
    when_durable: Callable[[Callable[[], object]], None]

    async def durable(self) -> None:
        """Everything that was appended is on the disk."""
        durable = asyncio.Event()
        self.when_durable(durable.set)
        await durable.wait()

    def name_of(self, queue: Queue) -> tuple[str, str]:
        """How clients name a queue."""
        state = self.manager.state
        if queue.kind is QueueKind.OUTGOING:
            return queue.properties.label, "outgoing"
        if queue.kind is QueueKind.JOURNAL:
            return state.owner_of(queue).properties.path_name, "journal"
        if queue.kind is QueueKind.SYSTEM:
            names = {state.system_journal.number: "journal", state.dead_letters.number: "deadletter"}
            return "", names.get(queue.number, "xactdeadletter")
        return queue.properties.path_name, "queue"


async def run(steps: Generator[None, None, T]) -> T:
    """An operation step by step, with turns for everybody else in between."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


def limits(messages: int | None, volume: int | None) -> Limits:
    """What a request asks for; None for the default."""
    defaults = Limits()
    return Limits(defaults.messages if messages is None else messages, defaults.bytes if volume is None else volume)
