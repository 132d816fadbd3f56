"""Move the messages of a queue on another machine to a queue here, over a separate connection.

Several two-phase receives (MS-MQRR, or MS-MQQP if the other machine has no MS-MQRR) are in progress at once. The locked
messages are stored here in the order of the other queue, by one record in the log that also has their identifiers. The
other machine removes the messages only when the record is durable. After a crash or a lost connection, the other
machine puts back messages that it has not removed. Their identifiers are recognized when they are read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from msrpc.waiting import answered_within
from openmsmq.client import operations, qm2qm, remote_read
from openmsmq.client.calls import CALL_FAILURES, UNANSWERED, ProtocolUnavailable, answered
from openmsmq.client.open_queue import OpenQueue, TakenMessage
from openmsmq.client.runner import Runner
from openmsmq.model.constants import Access
from openmsmq.model.errors import BindError, HResult, MsmqError, ReceiveTimeout, RpcConnectionError
from openmsmq.model.message import Message
from openmsmq.queueing.machine import Machine
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.queue import APPLICATION_QUEUES, Queue
from openmsmq.relaying.records import put_progress
from openmsmq.relaying.relay import Relay
from openmsmq.relaying.states import Direction
from openmsmq.server.background import completed
from openmsmq.store import Operation

logger = logging.getLogger(__name__)

WAIT: Final = 20_000  # milliseconds that a receive waits for a message
MOST_AT_ONCE: Final = 32  # maximum number of locked messages
MOST_BYTES: Final = 1 << 20  # approximate maximum of their total size
ASIDE: Final = 60.0  # seconds until a refused message is tried again
PAUSE: Final = 5.0  # seconds after a failure on this machine
SLOWEST: Final = 60.0  # seconds between two attempts to connect to the other machine
OPENING: Final = 20.0  # time limit for opening the queue in seconds
FAILURES: Final = (*CALL_FAILURES, TimeoutError, OSError)


#: Operations that are added to the batch of fetched messages, and a function that is called once it is stored.
Fetched = Callable[[Iterable[Message]], tuple[list[Operation], Callable[[], None]]]


@dataclass(frozen=True, slots=True)
class RelaySource:
    """The source of a relay: host, port, and login (arguments of `rpc.aio.connect`)."""

    host: str
    port: int
    security: dict[str, Any]


class Disconnected(MsmqError):
    """This machine is disconnected (QueueManager.ConnectionActive)."""

    hresult = HResult.MQ_ERROR_ILLEGAL_OPERATION


def check_connected(manager: QueueManager) -> None:
    """Raise Disconnected if this machine is disconnected, as a restored copy is at first."""
    if not manager.outgoing.online:
        raise Disconnected(detail="this machine is disconnected; run `openmsmq machine connect` to continue the relays")


def is_away(error: BaseException) -> bool:
    """Whether a failed call means that the machine does not answer or has no open port. A refused call means that it
    answers."""
    return isinstance(error, (RpcConnectionError, TimeoutError, OSError)) and not isinstance(error, BindError)


@asynccontextmanager
async def opened(relay: Relay, source: RelaySource, here: QueueManager) -> AsyncIterator[tuple[Runner, OpenQueue]]:
    """Open the queue at the other machine for two-phase receives. Yields the connection and the queue. Raises the
    exceptions of calls, TimeoutError, MsmqError if the connection leads to `here`, and Disconnected."""
    check_connected(here)
    runner = Runner(source.host, source.port, source.security)
    try:
        async with answered_within(OPENING):
            await check_is_other(runner, relay.definition.host, here.machine)
            queue = await _open(runner, str(relay.remote_name), here.machine.identifier)
        try:
            yield runner, queue
        finally:
            with suppress(*FAILURES):
                async with answered_within(OPENING):
                    await runner.run(queue.close())
    finally:
        runner.close()


async def check_is_other(runner: Runner, host: str, here: Machine) -> None:
    """Raise MsmqError if a connection to `host` leads to this machine: its name may have been redirected. The relay
    would move messages from a queue to itself. A machine that refuses to tell its identifier (Windows may refuse all
    calls of MS-MQMP) is another one, because this one never does."""
    try:
        found = UUID(await runner.run(operations.query(4)))
    except (BindError, ValueError):
        return
    except MsmqError as error:
        if not answered(error):
            raise
        return
    if here.has_identifier(found.bytes_le):
        raise MsmqError(
            HResult.MQ_ERROR_ILLEGAL_OPERATION,
            f"{host} leads to this machine, so its queue there is the queue here: set peers = "
            f'"{host}=ADDRESS" with the address of the other machine, and restart',
        )


async def _open(runner: Runner, name: str, identifier: bytes) -> OpenQueue:
    try:
        try:
            await runner.run(remote_read.check_offered())
        except BindError as error:
            raise ProtocolUnavailable(detail=f"RemoteRead: {error}") from error
        return await runner.run(remote_read.open_queue(name, Access.RECEIVE, False, identifier))
    except ProtocolUnavailable:
        return await runner.run(qm2qm.open_queue(name, Access.RECEIVE, False, identifier))


class RelayReader:
    """Runs a relay that fetches messages, until it is canceled."""

    def __init__(
        self, relay: Relay, queue: Callable[[], Queue], manager: QueueManager,
        durable: Callable[[], Awaitable[None]], source: RelaySource, now: Callable[[], int],
        fetched: Fetched = lambda messages: ([], lambda: None),
        redirect: Callable[[Relay, Message], None] = lambda relay, message: None,
    ) -> None:  # fmt: skip
        """`queue` finds the queue here, and raises MsmqError; `durable` waits until everything written is on the disk;
        `now` returns seconds since 1970 UTC; for `fetched` see `MessageService.fetched`; `redirect` may change the
        response queue of a message that is to be stored."""
        self._fetched: Final = fetched
        self._redirect: Final = redirect
        self._relay, self._queue, self._manager, self._durable = relay, queue, manager, durable
        self._source, self._now = source, now
        self._aside: list[tuple[float, int]] = []  # refused: when they are put back (loop time), and their requests
        self._size = 1  # bytes of a message, by the last batch
        self._saw_the_end = False  # whether the last batch was all that could be read

    async def run(self) -> None:
        """Connect and read. After a failure, connect again with increasing pauses."""
        pause = 1.0
        while True:
            moved = self._relay.progress.moved
            try:
                await self._session()
            except Disconnected as error:
                self._relay.fails(str(error), self._now())
            except FAILURES as error:
                reason = f"{self._relay.definition.host} ({self._source.host}): {error}"
                if self._relay.fails(reason, self._now(), is_away=is_away(error)):
                    logger.warning(
                        "queue %s: cannot fetch messages from %s; retrying: %s",
                        self._relay.definition.queue, self._relay.remote_name, error,
                    )  # fmt: skip
            is_fresh = self._relay.progress.moved > moved or not self._manager.outgoing.online
            pause = 1.0 if is_fresh else min(2 * pause, SLOWEST)
            await asyncio.sleep(pause)

    async def _session(self) -> None:
        async with opened(self._relay, self._source, self._manager) as (runner, queue):
            if self._relay.works():
                logger.info("queue %s: connected to %s again", self._relay.definition.queue, self._relay.remote_name)
            try:
                while True:
                    await self._round(runner, queue)
            finally:
                self._aside.clear()

    async def _round(self, runner: Runner, queue: OpenQueue) -> None:
        """Fetch some messages and store them."""
        await self._put_back_aside(runner, queue)
        taken = await self._take(runner, queue)
        check_connected(self._manager)  # the end of the session puts back what was taken
        if taken and not await completed(self._keep(runner, queue, taken), OPENING):
            await asyncio.sleep(PAUSE)

    async def _keep(self, runner: Runner, queue: OpenQueue, taken: list[TakenMessage]) -> bool:
        """Store messages and remove them at the other machine. Returns whether reading may continue without a pause."""
        if self._relay.direction is not Direction.IN:  # the relay has ended, and with it its record in the store
            await self._end(runner, queue, taken, False)
            return True
        self._size = max(1, sum(each.message.size for each in taken) // len(taken))
        again = [each for each in taken if self._relay.is_taken(each.message)]
        fresh = [each for each in taken if not self._relay.is_taken(each.message)]
        try:
            stored, refused = await self._store(fresh)
        except MsmqError as error:  # a quota is reached, or the queue was deleted: nothing is stored
            await self._end(runner, queue, again, True)
            await self._end(runner, queue, fresh, False)
            self._relay.fails(str(error), self._now())
            return False
        removed = await self._end(runner, queue, [*again, *stored], True)
        self._relay.removed(each.message.identifier for each in removed)
        if self._saw_the_end and not refused:
            self._found_nothing()
        return await self._set_aside(runner, queue, refused)

    def _found_nothing(self) -> None:
        """Record that all readable messages were read."""
        self._relay.works()
        if not self._aside:
            self._relay.found_nothing(self._now())

    async def _take(self, runner: Runner, queue: OpenQueue) -> list[TakenMessage]:
        """Return messages in the order of their queue. Waits for the first one."""
        try:
            taken = [await runner.run(queue.take(self._patience()))]
        except ReceiveTimeout:
            self._found_nothing()
            return []
        self._relay.found_something(self._now())
        more = min(MOST_AT_ONCE, max(1, MOST_BYTES // self._size)) - 1
        answers = await asyncio.gather(*(runner.run(queue.take(0)) for _ in range(more)), return_exceptions=True)
        failures = [each for each in answers if isinstance(each, BaseException)]
        taken += [each for each in answers if not isinstance(each, BaseException)]
        self._saw_the_end = any(isinstance(failure, ReceiveTimeout) for failure in failures)
        for failure in failures:
            if not isinstance(failure, MsmqError) or isinstance(failure, UNANSWERED):
                raise failure  # the connection is lost, and with it the locks
        taken.sort(key=lambda each: each.message.lookup_identifier)
        return taken

    def _patience(self) -> int:
        """Return how long to wait for a message, in milliseconds: 0 until the queue is known to be empty, and, if some
        are set aside, not longer than until the first of them is put back."""
        if not self._aside:
            return WAIT if self._relay.empty_since else 0
        left = self._aside[0][0] - asyncio.get_running_loop().time()
        return max(0, min(WAIT, int(1000 * left)))

    async def _store(self, taken: list[TakenMessage]) -> tuple[list[TakenMessage], list[TakenMessage]]:
        """Store messages. Returns those that are durable, and those that were refused. Raises MsmqError with nothing
        stored."""
        if not taken:
            return [], []
        relay, now, messages = self._relay, self._now(), [each.message for each in taken]
        progress, queue = relay.progress, self._queue()
        remember: Callable[[], None] = lambda: None  # noqa: E731
        for message in messages:
            self._redirect(relay, message)

        def also(stored: list[Message]) -> list[Operation]:
            nonlocal progress, remember
            progress = relay.taking(stored, now)
            remembered: Sequence[Operation] = ()
            if queue.kind in APPLICATION_QUEUES:
                remembered, remember = self._fetched(stored)
            return [put_progress(relay.definition.queue, progress), *remembered]

        outcomes = self._manager.relays.take_in(queue, messages, also)
        relay.progress = progress
        remember()
        stored = []
        for each, error in zip(taken, outcomes, strict=False):
            if error is None:
                stored.append(each)
                relay.refused.pop(each.message.id, None)
            else:
                relay.refuse(each.message, str(error), now)
        if stored:
            await self._durable()
            relay.works()
        return stored, [each for each in taken if each not in stored]

    async def _end(
        self, runner: Runner, queue: OpenQueue, taken: list[TakenMessage], remove: bool
    ) -> list[TakenMessage]:
        """Remove or unlock messages at the other machine. Returns those that it confirms. Raises if the connection is
        lost."""

        async def end(each: TakenMessage) -> TakenMessage | None:
            assert each.request is not None
            try:
                await runner.run(queue.end(each.request, remove))
            except MsmqError as error:
                if isinstance(error, UNANSWERED):
                    raise
                return None
            return each

        ended = await asyncio.gather(*(end(each) for each in taken))
        return [each for each in ended if each is not None]

    async def _set_aside(self, runner: Runner, queue: OpenQueue, refused: list[TakenMessage]) -> bool:
        """Keep messages that this machine refuses locked at the other one for a while, so that others are read. In a
        transactional queue, nothing is read until the first one is accepted. Returns whether reading may continue
        without a pause."""
        if not refused:
            return True
        if self._queue().properties.transactional:
            await self._end(runner, queue, refused, False)
            reason = self._relay.refused.get(refused[0].message.id)
            detail = f"{refused[0].message.id}: {reason.reason}" if reason else refused[0].message.id
            self._relay.fails(f"the next message is not taken, and what follows has to wait: {detail}", self._now())
            return False
        due = asyncio.get_running_loop().time() + ASIDE
        self._aside += [(due, each.request) for each in refused if each.request is not None]
        return True

    async def _put_back_aside(self, runner: Runner, queue: OpenQueue) -> None:
        """Unlock messages whose waiting time is over, so that they can be read again."""
        now = asyncio.get_running_loop().time()
        due = [request for at, request in self._aside if at <= now]
        self._aside = [(at, request) for at, request in self._aside if at > now]
        for request in due:
            with suppress(MsmqError):
                await runner.run(queue.end(request, False))
