"""Client connections that die at random, and the times at which the ledger may consider their operations complete."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple, cast

from interop import threaded
from interop.cutting_proxy import CuttingProxy
from interop.impacket_client import PASSWORD, USER
from interop.ledger import Ledger, MessageState, Span
from msrpc.rpc.pdu import AuthLevel
from openmsmq import MsmqError, aio

LIFETIME = 25_000  # average bytes until a connection is cut
RETRY = 0.02  # seconds until the next attempt to reach a killed server
SETTLED = 3.0  # seconds in which a participant asks three times for the outcome of a distributed transaction
Operation = Callable[[Any], Awaitable[None]]


class ClientKind(NamedTuple):
    """Kind of client: asyncio or threads, and its security level."""

    threads: bool = False
    security: dict[str, Any] = {}  # noqa: RUF012


_PRIVATE = {"user": USER, "password": PASSWORD, "level": AuthLevel.PKT_PRIVACY}
KINDS = (
    ClientKind(),
    ClientKind(threads=True),
    ClientKind(security=_PRIVATE),
    ClientKind(threads=True, security=_PRIVATE),
    ClientKind(security=_PRIVATE | {"spnego": True}),
    ClientKind(threads=True, security=_PRIVATE | {"spnego": True, "level": AuthLevel.PKT}),
)


class DyingConnections:
    """One connection at a time to the server and one to the coordinator of distributed transactions, each through
    its own proxy. A threaded client has several connections to the server at a time."""

    def __init__(
        self, name: str, kind: ClientKind, threads: Executor, ports: tuple[int, int], ledger: Ledger, seed: int
    ) -> None:
        """Create the connections. `ports` are those of the server and of the coordinator."""
        self.name, self.kind, self.threads, self.ledger = name, kind, threads, ledger
        self.random = random.Random(seed)
        self.proxy, self.coordinators_proxy = (CuttingProxy(port, self._budget) for port in ports)
        self.immortal = False
        self.manager: aio.QueueManager | None = None
        self.coordinator: aio.QueueManager | None = None
        self.queues: dict[tuple[str, str, str], aio.MessageQueue] = {}
        self.unsettled: list[Span] = []  # operations whose connection has died

    def _budget(self) -> int | None:
        return None if self.immortal else 1 + int(self.random.expovariate(1 / LIFETIME))

    @property
    def cuts(self) -> int:
        return self.proxy.cuts + self.coordinators_proxy.cuts

    async def work(self, stop: asyncio.Event, operations: dict[Operation, int]) -> None:
        """Run operations chosen by weight until `stop` is set and everything is settled."""
        async with self.proxy, self.coordinators_proxy:
            while not stop.is_set():
                (operation,) = self.random.choices([*operations], [*operations.values()])
                await self._attempt(operation)
            self.immortal = True
            while self.unsettled or self.manager is None:
                await self._attempt(type(self).settle)
            await self._close()

    async def _attempt(self, operation: Operation) -> None:
        cuts, crash = self.cuts, self.ledger.last_crash
        try:
            await self.settle()
            cuts, crash = self.cuts, self.ledger.last_crash
            await operation(self)
            self.ledger.counts[operation.__name__] += 1
        except ConnectionError:
            self.ledger.counts[f"cut in {operation.__name__}"] += 1
            await self._disconnect()
        except MsmqError as error:
            # A coordinator may learn that the server was killed before this connection shows it.
            if (self.cuts, self.ledger.last_crash) == (cuts, crash):
                self.ledger.wrong.append(f"{self.name}, {operation.__name__}: {error!r}")
            await self._disconnect()
        else:
            if self.cuts != cuts:
                await self._disconnect()

    async def _disconnect(self) -> None:
        await self._close()
        self.queues.clear()
        self.proxy.cut()
        self.coordinators_proxy.cut()
        await asyncio.sleep(RETRY)

    async def _close(self) -> None:
        for manager in (self.manager, self.coordinator):
            if manager is not None:
                await manager.close()
        self.manager = self.coordinator = None

    async def _connect(self, port: int, **security: Any) -> aio.QueueManager:
        if self.kind.threads:
            return cast(aio.QueueManager, await threaded.connect(self.threads, "127.0.0.1", port, **security))
        return await aio.connect("127.0.0.1", port, **security)

    async def settle(self) -> None:
        """Connect. When the server responds on the new connection, it has cleaned up after the previous one."""
        if self.manager is None:
            self.manager = await self._connect(self.proxy.port, **self.kind.security)
        if self.unsettled:
            await self.manager.machine_id()
            now = self.ledger.now()
            for span in self.unsettled:
                span.end = now
            self.unsettled.clear()

    # -- the ledger's view of an operation ---------------------------------------------------------------------

    def begin(self) -> Span:
        """Begin an operation that lasts until `end`, or, without it, until the next connection."""
        span = Span(self.ledger.now())
        self.unsettled.append(span)
        return span

    def end(self, span: Span) -> Span:
        self.unsettled.remove(span)
        span.end = self.ledger.now()
        return span

    def back_some_time(self, span: Span) -> None:
        """The message returns at an unknown time: the coordinator and its participants do not notify this client."""
        self.unsettled.remove(span)
        span.until_seen = True

        def over() -> None:
            if self.ledger.last_crash < span.begin:  # a killed participant may not have asked yet
                span.end = min(span.end, self.ledger.now())

        asyncio.get_running_loop().call_later(SETTLED, over)

    def found(self, queue: str, span: Span, body: object, *, first: bool = True) -> MessageState | None:
        fate = self.ledger.saw(queue, str(body), span.begin)
        if first:
            self.ledger.looked(queue, Span(span.begin, self.ledger.now()), fate)
        return fate

    def found_none(self, queue: str, span: Span) -> None:
        self.ledger.looked(queue, self.end(span), None)
