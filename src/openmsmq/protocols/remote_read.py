"""The interface RemoteRead ([MS-MQRR] 3.1.4): queues of this machine for remote readers.

A receive has two phases: R_StartReceive locks the message and sends it, R_EndReceive removes it or puts it back. Until
then the pending request holds the lock; a lost connection, closing the queue and a timer also put it back.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msrpc.ndr import Operation
from msrpc.rpc.association import NULL_HANDLE, Association
from msrpc.rpc.call import Call
from msrpc.rpc.call import RpcCaller as RpcCaller
from msrpc.rpc.faults import RPC_S_ACCESS_DENIED, Fault
from msrpc.rpc.pdu import AuthLevel
from openmsmq.conversion.packets import packet_of
from openmsmq.conversion.queue_format import CONNECTOR, DIRECT, MACHINE, PRIVATE, PUBLIC, SUBQUEUE, from_queue_format
from openmsmq.conversion.send_buffer import NULL_UOW
from openmsmq.interfaces import ms_mqrr as m
from openmsmq.interfaces.ms_mqmq import QUEUE_FORMAT
from openmsmq.model import names
from openmsmq.model.constants import Access, LookupAction, MessageClass, ReceiveAction, Share
from openmsmq.model.errors import (
    HResult,
    IllegalFormatName,
    InvalidHandle,
    MessageNotFound,
    MsmqError,
    QueueDeleted,
    TransactionSequence,
)
from openmsmq.model.message import Message
from openmsmq.packet.sections import divide
from openmsmq.protocols.cleanups import Cleanups
from openmsmq.protocols.dispatch import NdrInterface, check, owned_transaction, present
from openmsmq.protocols.environment import Environment
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.descriptors import OpenQueueDescriptor, QueueCursor, WaitingMessageReadOperation
from openmsmq.queueing.unit_of_work import Transaction

QUEUE_CONTEXT_HANDLE = "QUEUE_CONTEXT_HANDLE"
# Deviation D-54 from 3.1.4.2, which omits connector queues: applications on other machines may read them, too.
READABLE_FORMATS = (PUBLIC, PRIVATE, DIRECT, MACHINE, CONNECTOR, SUBQUEUE)
RR_NACK, RR_ACK = 1, 2
CLEANUP_TIMEOUT = 300.0  # seconds a message stays locked for a client that does not end its receive (3.1.2.2, note 11)
RPC_PORT = 0  # key of this interface's port in `Environment.ports`
_ACTIONS: dict[int, ReceiveAction | LookupAction] = {int(action): action for action in (*ReceiveAction, *LookupAction)}
_StartRequest = m.R_StartReceive_Request | m.R_StartTransactionalReceive_Request


class PendingRequestEntry:
    """3.1.1.2. While `reader` is set, the request waits for a message. Afterwards `lookup_identifier` is locked for the
    client, or for the `transaction` that received it."""

    def __init__(self, queue: RemoteQueue, request: int, transaction: Transaction | None = None) -> None:
        self.queue = queue
        self.request = request
        self.transaction = transaction
        self.reader: WaitingMessageReadOperation | None = None
        self.lookup_identifier = 0

    def keep(self, lookup_identifier: int) -> None:
        """Note that the message is locked for the client."""
        self.lookup_identifier = lookup_identifier
        if self.transaction is not None:
            self.transaction.unacknowledged += 1

    def acknowledged(self) -> None:
        """Note that the client has acknowledged the message, or disconnected."""
        if self.transaction is not None and self.lookup_identifier:
            self.transaction.unacknowledged -= 1


@dataclass(slots=True, eq=False)
class RemoteQueue:
    """State of a context handle: an open queue and its part of the PendingRequestTable. `unprotected`: whether callers
    need no protection for it, as determined when it was opened. `move_context` identifies one that was opened for
    moving."""

    descriptor: OpenQueueDescriptor
    association: Association
    unprotected: bool
    pending: dict[int, PendingRequestEntry] = field(default_factory=dict)
    move_context: int = 0

    @property
    def subqueue(self) -> str:
        """Name of the open subqueue; empty if it is not a subqueue."""
        queue = self.descriptor.queue
        return queue.name if queue is not None and queue.parent is not None else ""

    def location(self, position: int) -> int | None:
        """Return the location of a message in the store; None if it is not in the store, or no longer in the queue."""
        queue = self.descriptor.queue
        return queue.location(position) if queue is not None and position in queue.entries else None


class PendingReceive:
    """An R_StartReceive or R_StartTransactionalReceive from its request to its answer."""

    __slots__ = ("_call", "_destructive", "_entry", "_interface", "_operation", "_q", "_queue", "_stub")

    def __init__(
        self,
        interface: RemoteRead,
        call: Call,
        q: _StartRequest,
        operation: Operation,
        queue: RemoteQueue,
        entry: PendingRequestEntry,
        destructive: bool,
    ) -> None:
        self._interface, self._call, self._q, self._operation = interface, call, q, operation
        self._queue, self._entry, self._destructive = queue, entry, destructive
        self._stub = b""

    def prepare(self, message: Message) -> int:
        """See `descriptors.Accept`: encode the whole answer before the message is taken. A receive takes none if nobody
        awaits the answer, because nobody would end it (deviation D-26)."""
        if self._destructive and self._call.abandoned:
            return HResult.MQ_ERROR_OPERATION_CANCELLED
        q = self._q
        response = self._response(HResult.MQ_OK)
        response.pdwArriveTime = message.arrival_time
        response.pSequenceId = message.sequence
        packet = packet_of(message, self._queue.subqueue)
        response.ppPacketSections = [
            m.SectionBuffer(section.type, section.size_alloc, len(section.data), section.data)
            for section in divide(packet, q.dwMaxBodySize, q.dwMaxCompoundMessageSize)
        ]
        response.pdwNumberOfSections = len(response.ppPacketSections)
        assert self._operation.encode_response is not None
        self._stub = self._call.in_syntax(self._operation).encode_response(response)
        return HResult.MQ_OK

    def answer(self, status: int, message: Message | None) -> None:
        interface, queue, request = self._interface, self._queue, self._q.dwRequestId
        self._entry.reader = None
        if message is None or not self._destructive:
            queue.pending.pop(request, None)
        else:
            self._entry.keep(message.lookup_identifier)
            interface.limit_times([self._entry])
        if message is None:
            interface.finish(self._call, self._operation, self._response(status), durable=False)
        else:
            location = queue.location(message.lookup_identifier)
            waits = interface.environment.must_wait(message, location)
            interface.send(self._call, self._stub, waits, partial(interface.put_back, self._entry))

    def _response(self, status: int) -> Any:
        assert self._operation.response is not None
        return self._operation.response(result=status)


class RemoteRead(NdrInterface):
    description = m.RemoteRead
    open_opnums = frozenset([m.RemoteRead.operation("R_GetServerPort").opnum])
    _start = m.RemoteRead.operation("R_StartReceive")
    _start_transactional = m.RemoteRead.operation("R_StartTransactionalReceive")

    def __init__(self, environment: Environment, minimum_level: AuthLevel = AuthLevel.NONE) -> None:
        super().__init__(environment, minimum_level)
        self._cleanups = Cleanups(environment, CLEANUP_TIMEOUT, self.put_back)
        self._targets: dict[int, RemoteQueue] = {}  # by move context
        self._unprotected: Counter[Association] = Counter()  # number of open queues whose callers need no protection

    def R_GetServerPort(self, call: Call, q: m.R_GetServerPort_Request) -> m.R_GetServerPort_Response:
        """3.1.4.1: answered before any authentication, like R_QMGetRTQMServerPort."""
        return m.R_GetServerPort_Response(result=self.environment.ports.get(RPC_PORT, 0))

    def R_OpenQueue(self, call: Call, q: m.R_OpenQueue_Request) -> m.R_OpenQueue_Response | None:
        """3.1.4.2. Failures are faults. The client's identifier and version are ignored."""
        check(q.dwAccess in (Access.RECEIVE, Access.PEEK), f"dwAccess is {q.dwAccess:#x}, allowed: 0x1 and 0x20")
        name = _name(q.pQueueFormat)
        if q.pQueueFormat.m_qft in (PUBLIC, DIRECT) and self.environment.public_queues.needs(name):
            self.answer_later(call, q, self._resolve_and_open(call, q, name))
            return None
        return m.R_OpenQueue_Response(pphContext=self._handle(call, self._open(call, q)))

    async def _resolve_and_open(
        self, call: Call, q: m.R_OpenQueue_Request, name: names.FormatName
    ) -> m.R_OpenQueue_Response:
        """Open a public queue of this machine that another machine has just created."""
        await self.environment.public_queues.resolve(name, Access(q.dwAccess))
        return m.R_OpenQueue_Response(pphContext=self._handle(call, self._open(call, q)))

    def R_OpenQueueForMove(self, call: Call, q: m.R_OpenQueueForMove_Request) -> m.R_OpenQueueForMove_Response:
        """3.1.4.11: like R_OpenQueue, for a queue that is the target of R_MoveMessage."""
        check(q.dwAccess == Access.MOVE, f"dwAccess is {q.dwAccess:#x}, allowed: 0x4")
        check(q.dwShareMode == Share.DENY_NONE, f"dwShareMode is {q.dwShareMode}, allowed: 0")
        queue = self._open(call, q)
        handle = self._handle(call, queue)
        queue.move_context = secrets.randbits(64) | 1
        self._targets[queue.move_context] = queue
        return m.R_OpenQueueForMove_Response(pMoveContext=queue.move_context, pphContext=handle)

    def _open(self, call: Call, q: m.R_OpenQueue_Request | m.R_OpenQueueForMove_Request) -> RemoteQueue:
        name = _name(q.pQueueFormat)
        check(q.dwShareMode in tuple(Share), f"dwShareMode is {q.dwShareMode}, allowed: 0 and 1")
        manager, association = self.manager, call.association
        access, share = Access(q.dwAccess), Share(q.dwShareMode)
        waives = self.environment.remote_read_security.waives
        unprotected = waives(bool(q.fWorkgroup), lambda: manager.handles.grants_reading(name, Caller.anonymous()))
        self._demand(call, unprotected)
        descriptor = manager.handles.open_queue(name, access, share, self.environment.caller(call), owner=call.holder)
        if unprotected:
            self._unprotected[association] += 1
        return RemoteQueue(descriptor, association, unprotected)

    def _handle(self, call: Call, queue: RemoteQueue) -> bytes:
        return call.handles.create(QUEUE_CONTEXT_HANDLE, queue, self._close)

    def _demand(self, call: Call, unprotected: bool) -> None:
        """Raises Fault unless the caller has the protection that this interface and this server require, or needs none.
        The requirement is determined when a queue is opened and applies to the calls that follow (3.1.4.2, note 19)."""
        if not self._admits(call.caller, unprotected):
            raise Fault(RPC_S_ACCESS_DENIED)

    def _admits(self, caller: RpcCaller, unprotected: bool) -> bool:
        policy = self.environment.policy
        if policy.admits(caller, self.minimum_level):
            return True
        return unprotected and caller.level >= policy.minimum_level

    def R_CloseQueue(self, call: Call, q: m.R_CloseQueue_Request) -> m.R_CloseQueue_Response:
        """3.1.4.3: puts locked messages back and cancels waiting requests."""
        self._queue(call, q.pphContext)
        self._close(call.handles.close(q.pphContext, QUEUE_CONTEXT_HANDLE))
        return m.R_CloseQueue_Response(pphContext=NULL_HANDLE)

    def _close(self, queue: RemoteQueue) -> None:
        self._targets.pop(queue.move_context, None)
        if queue.unprotected:
            self._unprotected[queue.association] -= 1
            self._unprotected += Counter()  # drops zero counts
        entries = list(queue.pending.values())
        queue.pending.clear()
        for entry in entries:
            self._cleanups.discard(entry)
            entry.acknowledged()
            if entry.transaction is not None and entry.lookup_identifier:  # never acknowledged
                self.manager.transactions.withdraw(entry.transaction, queue.descriptor.queue, entry.lookup_identifier)
        self.manager.handles.close_queue(queue.descriptor)

    def R_CreateCursor(self, call: Call, q: m.R_CreateCursor_Request) -> m.R_CreateCursor_Response:
        """3.1.4.4."""
        descriptor = self._queue(call, q.phContext).descriptor
        cursor = self.manager.handles.open_cursor(descriptor, call.association.handles.charge)
        return m.R_CreateCursor_Response(phCursor=cursor.handle)

    def R_CloseCursor(self, call: Call, q: m.R_CloseCursor_Request) -> m.R_CloseCursor_Response:
        """3.1.4.5."""
        self.manager.handles.close_cursor(_cursor(self._queue(call, q.phContext), q.hCursor))
        return m.R_CloseCursor_Response()

    def R_PurgeQueue(self, call: Call, q: m.R_PurgeQueue_Request) -> m.R_PurgeQueue_Response:
        """3.1.4.6."""
        descriptor = self._queue(call, q.phContext).descriptor
        check(
            descriptor.destructive, f"{descriptor.name}: purging requires receive access", HResult.STATUS_ACCESS_DENIED
        )
        self.manager.reading.purge(descriptor)
        return m.R_PurgeQueue_Response()

    def R_StartReceive(self, call: Call, q: m.R_StartReceive_Request) -> None:
        """3.1.4.7: answers immediately, or when a message arrives, the read times out or the call is canceled."""
        self._receive(call, q, self._start, None)

    def R_StartTransactionalReceive(self, call: Call, q: m.R_StartTransactionalReceive_Request) -> None:
        """3.1.4.13: like R_StartReceive, but the message stays locked until the end of the transaction. Deviation D-70:
        an internal transaction is accepted, too. A zero identifier stands for NULL, because a reference pointer cannot
        be NULL."""
        if q.pTransactionId.rgb == NULL_UOW:
            self._receive(call, q, self._start_transactional, None)
            return
        queue = self._queue(call, q.phContext)
        action = _action(q)
        if q.hCursor:  # order of the checks: parameters, cursor, queue, action
            _cursor(queue, q.hCursor)
        transactional = queue.descriptor.queue is not None and queue.descriptor.queue.properties.transactional
        usage = HResult.MQ_ERROR_TRANSACTION_USAGE
        check(transactional, f"{queue.descriptor.format_name} is not transactional", usage)
        check(_is_destructive(action), "peeking in a transaction", usage)
        # Deviation D-68: an unknown transaction is an error; it is not created.
        self._receive(call, q, self._start_transactional, owned_transaction(self, call, q.pTransactionId))

    def _receive(self, call: Call, q: _StartRequest, operation: Operation, transaction: Transaction | None) -> None:
        queue = self._queue(call, q.phContext)
        action = _action(q)
        destructive = _is_destructive(action)
        opened = queue.descriptor
        if opened.access is Access.MOVE or (destructive and not opened.destructive):
            raise MsmqError(
                HResult.MQ_ERROR_ACCESS_DENIED, f"{opened.name} was opened with {opened.access.name} access"
            )
        check(q.dwRequestId not in queue.pending, f"dwRequestId {q.dwRequestId} is in use")
        manager = self.manager
        # Deviation D-36: for every request, not only for receives.
        entry = PendingRequestEntry(queue, q.dwRequestId, transaction)
        queue.pending[q.dwRequestId] = entry
        receive = PendingReceive(self, call, q, operation, queue, entry, destructive)
        if isinstance(action, LookupAction):
            manager.reading.read_by_lookup_identifier(
                queue.descriptor, q.LookupId, action.seek, receive.prepare, receive.answer, destructive=destructive,
                two_phase=destructive, transaction=transaction,
            )  # fmt: skip
            return
        try:
            cursor = _cursor(queue, q.hCursor) if q.hCursor else None
        except MsmqError:
            del queue.pending[q.dwRequestId]
            raise
        reader = manager.reading.read(
            queue.descriptor, action, q.ulTimeout, receive.prepare, receive.answer, cursor=cursor,
            two_phase=destructive, transaction=transaction,
        )  # fmt: skip
        if reader is not None:
            entry.reader = reader
            call.waits()
            call.on_cancel = partial(self._cancel, reader)

    def _cancel(self, reader: WaitingMessageReadOperation) -> None:
        self.manager.reading.cancel(reader)

    def limit_times(self, entries: list[PendingRequestEntry]) -> None:
        """Start the time limit for ending receives, whose messages are locked now."""
        self._cleanups.add(entries)

    def forget(self, entry: PendingRequestEntry) -> None:
        """Forget a receive that has ended."""
        del entry.queue.pending[entry.request]
        entry.acknowledged()
        self._cleanups.discard(entry)

    def put_back(self, entry: PendingRequestEntry) -> None:
        """3.1.5.1: puts the message back, because the client has not ended the receive in time, or did not wait for its
        answer. Deviation D-35: the timer starts when the message is locked, not with the request."""
        if entry.queue.pending.get(entry.request) is entry:
            self.forget(entry)
            with suppress(QueueDeleted, MessageNotFound, TransactionSequence):
                self._end(entry, RR_NACK)

    def _end(self, entry: PendingRequestEntry, acknowledgment: int) -> None:
        """Dequeue Message End, [MS-MQDMPR] 3.1.7.1.12. A message received in a transaction stays locked; if the client
        rejects it, it leaves the transaction and is available again, as in the table of dwAck in 3.1.4.15 (D-69)."""
        manager, descriptor, key = self.manager, entry.queue.descriptor, entry.lookup_identifier
        if entry.transaction is None:
            manager.reading.end_two_phase(descriptor, key, delete=acknowledgment == RR_ACK)
            return
        manager.transactions.check_received(entry.transaction, descriptor.queue, key)
        if acknowledgment == RR_NACK:
            manager.transactions.withdraw(entry.transaction, descriptor.queue, key)

    def R_CancelReceive(self, call: Call, q: m.R_CancelReceive_Request) -> m.R_CancelReceive_Response:
        """3.1.4.8: cancels the waiting R_StartReceive. One that already has its message cannot be canceled, only
        ended."""
        entry = self._queue(call, q.phContext).pending.get(q.dwRequestId)
        if entry is None or entry.reader is None or not self.manager.reading.cancel(entry.reader):
            raise MsmqError(
                HResult.MQ_ERROR_INVALID_PARAMETER, f"no receive with dwRequestId {q.dwRequestId} is waiting"
            )
        return m.R_CancelReceive_Response()

    def R_EndReceive(self, call: Call, q: m.R_EndReceive_Request) -> m.R_EndReceive_Response:
        """3.1.4.9: removes the message or puts it back in its place. If its removal cannot be stored, it stays locked,
        and the client may retry."""
        self._end_receive(call, q)
        return m.R_EndReceive_Response()

    def R_EndTransactionalReceive(
        self, call: Call, q: m.R_EndTransactionalReceive_Request
    ) -> m.R_EndTransactionalReceive_Response:
        """3.1.4.15: leaves the message to its transaction, or puts it back in its place. Fails if the transaction no
        longer has it, because it has ended."""
        self._end_receive(call, q)
        return m.R_EndTransactionalReceive_Response()

    def _end_receive(self, call: Call, q: m.R_EndReceive_Request | m.R_EndTransactionalReceive_Request) -> None:
        queue = self._queue(call, q.phContext)
        check(bool(queue.pending), f"{queue.descriptor.name}: no receive is pending", HResult.MQ_ERROR_INVALID_HANDLE)
        entry = present(queue.pending.get(q.dwRequestId), f"the receive {q.dwRequestId}")
        check(
            entry.reader is None,
            f"{queue.descriptor.name}: the receive {q.dwRequestId} is still waiting",
            HResult.MQ_ERROR_MESSAGE_NOT_FOUND,
        )
        try:
            self._end(entry, q.dwAck)
        except (QueueDeleted, MessageNotFound, TransactionSequence):
            self.forget(entry)
            raise
        self.forget(entry)

    def R_MoveMessage(self, call: Call, q: m.R_MoveMessage_Request) -> m.R_MoveMessage_Response:
        """3.1.4.10: moves a message between a queue and its subqueues, immediately or when the transaction commits."""
        source = self._queue(call, q.phContextFrom)
        target = self._targets.get(q.ullContextTo)
        if target is None or not target.descriptor.owner.admits(call.holder):
            raise InvalidHandle(detail=f"ullContextTo {q.ullContextTo:#x} names no queue that is open for moving")
        self._demand(call, target.unprotected)
        transaction = None
        if q.pTransactionId.rgb != NULL_UOW:  # order of the checks: relation, usage, message, transaction
            transaction = partial(owned_transaction, self, call, q.pTransactionId)
        self.manager.subqueues.move(source.descriptor, target.descriptor, q.LookupId, transaction)
        return m.R_MoveMessage_Response()

    def R_SetUserAcknowledgementClass(
        self, call: Call, q: m.R_SetUserAcknowledgementClass_Request
    ) -> m.R_SetUserAcknowledgementClass_Response:
        """3.1.4.14: marks a message received in a transaction as rejected when the transaction commits."""
        queue = self._queue(call, q.phContext)
        rejected = MessageClass.NACK_RECEIVE_REJECTED
        check(q.usClass in (0, rejected), f"usClass is {q.usClass:#x}, allowed: 0 and {rejected:#x}")
        self.manager.subqueues.reject(queue.descriptor, q.LookupId, rejected=q.usClass == rejected)
        return m.R_SetUserAcknowledgementClass_Response()

    def R_QMEnlistRemoteTransaction(
        self, call: Call, q: m.R_QMEnlistRemoteTransaction_Request
    ) -> m.R_QMEnlistRemoteTransaction_Response | None:
        """3.1.4.12: enlists by the propagation token, which names the coordinator. The call names no queue, so a client
        that needs no protection for an open queue needs none here."""
        self._demand(call, call.association in self._unprotected)
        if not q.cbPropagationToken:  # deviation D-70: the client's internal transaction needs no token
            transaction = owned_transaction(self, call, q.pTransactionId)
            check(transaction.owner is not None, "cbPropagationToken is 0")
            return m.R_QMEnlistRemoteTransaction_Response()
        pulling = self.environment.coordinator.pull(q.pTransactionId.rgb, bytes(q.pbPropagationToken), call.peer)
        self.answer_later(call, q, self._pulled(pulling))
        return None

    @staticmethod
    async def _pulled(pulling: Awaitable[None]) -> m.R_QMEnlistRemoteTransaction_Response:
        await pulling
        return m.R_QMEnlistRemoteTransaction_Response()

    def admits(self, caller: RpcCaller, queue: RemoteQueue) -> bool:
        """Whether a caller has the protection required for a queue that it has opened."""
        return self._admits(caller, queue.unprotected)

    def _queue(self, call: Call, handle: bytes) -> RemoteQueue:
        queue: RemoteQueue = call.handles.get(handle, QUEUE_CONTEXT_HANDLE)
        self._demand(call, queue.unprotected)
        return queue


