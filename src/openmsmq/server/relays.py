"""The relays of a daemon: starts and stops their tasks according to their states."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from msrpc.waiting import answered_within
from openmsmq.client import operations
from openmsmq.client.runner import Runner
from openmsmq.model.errors import AuthenticationError, ClientError, MsmqError, QueueNotFound
from openmsmq.model.message import Message
from openmsmq.model.names import parse_format_name
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.queue import Queue
from openmsmq.relaying.records import put_progress
from openmsmq.relaying.relay import Relay
from openmsmq.relaying.relays import Relays
from openmsmq.relaying.replies import redirect_reply
from openmsmq.relaying.states import Direction
from openmsmq.server.allowed_values import STANDARD_PORT
from openmsmq.server.background import start_background_task
from openmsmq.server.relay_reading import (
    FAILURES,
    Disconnected,
    Fetched,
    RelayReader,
    RelaySource,
    check_connected,
    check_is_other,
    is_away,
    opened,
)
from openmsmq.server.relay_sending import RelaySender, take_acknowledgments
from openmsmq.server.relay_settling import settle
from openmsmq.server.remote import SecurityAt
from openmsmq.store import Operation

logger = logging.getLogger(__name__)

LOOK: Final = 5.0  # seconds between queries of the number of messages on the other machine
ANSWER: Final = 10.0  # time limit of a query in seconds
SETTLING_PAUSE: Final = 5.0  # seconds until settling is tried again after a failure


class RelayService:
    """See `DaemonPart`."""

    def __init__(
        self, manager: QueueManager, when_durable: Callable[[Callable[[], None]], None],
        hosts: Mapping[str, tuple[str, int]], security: SecurityAt, fetched: Fetched,
    ) -> None:  # fmt: skip
        """`hosts` maps lower-case names, which the resolver may not know, to addresses; `security` returns the login
        for a machine; for `fetched` see `MessageService.fetched`."""
        self._fetched: Final = fetched
        self._manager, self._when_durable, self._hosts, self._security = manager, when_durable, hosts, security
        self.relays: Final = Relays(self._write, self._changed, _now)
        self.relays.recover(manager.store.definitions)  # before requests can list them
        self._tasks: Final[dict[Relay, list[asyncio.Task[None]]]] = {}
        self._acknowledging: asyncio.Task[None] | None = None

    async def start(self) -> None:
        for relay in self.relays:
            self._changed(relay)
        work = take_acknowledgments(self._manager, self._relay_of, _now)
        self._acknowledging = start_background_task("taking acknowledgments of relays", work)

    async def stop(self, grace: float) -> None:
        tasks = [task for tasks in self._tasks.values() for task in tasks]
        if self._acknowledging is not None:
            tasks.append(self._acknowledging)
        _cancel(tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=max(grace, 1.0))

    def local_queue(self, name: str) -> Queue:
        """Return the local queue with the path name in a relay. Raises QueueNotFound."""
        queue = self._manager.registry.local_queue(parse_format_name(f"DIRECT=OS:{name}"))
        if queue is None:
            raise QueueNotFound(detail=f"there is no queue {name}; create it with openmsmq queue create")
        return queue

    def _relay_of(self, queue: Queue) -> Relay | None:
        return self.relays.get(f".\\{queue.properties.path_name.partition(chr(92))[2]}")

    def _write(self, changes: Sequence[Operation]) -> None:
        self._manager.arrivals.note(changes)

    def _changed(self, relay: Relay) -> None:
        """Stop the task of the former state, then start that of the new one."""
        former = self._tasks.get(relay, [])
        _cancel(former)
        if relay.direction is Direction.NONE:
            if former and self.relays.get(relay.definition.queue) is not relay:
                former[0].add_done_callback(lambda _: self._forget(relay))
            return
        name = relay.definition.queue
        self._tasks[relay] = [
            start_background_task(f"the relay of queue {name}", self._work(relay, former)),
            start_background_task(f"watching the relay of queue {name}", self._watch(relay)),
        ]

    def _forget(self, relay: Relay) -> None:
        """Drop what a deleted relay has left, after its last round."""
        self._tasks.pop(relay, None)
        with suppress(MsmqError):  # the disk is full: the rest of the record does no harm
            self.relays.release(relay)

    async def _work(self, relay: Relay, former: Sequence[asyncio.Task[None]]) -> None:
        if former:
            await asyncio.wait(former)
        if relay.direction is Direction.IN:
            await self._reader(relay).run()
        await self._settle(relay)
        await RelaySender(
            relay, lambda: self.local_queue(relay.definition.queue), self._manager, _now,
            lambda: self._check_destination(relay),
        ).run()  # fmt: skip

    def _reader(self, relay: Relay) -> RelayReader:
        return RelayReader(
            relay, lambda: self.local_queue(relay.definition.queue), self._manager, self._durable,
            self._source(relay), _now, self._fetched, self._redirect,
        )  # fmt: skip

    def _redirect(self, relay: Relay, message: Message) -> None:
        redirect_reply(message, relay.definition.host, self.relays, self._manager.machine.computer_name)

    def _source(self, relay: Relay) -> RelaySource:
        host, port = self._hosts.get(relay.definition.host.lower(), (relay.definition.host, STANDARD_PORT))
        return RelaySource(host, port, self._security(relay.definition.host))

    async def _durable(self) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._when_durable(lambda: None if done.done() else done.set_result(None))
        await done

    async def _settle(self, relay: Relay) -> None:
        """Run `relay_settling` until it succeeds, so that no message exists twice."""
        while relay.progress.taken:
            try:
                async with opened(relay, self._source(relay), self._manager) as (runner, queue):
                    await settle(relay, runner, queue)
                self._write([put_progress(relay.definition.queue, relay.progress)])
            except FAILURES as error:
                reason = f"before messages go back to {relay.definition.host}: {error}"
                relay.fails(reason, _now(), is_away=is_away(error))
                await asyncio.sleep(SETTLING_PAUSE)

    async def _check_destination(self, relay: Relay) -> None:
        """Raise MsmqError if the name of the other machine leads here. One that does not answer calls passes: it may be
        reachable by the port for messages alone."""
        with suppress(ClientError, AuthenticationError, TimeoutError, OSError):
            async with self._asked(relay):
                pass

    @asynccontextmanager
    async def _asked(self, relay: Relay) -> AsyncIterator[Runner]:
        """Yield a connection for queries. Raises like `opened`."""
        check_connected(self._manager)
        source = self._source(relay)
        runner = Runner(source.host, source.port, source.security)
        try:
            async with answered_within(ANSWER):
                await check_is_other(runner, relay.definition.host, self._manager.machine)
                yield runner
        finally:
            runner.close()

    async def _watch(self, relay: Relay) -> None:
        """Query the number of messages on the other machine periodically, for display. It is unknown if the machine
        does not report it."""
        while True:
            relay.sample(_now())
            if relay.direction is Direction.IN:
                relay.waiting = await self._count(relay)
            await asyncio.sleep(LOOK)

    async def _count(self, relay: Relay) -> int | None:
        try:
            async with self._asked(relay) as runner:
                found: dict[str, Any] = await runner.run(operations.management(str(relay.remote_name), "message_count"))
        except Disconnected as error:  # a reader that waits for a message does not notice it yet
            relay.fails(str(error), _now())
            return None
        except (*FAILURES, ValueError):
            return None
        count = found["message_count"]
        return count if isinstance(count, int) else None


def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks, except those that are already ending: a second cancellation would interrupt their last round."""
    for task in tasks:
        if not task.cancelling():
            task.cancel()


def _now() -> int:
    return int(time.time())
