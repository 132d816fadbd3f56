"""Context shared by the operations of the bulk plane: access to the queue manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

from openmsmq.model.constants import Access, Share
from openmsmq.model.errors import AccessDenied, HResult, MsmqError, QueueDeleted, QueueNotFound
from openmsmq.model.names import MultipleElementFormatName
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.consumer_group import BatchLimits
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.queue import SYSTEM_DEADLETTER, SYSTEM_DEADXACT, SYSTEM_JOURNAL, Queue, QueueKind
from openmsmq.queueing.source_names import source_name
from openmsmq.store import Store

T = TypeVar("T")

_SLICE = 100  # queues per event-loop iteration

_SYSTEM_QUEUES = {SYSTEM_JOURNAL: "journal", SYSTEM_DEADLETTER: "deadletter", SYSTEM_DEADXACT: "xactdeadletter"}


@dataclass(frozen=True, slots=True)
class Context:
    """The queue manager and its store.

    Attributes:
        when_durable: calls a function once everything appended so far is on the disk.
    """

    manager: QueueManager
    store: Store
    when_durable: Callable[[Callable[[], object]], None]

    async def durable(self) -> None:
        """Wait until everything appended so far is on the disk."""
        durable = asyncio.Event()
        self.when_durable(durable.set)
        await durable.wait()

    def source(self, caller: Caller, text: str, source: str, access: Access = Access.PEEK) -> Queue:
        """Return the queue that a pipeline names, if the caller may open it with this access. Nothing is opened or
        created.

        `text` is a path name, the name of a private queue, or a format name; empty for a queue of the machine. Raises
        the errors of opening a queue, IllegalPropertyValue for an unknown source.
        """
        if source == "outgoing":
            if access is not Access.PEEK:
                raise MsmqError(
                    HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE,
                    f"{text}: messages of an outgoing queue can't be claimed",
                )
            access = Access.PEEK_ADMIN
        name = source_name(text, source)
        if isinstance(name, MultipleElementFormatName):
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, "a multiple-element format name is for sending only"
            )
        queue = self.manager.handles.permitted(name, access, Share.DENY_NONE, caller)
        if queue is None:  # the subqueue does not exist
            raise QueueNotFound(detail=str(name))
        return queue

    def may_open(self, caller: Caller, text: str, source: str, access: Access = Access.PEEK) -> bool:
        """Whether the caller may open a queue: False if the right is missing or the queue is gone. Raises the other
        errors of `source`."""
        try:
            self.source(caller, text, source, access)
        except (AccessDenied, QueueDeleted, QueueNotFound):
            return False
        return True

    def name_of(self, queue: Queue) -> tuple[str, str]:
        """Return the name and source by which clients refer to a queue."""
        if queue.kind is QueueKind.OUTGOING:
            return queue.properties.label, "outgoing"
        if queue.owner is not None:
            return queue.owner.properties.path_name, "journal"
        if queue.kind is QueueKind.SYSTEM:
            return "", _SYSTEM_QUEUES[queue.number]
        return queue.properties.path_name, "queue"


async def sliced(items: Iterator[T]) -> AsyncIterator[T]:
    """Yield the items, and yield to the event loop after each slice."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _SLICE == 0:
            await asyncio.sleep(0)


async def run(steps: Generator[None, None, T]) -> T:
    """Run an operation step by step, and yield to the event loop after each step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


def limits(messages: int | None, volume: int | None) -> BatchLimits:
    """Return the limits of a request; None selects the default."""
    defaults = BatchLimits()
    return BatchLimits(
        defaults.messages if messages is None else messages, defaults.bytes if volume is None else volume
    )