class NegotiatedRemoteRead(RemoteRead):
    """RemoteRead for settings that admit readers without protection: all calls reach their operations, which check the
    requirement of the queue."""

    open_opnums = frozenset(range(len(m.RemoteRead.operations)))


def _is_destructive(action: ReceiveAction | LookupAction) -> bool:
    return action is ReceiveAction.RECEIVE or (isinstance(action, LookupAction) and action.destructive)


def _action(q: _StartRequest) -> ReceiveAction | LookupAction:
    """Return the action. Raises MsmqError if the other arguments do not fit it (the table of ulAction)."""
    action = _ACTIONS.get(q.ulAction)
    if action is None:
        raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"ulAction is {q.ulAction:#x}")
    by_lookup = isinstance(action, LookupAction)
    check(by_lookup == bool(q.LookupId), f"LookupId is {q.LookupId:#x} with {action.name}")
    check(not by_lookup or not q.hCursor, f"hCursor with {action.name} by lookup identifier")
    check(not by_lookup or not q.ulTimeout, f"ulTimeout with {action.name} by lookup identifier")
    check(action is not ReceiveAction.PEEK_NEXT or bool(q.hCursor), "PEEK_NEXT needs a cursor")
    return action


def _cursor(queue: RemoteQueue, handle: int) -> QueueCursor:
    cursor = queue.descriptor.cursors.get(handle)
    if cursor is None:
        raise MsmqError(HResult.STATUS_INVALID_HANDLE, f"{queue.descriptor.name}: no cursor {handle:#x}")
    return cursor


def _name(value: QUEUE_FORMAT) -> names.FormatName:
    """Return the format name of a queue to be opened. Raises MsmqError MQ_ERROR_INVALID_PARAMETER for an invalid name,
    or a type that cannot be read (3.1.4.2)."""
    check(value.m_qft in READABLE_FORMATS, f"m_qft of pQueueFormat is {value.m_qft}, allowed: {READABLE_FORMATS}")
    try:
        return from_queue_format(value)
    except IllegalFormatName as error:
        raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"pQueueFormat: {error.detail}") from None
