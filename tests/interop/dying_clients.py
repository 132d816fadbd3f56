"""Clients that call random operations of the API over randomly cut connections, and keep a ledger of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from interop.dying_connections import DyingConnections
from interop.ledger import NEVER, Certainty, MessageState, Span
from openmsmq import MessageAlreadyReceived, MessageNotFound, MsmqError, OperationCancelled, ReceiveTimeout, aio
from openmsmq.model.errors import HResult

# Only LOSSY has one-phase receives, where a lost reply loses the message. The other queues lose none.
LOSSY, PLAIN, PURGED, TRANSACTIONAL, DISTRIBUTED = QUEUES = tuple(
    f".\\private$\\{name}" for name in ("lossy", "plain", "purged", "transactional", "distributed")
)
IN_TRANSACTIONS = (TRANSACTIONAL, DISTRIBUTED)
ASIDE = ";aside"
TWO_PHASES = ("remoteread", "qm2qm")
PROTOCOLS = ("qmcomm", *TWO_PHASES)
WAITING = 3  # immediate receives
# Another client received, locked or moved the message.
ELSEWHERE = (MessageNotFound, MessageAlreadyReceived, ReceiveTimeout)
LOCKED = HResult.MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION


class AbandonLock(Exception):
    """Raised to leave the block of a locked message."""


class DyingClient(DyingConnections):
    """Each operation reports its known outcome to the ledger, even if it was cut off."""

    number = 0  # number of messages so far

    async def open(self, queue: str, access: str, protocol: str) -> aio.MessageQueue:
        assert self.manager is not None
        key = queue, access, protocol
        if key not in self.queues:
            self.queues[key] = await self.manager.open(queue, access, protocol=protocol)
        return self.queues[key]

    def any_queue(self) -> str:
        return self.random.choice(QUEUES)

    def patience(self) -> float:
        return self.random.choice((0, 0, 0, 0.01, 0.05))

    def sending(self, queue: str, priority: int, recoverable: bool) -> MessageState:
        self.number += 1
        text = f"{self.name}.{self.number}." + "x" * self.random.choice((0, 10, 300, 3000))
        return self.ledger.sending(text, queue, priority, recoverable)

    async def send(self) -> None:
        queue = self.random.choice((LOSSY, PLAIN, PURGED))
        opened = await self.open(queue, "send", "qmcomm")
        fate = self.sending(queue, self.random.choice((2, 3, 3, 5)), self.random.random() < 0.5)
        await opened.send(fate.text, priority=fate.priority, recoverable=fate.recoverable)
        fate.send.end = self.ledger.now()
        self.ledger.sent([fate])

    async def send_in_transaction(self) -> None:
        assert self.manager is not None
        queue = self.random.choice(IN_TRANSACTIONS)
        opened = await self.open(queue, "send", "qmcomm")
        transaction = await self.manager.transaction()
        group: list[MessageState] = []
        for _ in range(self.random.randrange(1, 4)):
            fate = self.sending(queue, 0, True)
            fate.sent, fate.offered, fate.group = Certainty.NO, NEVER, group
            group.append(fate)
            await opened.send(fate.text, transaction=transaction)
            fate.send.end = self.ledger.now()
        if self.random.random() < 0.2:
            await transaction.abort()
            return
        offered = self.ledger.now()
        for fate in group:
            fate.sent, fate.offered = Certainty.MAYBE, offered
        await transaction.commit()
        self.ledger.sent(group)

    async def receive(self) -> None:
        """One-phase receive: if the reply is cut off, the message may be gone."""
        queue = LOSSY
        opened = await self.open(queue, "receive", "qmcomm")
        span = self.begin()
        try:
            message = await opened.receive(self.patience())
        except ReceiveTimeout:
            self.found_none(queue, span)
        except ConnectionError:
            self.ledger.unknown_takes[queue] += 1
            raise
        else:
            fate = self.found(queue, span, message.decode())
            if fate is not None:
                self.ledger.took(fate, self.end(span), Certainty.YES)

    async def lock(self) -> None:
        """Two-phase receive: remove, put back, or abandon by closing the connection."""
        queue = self.any_queue()
        opened = await self.open(queue, "receive", self.random.choice(TWO_PHASES))
        ending = self.random.choice(("acknowledge", "acknowledge", "acknowledge", "put back", "put back", "die"))
        with suppress(AbandonLock):
            await self.take(opened, queue, self.begin(), self.patience(), ending)

    async def take(self, opened: aio.MessageQueue, queue: str, span: Span, patience: float, ending: str) -> None:
        fate, cuts = None, self.proxy.cuts
        try:
            async with opened.receive_lock(patience) as message:
                fate = self.found(queue, span, message.decode())
                if fate is None:
                    return
                fate.away.append(span)
                await asyncio.sleep(self.random.choice((0, 0, 0.003, 0.01)))
                if ending == "die":
                    self.proxy.cut()
                if ending != "acknowledge":
                    raise AbandonLock
                self.ledger.took(fate, span, Certainty.MAYBE)
        except ReceiveTimeout:
            self.found_none(queue, span)
        except (AbandonLock, OperationCancelled, asyncio.CancelledError) as error:
            if fate is None or isinstance(error, asyncio.CancelledError):
                self.ledger.unknown_holds[queue].append(span)  # it may have locked a message and put it back
            if self.proxy.cuts == cuts:
                self.end(span)
            raise
        except ConnectionError:
            if fate is None:
                self.ledger.unknown_holds[queue].append(span)
            raise
        else:
            self.ledger.took(fate, self.end(span), Certainty.YES)

    async def peek(self) -> None:
        queue = self.any_queue()
        opened = await self.open(queue, "receive", self.random.choice(PROTOCOLS))
        span = self.begin()
        try:
            message = await opened.peek(self.patience())
        except ReceiveTimeout:
            self.found_none(queue, span)
        else:
            self.found(queue, span, message.decode())
            self.end(span)

    async def walk(self) -> None:
        """Move a cursor; then receive its message, by the cursor or by lookup identifier."""
        queue, protocol = self.any_queue(), self.random.choice(PROTOCOLS)
        opened = await self.open(queue, "receive", protocol)
        async with await opened.cursor() as cursor:
            try:
                span = self.begin()
                message = await cursor.peek(0)
                self.found(queue, span, message.decode())
                self.end(span)
                for _ in range(self.random.randrange(4)):
                    message = await cursor.peek_next(0)
                    self.found(queue, Span(span.begin), message.decode(), first=False)
            except ReceiveTimeout:
                if span in self.unsettled:
                    self.found_none(queue, span)
                return
            except MessageAlreadyReceived:  # taken while the client enlarged its buffer; the cursor stood on it by then
                self.end(span)
                return
            by_identifier = protocol in TWO_PHASES and self.random.random() < 0.5
            span = self.begin()
            try:
                if by_identifier:
                    taken = await opened.receive_by_lookup_id(message.lookup_identifier)
                else:
                    taken = await cursor.receive(0)
            except ELSEWHERE:
                self.end(span)
            except ConnectionError:
                self.ledger.took(self.ledger.fates[str(message.decode())], span, Certainty.MAYBE)
                raise
            else:
                fate = self.found(queue, span, taken.decode(), first=False)
                if taken.decode() != message.decode():
                    self.ledger.wrong.append(f"{queue}: took {fate}, not {str(message.decode())[:16]}, on {protocol}")
                if fate is not None:
                    self.ledger.took(fate, self.end(span), Certainty.YES)

    async def receive_in_transaction(self) -> None:
        assert self.manager is not None
        opened = await self.open(TRANSACTIONAL, "receive", self.random.choice(("qmcomm", "remoteread")))
        transaction = await self.manager.transaction()
        whole, group = self.begin(), list[MessageState]()
        await self.receive_some(opened, TRANSACTIONAL, transaction, whole, group)
        await self.finish(transaction, whole, group)
        self.end(whole)

    async def receive_in_distributed_transaction(self) -> None:
        """Receive through R_StartTransactionalReceive, in a transaction that another queue manager coordinates."""
        opened = await self.open(DISTRIBUTED, "receive", "remoteread")
        if self.coordinator is None:
            self.coordinator = await self._connect(self.coordinators_proxy.port)
        transaction = await self.coordinator.transaction()
        whole, group = self.begin(), list[MessageState]()
        try:
            await self.receive_some(opened, DISTRIBUTED, transaction, whole, group)
            committed = await self.finish(transaction, whole, group)
        except (ConnectionError, MsmqError):
            self.back_some_time(whole)
            with suppress(ConnectionError, MsmqError):
                await transaction.abort()
            raise
        if committed:
            self.end(whole)
        else:
            self.back_some_time(whole)

    async def receive_some(
        self, opened: aio.MessageQueue, queue: str, transaction: aio.Transaction, whole: Span, group: list[MessageState]
    ) -> None:
        for _ in range(self.random.randrange(1, 4)):
            span = Span(self.ledger.now())
            try:
                message = await opened.receive(0, transaction=transaction)
            except ReceiveTimeout:
                self.ledger.looked(queue, Span(span.begin, self.ledger.now()), None)
                break
            except ConnectionError:
                self.ledger.unknown_holds[queue].append(whole)
                raise
            fate = self.found(queue, span, message.decode())
            if fate is not None:
                fate.away.append(whole)
                group.append(fate)

    async def finish(self, transaction: aio.Transaction, whole: Span, group: list[MessageState]) -> bool:
        """Abort, or commit; returns whether it committed."""
        if self.random.random() < 0.3:
            await transaction.abort()
            return False
        for fate in group:
            self.ledger.took(fate, whole, Certainty.MAYBE, group)
        await transaction.commit()
        for fate in group:
            self.ledger.took(fate, whole, Certainty.YES, group)
        return True

    async def cancel(self) -> None:
        """Start several waiting receives and cancel them, together or one by one."""
        queue = self.any_queue()
        opened = await self.open(queue, "receive", self.random.choice(TWO_PHASES))
        waiting = [
            asyncio.ensure_future(self.take(opened, queue, self.begin(), 1, "acknowledge")) for _ in range(WAITING)
        ]
        await asyncio.sleep(self.random.choice((0, 0.001, 0.005, 0.02)))
        with suppress(ConnectionError):
            if self.kind.threads or self.random.random() < 0.5:
                await opened.cancel()
            else:
                for task in waiting:
                    task.cancel()
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            if result is not None and not isinstance(result, OperationCancelled | asyncio.CancelledError):
                raise result

    async def purge(self) -> None:
        opened = await self.open(PURGED, "receive", self.random.choice(PROTOCOLS))
        span = self.begin()
        try:
            await opened.purge()
        except ConnectionError:
            self.ledger.unknown_purges[PURGED].append(span)
            raise
        self.ledger.purges[PURGED].append(self.end(span))

    async def move(self) -> None:
        """Move the first message to the subqueue, or the first one of the subqueue back."""
        queue, back = self.any_queue(), self.random.random() < 0.5
        opened = await self.open(queue + (ASIDE if back else ""), "receive", "remoteread")
        span = self.begin()
        try:
            message = await opened.peek(0)
        except ReceiveTimeout:
            if back:
                self.end(span)
            else:
                self.found_none(queue, span)
            return
        fate = self.found(queue, span, message.decode(), first=not back)
        self.end(span)
        if fate is None:
            return
        # Its location is unknown from now on; only a message moved back is known to be in its queue afterwards.
        away = Span(self.ledger.now())
        fate.away.append(away)
        try:
            await opened.move(message.lookup_identifier, "" if back else ASIDE[1:])
        except MessageNotFound:
            pass
        except MsmqError as error:
            if error.hresult != LOCKED:
                raise
            if not back:
                away.end = self.ledger.now()
        else:
            if back:
                now = self.ledger.now()
                for elsewhere in fate.away:
                    if elsewhere.begin <= away.begin:  # not those that another client took in the meantime
                        elsewhere.end = min(elsewhere.end, now)


OPERATIONS: dict[Callable[[DyingClient], Awaitable[None]], int] = {
    DyingClient.send: 16,
    DyingClient.send_in_transaction: 8,
    DyingClient.receive: 3,
    DyingClient.lock: 8,
    DyingClient.peek: 3,
    DyingClient.walk: 4,
    DyingClient.receive_in_transaction: 4,
    DyingClient.receive_in_distributed_transaction: 4,
    DyingClient.cancel: 2,
    DyingClient.move: 4,
    DyingClient.purge: 1,
}
