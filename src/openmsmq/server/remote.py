"""Outgoing requests of this queue manager to others: reading for a client (MS-MQQP), and management (MS-MQMR)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from msrpc.waiting import answered_within, outcome_of
from openmsmq.client import operations, qm2qm
from openmsmq.client.calls import (
    CALL_FAILURES,
    UNANSWERED,
    ProtocolUnavailable,
    ServerResource,
    Steps,
    T,
    holding,
    opening,
)
from openmsmq.client.open_queue import TakenMessage
from openmsmq.client.runner import Runner
from openmsmq.model.constants import Access, ReceiveAction
from openmsmq.model.errors import HResult, MsmqError, error_for
from openmsmq.protocols.proxies import HandedOver
from openmsmq.queueing.descriptors import Accept
from openmsmq.server.allowed_values import STANDARD_PORT

ANSWER = 10.0  # time limit of a call in seconds
Spawn = Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]
SecurityAt = Callable[[str], dict[str, Any]]  # machine name -> arguments of `rpc.aio.connect`


class Peers:
    """Other queue managers, by name."""

    def __init__(
        self, identifier: bytes, hosts: Mapping[str, tuple[str, int]], security: SecurityAt, spawn: Spawn
    ) -> None:
        """`identifier` is the GUID of this queue manager. `hosts` maps lower-case names to addresses and ports that
        differ from those of the resolver and the standard; `security` returns the login for a machine."""
        self._identifier, self._hosts, self._security, self._spawn = identifier, hosts, security, spawn
        self._runners: dict[tuple[str, int], Runner] = {}

    async def open(self, machine: str, name: str, access: Access, opened: HandedOver) -> PeerSession:
        host, port = self._hosts.get(machine.lower(), (machine, STANDARD_PORT))
        security = self._security(machine)
        runner = Runner(host, port, security)
        try:
            with _reaching(machine):
                return await self._open(runner, security, host, name, access, opened)
        except BaseException:
            runner.close()
            raise

    async def _open(
        self, runner: Runner, security: dict[str, Any], host: str, name: str, access: Access, opened: HandedOver
    ) -> PeerSession:
        handed_out = qm2qm.HandedOut(opened.queue, opened.pointer, opened.context)
        held = ServerResource("queue", name)
        steps = opening(qm2qm.open_session(name, access, False, self._identifier, handed_out), held)
        try:
            return PeerSession(await runner.run(steps), held, runner, runner, self._spawn)
        except ProtocolUnavailable:
            port = await runner.run(qm2qm.port())
            if not port:
                raise
        reading = Runner(host, port, security)
        try:
            steps = opening(qm2qm.open_session(name, access, False, self._identifier, handed_out), held)
            return PeerSession(await reading.run(steps), held, reading, runner, self._spawn)
        except BaseException:
            reading.close()
            raise

    # -- management --------------------------------------------------------------------------------------------

    async def management(self, machine: str, name: str | None, *wanted: str) -> dict[str, Any]:
        try:
            return await self._ask(machine, partial(operations.management, name, *wanted))
        except ValueError as error:
            raise MsmqError(HResult.MQ_ERROR, f"{machine} returned an invalid property: {error}") from error

    async def act(self, machine: str, name: str | None, action: str) -> None:
        await self._ask(machine, partial(operations.act, name, action))

    async def _ask(self, machine: str, ask: Callable[[], Steps[T]]) -> T:
        """Make a call on a cached connection. If that fails, make it once more on a new connection, because the peer
        may have restarted. All these calls are idempotent."""
        address = self._hosts.get(machine.lower(), (machine, STANDARD_PORT))
        with _reaching(machine):
            async with answered_within(ANSWER):
                if address in self._runners:
                    with suppress(ConnectionError):
                        return await self._run_on(self._runners[address], address, ask())
                runner = self._runners.setdefault(address, Runner(*address, self._security(machine)))
                return await self._run_on(runner, address, ask())

    async def _run_on(self, runner: Runner, address: tuple[str, int], steps: Steps[T]) -> T:
        try:
            return await runner.run(steps)
        except BaseException as error:
            if isinstance(error, MsmqError) and not isinstance(error, UNANSWERED):
                raise  # the peer has answered
            if self._runners.get(address) is runner:
                del self._runners[address]
            runner.close()
            raise

    def close(self) -> None:
        for runner in self._runners.values():
            runner.close()
        self._runners.clear()


class PeerSession:
    """See `protocols.proxies.RemoteSession`. `reading` is the connection for qm2qm, `opening` that for qmcomm; they may
    be the same."""

    def __init__(
        self, queue: qm2qm.Qm2QmQueue, held: ServerResource, reading: Runner, opening: Runner, spawn: Spawn
    ) -> None:
        self._queue, self._held, self._reading, self._opening, self._spawn = queue, held, reading, opening, spawn
        queue.reopens = False  # the client decides whether to open it again

    async def read(self, action: ReceiveAction, timeout: int, cursor: int, accept: Accept) -> int:
        request = self._queue.next_request()
        steps = self._queue.start(action, timeout=timeout, cursor=cursor, request=request)
        start = self._spawn(self._run(steps))
        try:
            taken: TakenMessage = await outcome_of(start)
        except asyncio.CancelledError:
            self._spawn(self._withdraw(start, request))
            raise
        status = accept(taken.message)
        if taken.request is not None:
            try:
                await _completed(self._spawn(self._run(self._queue.end(taken.request, status == HResult.MQ_OK))))
            except MsmqError as error:
                # Without a reply, the message may have been removed: delivering it twice is better than losing it #
                # (deviation D-73). Otherwise [MS-MQMP] 3.1.5.3: the result of RemoteQMEndReceive.
                if error.hresult != HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE:
                    return error.hresult
        return status

    async def _withdraw(self, start: asyncio.Task[TakenMessage], request: int) -> None:
        """End the request of a client that has disconnected, or put its message back."""
        with suppress(MsmqError):
            await self._run(self._queue.cancel_request(request))
        with suppress(MsmqError):
            taken = await start
            if taken.request is not None:
                await self._run(self._queue.end(taken.request, False))

    async def purge(self) -> None:
        await self._run(self._queue.purge())

    async def create_cursor(self) -> int:
        with _reaching(self._queue.name):
            return await self._opening.run(holding(self._queue.create_cursor(), self._held))

    async def close_cursor(self, cursor: int) -> None:
        await self._run(self._queue.close_cursor(cursor))

    async def close(self) -> None:
        with suppress(MsmqError):
            await self._run(self._queue.close())
        self._reading.close()
        self._opening.close()

    async def _run(self, steps: Steps[T]) -> T:
        with _reaching(self._queue.name):
            return await self._reading.run(holding(steps, self._held))


async def _completed(ending: asyncio.Task[None]) -> None:
    """Wait for the end of a receive, although the caller is canceled: a client gets the message that is removed for
    it, not MQ_ERROR_OPERATION_CANCELLED."""
    try:
        await outcome_of(ending)
    except asyncio.CancelledError:
        await outcome_of(ending)


@contextmanager
def _reaching(what: str) -> Iterator[None]:
    """Convert connection errors into MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, about `what`."""
    try:
        yield
    except MsmqError as error:
        if isinstance(error, UNANSWERED):
            raise error_for(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, f"{what}: {error}") from error
        raise
    except (*CALL_FAILURES, TimeoutError) as error:
        raise error_for(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, f"{what}: {error}") from error
