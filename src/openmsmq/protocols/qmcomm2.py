"""The interface qmcomm2 ([MS-MQMP] 3.1.5): sending, reading, cursors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from functools import partial
from typing import Any, ClassVar

from msrpc.rpc.call import Call
from openmsmq.conversion.receive_buffer import check_sizes, fill, objectid
from openmsmq.conversion.send_buffer import CACTB_RECEIVE, NULL_UOW, is_encrypted, message_from_send
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.model.constants import Access, ReceiveAction
from openmsmq.model.errors import HResult, InvalidHandle, MsmqError
from openmsmq.model.message import Message
from openmsmq.protocols.dispatch import NdrInterface, check, owned_transaction
from openmsmq.protocols.proxies import RemoteQueueProxyHandle
from openmsmq.protocols.qmcomm import RPC_QUEUE_HANDLE, owned_descriptor
from openmsmq.queueing.descriptors import WaitingMessageReadOperation
from openmsmq.queueing.unit_of_work import Transaction

logger = logging.getLogger(__name__)

# Maximum unsynced bytes in the log before sends in transactions, which request no sync of their own, must wait.
BACKLOG = 1 << 20
_ACTIONS = {int(action): action for action in ReceiveAction}


class PendingRead:
    """An rpc_ACReceiveMessageEx from its request to its answer.

    While it waits, only the bytes of the request are kept; the decoded buffer is several times as large. `takes`
    (deviation D-26): it is a receive, which takes no message if its client has disconnected or canceled it.
    """

    __slots__ = ("_call", "_interface", "_ptb", "_stub", "_takes")
    _operation = m.qmcomm2.operation("rpc_ACReceiveMessageEx")

    def __init__(self, interface: QmComm2, call: Call, ptb: m.CACTransferBufferV2, takes: bool) -> None:
        self._interface, self._call, self._takes = interface, call, takes
        self._ptb: m.CACTransferBufferV2 | None = ptb
        self._stub = b""

    def wait(self) -> None:
        self._ptb = None

    def prepare(self, message: Message) -> int:
        """See `descriptors.Accept`: encode the whole answer before the message is taken."""
        if self._takes and self._call.abandoned:
            return HResult.MQ_ERROR_OPERATION_CANCELLED
        ptb = self._buffer()
        status = self._interface.fill(ptb, message)
        if status == HResult.MQ_OK:
            response = m.rpc_ACReceiveMessageEx_Response(ptb=ptb, result=status)
            assert self._operation.encode_response is not None
            self._stub = self._call.in_syntax(self._operation).encode_response(response)
            self._ptb = None
        return status

    def answer(self, status: int, message: Message | None) -> None:
        interface = self._interface
        if message is not None:
            interface.send(self._call, self._stub, interface.environment.must_wait(message))
            return
        response = m.rpc_ACReceiveMessageEx_Response(ptb=self._buffer(), result=status)
        interface.finish(self._call, self._operation, response, durable=False)

    def _buffer(self) -> m.CACTransferBufferV2:
        if self._ptb is None:
            assert self._operation.decode_request is not None
            operation = self._call.in_syntax(self._operation)
            request = operation.decode_request(self._call.stub, self._call.byte_order)
            self._ptb = request.ptb
        assert self._ptb is not None
        return self._ptb


class QmComm2(NdrInterface):
    description = m.qmcomm2
    states: ClassVar[dict[str, str]] = {
        "QMSendMessageInternalEx": "MQ_ERROR_ILLEGAL_OPERATION, as specified",
    }
    _send = m.qmcomm2.operation("rpc_ACSendMessageEx")

    def QMSendMessageInternalEx(self, call: Call, q: m.QMSendMessageInternalEx_Request) -> None:
        """3.1.5.1: not needed, because this server never answers STATUS_RETRY."""
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_OPERATION)

    def rpc_ACSendMessageEx(
        self, call: Call, q: m.rpc_ACSendMessageEx_Request
    ) -> m.rpc_ACSendMessageEx_Response | None:
        """3.1.5.2. In a transaction the answer need not wait for a sync; that of the commit does."""
        environment = self.environment
        descriptor = call.handles.get(q.hQueue, RPC_QUEUE_HANDLE)
        if isinstance(descriptor, RemoteQueueProxyHandle):
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, f"{descriptor.format_name} was not opened for sending")
        message = message_from_send(q.ptb, environment.sender_sid(call.caller))
        if message.signature:
            look_up = environment.message_security.look_up(message.sender_identifier, message.sender_certificate)
            if look_up is not None:
                self.answer_later(call, q, self._send_when_known(call, q, message, look_up))
                return None
        return self._enqueue(call, q, descriptor, message)

    async def _send_when_known(
        self, call: Call, q: m.rpc_ACSendMessageEx_Request, message: Message, look_up: Awaitable[None]
    ) -> m.rpc_ACSendMessageEx_Response | None:
        """Send after the certificates of the sender have been looked up in the directory."""
        await look_up
        descriptor = call.handles.get(q.hQueue, RPC_QUEUE_HANDLE)  # may have been closed meanwhile
        return self._enqueue(call, q, descriptor, message)

    def _enqueue(
        self, call: Call, q: m.rpc_ACSendMessageEx_Request, descriptor: Any, message: Message
    ) -> m.rpc_ACSendMessageEx_Response | None:
        environment = self.environment
        transaction = self._transaction(call, q.ptb)
        environment.message_security.admit(descriptor, message, transaction is not None, encrypted=is_encrypted(q.ptb))
        identifier = environment.manager.sending.enqueue(descriptor, message, transaction)
        identity = objectid(identifier) if q.pMessageID is not None else None
        response = m.rpc_ACSendMessageEx_Response(pMessageID=identity)
        if transaction is None:
            return response
        self.finish(call, self._send, response, environment.backlog > BACKLOG)
        return None

    def rpc_ACReceiveMessageEx(self, call: Call, q: m.rpc_ACReceiveMessageEx_Request) -> None:
        """3.1.5.3: answers immediately, or when a message arrives, the read times out or the call is canceled."""
        environment, ptb = self.environment, q.ptb
        receive = ptb.old.Receive
        check(ptb.old.uTransferType == CACTB_RECEIVE and receive is not None, "uTransferType is not CACTB_RECEIVE")
        assert receive is not None
        action = _ACTIONS.get(receive.Action)
        if action is None:
            allowed = ", ".join(f"{a:#x}" for a in ReceiveAction)
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"Action is {receive.Action:#x}, allowed: {allowed}")
        check_sizes(ptb)
        transaction = self._transaction(call, ptb)
        proxy = environment.proxies.get(q.hQMContext)
        if proxy is not None and proxy.owner.admits(call.holder):
            self._receive_remotely(call, q, action, proxy, transaction)
            return
        descriptor = owned_descriptor(self, call, q.hQMContext)
        if descriptor.access is Access.SEND or (action is ReceiveAction.RECEIVE and not descriptor.destructive):
            raise MsmqError(
                HResult.MQ_ERROR_ACCESS_DENIED, f"{descriptor.name} was opened with {descriptor.access.name} access"
            )
        cursor = None
        if receive.Cursor:
            cursor = descriptor.cursors.get(receive.Cursor)
            if cursor is None:
                raise InvalidHandle(detail=f"{descriptor.name}: no cursor {receive.Cursor:#x}")
        pending = PendingRead(self, call, ptb, takes=action is ReceiveAction.RECEIVE)
        reader = environment.manager.reading.read(
            descriptor,
            action,
            receive.RequestTimeout,
            pending.prepare,
            pending.answer,
            cursor=cursor,
            transaction=transaction,
        )
        if reader is not None:
            pending.wait()
            call.waits()
            call.on_cancel = partial(self._cancel, reader)

    def fill(self, ptb: m.CACTransferBufferV2, message: Message) -> int:
        """Copy `message` into `ptb`. Returns MQ_OK, or the failure of the first member that is too small."""
        return fill(ptb, message, self.manager.clock() // 1000)

    def _receive_remotely(
        self,
        call: Call,
        q: m.rpc_ACReceiveMessageEx_Request,
        action: ReceiveAction,
        proxy: RemoteQueueProxyHandle,
        transaction: Transaction | None,
    ) -> None:
        """3.1.5.3 for a queue of another queue manager, which an internal transaction cannot include."""
        receive = q.ptb.old.Receive
        assert receive is not None
        check(transaction is None, "a transaction with a remote queue", HResult.MQ_ERROR_TRANSACTION_USAGE)
        denied = action is ReceiveAction.RECEIVE and proxy.access is not Access.RECEIVE
        check(not denied, f"opened with {proxy.access.name} access", HResult.MQ_ERROR_ACCESS_DENIED)
        proxy.check_cursor(receive.Cursor)
        reading = self._read_remotely(call, q.ptb, proxy, action, receive.RequestTimeout, receive.Cursor)
        self.answer_later(call, q, reading)

    async def _read_remotely(
        self,
        call: Call,
        ptb: m.CACTransferBufferV2,
        proxy: RemoteQueueProxyHandle,
        action: ReceiveAction,
        timeout: int,
        cursor: int,
    ) -> m.rpc_ACReceiveMessageEx_Response:
        takes = action is ReceiveAction.RECEIVE

        def accept(message: Message) -> int:
            return HResult.MQ_ERROR_OPERATION_CANCELLED if takes and call.abandoned else self.fill(ptb, message)

        status = await proxy.read(action, timeout, cursor, accept)
        return m.rpc_ACReceiveMessageEx_Response(ptb=ptb, result=status)

    def _cancel(self, reader: WaitingMessageReadOperation) -> None:
        self.manager.reading.cancel(reader)

    def rpc_ACCreateCursorEx(
        self, call: Call, q: m.rpc_ACCreateCursorEx_Request
    ) -> m.rpc_ACCreateCursorEx_Response | None:
        """3.1.5.4. The other members are for clients that created remote cursors themselves; they are returned
        unchanged."""
        descriptor = call.handles.get(q.hQueue, RPC_QUEUE_HANDLE)
        if isinstance(descriptor, RemoteQueueProxyHandle):
            self.answer_later(call, q, self._create_remote_cursor(q, descriptor))
            return None
        q.pcc.hCursor = self.manager.handles.open_cursor(descriptor, call.association.handles.charge).handle
        return m.rpc_ACCreateCursorEx_Response(pcc=q.pcc)

    @staticmethod
    async def _create_remote_cursor(
        q: m.rpc_ACCreateCursorEx_Request, proxy: RemoteQueueProxyHandle
    ) -> m.rpc_ACCreateCursorEx_Response:
        q.pcc.hCursor = await proxy.create_cursor()
        return m.rpc_ACCreateCursorEx_Response(pcc=q.pcc)

    def _transaction(self, call: Call, ptb: m.CACTransferBufferV2) -> Transaction | None:
        """Return the enlisted transaction of pUow. Deviation D-11: a zero unit of work means none, because clients pass
        uninitialized buffers."""
        uow = ptb.old.pUow
        if uow is None or uow.rgb == NULL_UOW:
            return None
        return owned_transaction(self, call, uow)
