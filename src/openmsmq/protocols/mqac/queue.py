"""MSMQQueue ([MC-MQAC] 3.11): an open queue with its cursor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar, Final

from msrpc.dcom import coercion
from msrpc.dcom.server import CallContext
from msrpc.dcom.variant import VT, Variant
from msrpc.hresults import ComResult
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.constants import Access, MessageSeekAction, ReceiveAction, Share
from openmsmq.model.errors import ComError, HResult, InvalidHandle, MsmqError
from openmsmq.model.message import Message
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.mqac.event import ARRIVED, ARRIVED_ERROR, MSMQEvent
from openmsmq.protocols.mqac.message import MSMQMessage
from openmsmq.protocols.mqac.objects import MqacObject, boolean, integer, timeout
from openmsmq.protocols.mqac.queue_info import MSMQQueueInfo
from openmsmq.protocols.mqac.transactions import transaction_of
from openmsmq.queueing.descriptors import CursorState, OpenQueueDescriptor, QueueCursor, WaitingMessageReadOperation
from openmsmq.queueing.unit_of_work import Transaction

_RECEIVING: Final = (Access.RECEIVE, Access.RECEIVE_ADMIN)
_WHERE: Final = {
    m.MQMSG_FIRST: ReceiveAction.PEEK_CURRENT, m.MQMSG_CURRENT: ReceiveAction.PEEK_CURRENT, m.MQMSG_NEXT:
    ReceiveAction.PEEK_NEXT,
}  # fmt: skip
_PEEKING: Final = (*_RECEIVING, Access.PEEK, Access.PEEK_ADMIN)


class _Wanted:
    """Parts of a message that a caller requests."""

    __slots__ = ("body", "connector_type", "destination")

    def __init__(self, destination: Variant | None, body: Variant | None, connector_type: Variant | None) -> None:
        self.destination = boolean(destination, False)
        self.body = boolean(body, True)
        self.connector_type = boolean(connector_type, False)


def reading(action: ReceiveAction, with_cursor: bool) -> Callable[..., Any]:
    """Create a method of 3.11.4.1 that peeks at a message; revision 1 has no WantConnectorType."""

    def peek(
        self: MSMQQueue, context: CallContext, destination: Variant | None, body: Variant | None,
        wait: Variant | None, connector_type: Variant | None = None,
    ) -> Any:  # fmt: skip
        opened = self.opened(_PEEKING)
        cursor = self.cursor() if with_cursor else None
        return self.read(context, opened, action, cursor, timeout(wait), _Wanted(destination, body, connector_type))

    return peek


def receiving(with_cursor: bool) -> Callable[..., Any]:
    """Create a method of 3.11.4.1 that receives a message."""

    def receive(
        self: MSMQQueue, context: CallContext, transaction: Variant | None, destination: Variant | None,
        body: Variant | None, wait: Variant | None, connector_type: Variant | None = None,
    ) -> Any:  # fmt: skip
        opened = self.opened(_RECEIVING)
        cursor = self.cursor() if with_cursor else None
        unit, _ = transaction_of(transaction)
        wanted = _Wanted(destination, body, connector_type)
        return self.read(context, opened, ReceiveAction.RECEIVE, cursor, timeout(wait), wanted, unit)

    return receive


def by_lookup_id(seek: MessageSeekAction, destructive: bool, *, leaves_visible: bool = False) -> Callable[..., Any]:
    """Create a method of 3.11.4.1 that reads a message by its lookup identifier; the first and the last need none."""
    needs_identifier = seek not in (MessageSeekAction.FIRST, MessageSeekAction.LAST)

    def read(self: MSMQQueue, context: CallContext, *arguments: Any) -> MSMQMessage:
        given = list(arguments)
        identifier = lookup_id_of(given.pop(0)) if needs_identifier else 0
        opened = self.opened(_RECEIVING if destructive else _PEEKING)
        unit = transaction_of(given.pop(0))[0] if destructive else None
        return self.look_up(context, opened, identifier, seek, destructive, _Wanted(*given), unit, leaves_visible)

    return read


def lookup_id_of(value: Variant | None) -> int:
    """Return a LookupId from a BSTR of digits or any integer (deviation D-80: the property is a BSTR, the parameters
    are published as VT_UI8). Raises MsmqError MQ_ERROR_INVALID_PARAMETER."""
    try:
        identifier = coercion.to_integer(value, VT.UI8) if value is not None else 0
    except ComError as error:
        raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"LookupId: {error.detail}") from None
    if not identifier:
        raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "LookupId is 0, which no message has")
    return identifier


class MSMQQueue(MqacObject):
    """See the module. An object that a client created itself is never initialized and cannot be used."""

    coclass = m.MSMQQueue
    not_implemented: ClassVar[frozenset[str]] = frozenset(["get_Properties"])

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._descriptor: OpenQueueDescriptor | None = None
        self.info: MSMQQueueInfo | None = None
        self._cursor: QueueCursor | None = None
        self._is_closed = True

    def attach(self, descriptor: OpenQueueDescriptor, info: MSMQQueueInfo) -> None:
        """Set the open queue; called once, by MSMQQueueInfo.Open."""
        self._descriptor, self.info, self._is_closed = descriptor, info, False

    def released(self) -> None:
        """Close the queue, which ends waiting reads."""
        if self._descriptor is not None:
            self.close()  # no change if the client has closed it

    def close(self) -> None:
        assert self._descriptor is not None
        self._is_closed = True
        self._cursor = None
        self.environment.manager.handles.close_queue(self._descriptor)

    def opened(self, allowed: tuple[Access, ...] | None = None) -> OpenQueueDescriptor:
        """Return the open queue. Raises ComError OLE_E_BLANK, MsmqError MQ_ERROR_INVALID_HANDLE or
        MQ_ERROR_ACCESS_DENIED."""
        if self._descriptor is None:
            raise ComError(ComResult.OLE_E_BLANK, "a queue is opened by MSMQQueueInfo.Open")
        if self._is_closed:
            raise InvalidHandle(detail=f"{self._descriptor.name} was closed")
        if allowed is not None and self._descriptor.access not in allowed:
            access = self._descriptor.access.name
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, f"{self._descriptor.name} was opened with {access} access")
        return self._descriptor

    def cursor(self) -> QueueCursor:
        """Return the cursor of this object; create it if needed."""
        if self._cursor is None:
            self._cursor = self.environment.manager.handles.open_cursor(self.opened())
        return self._cursor

    def for_sending(self, context: CallContext) -> OpenQueueDescriptor:
        """Return the open queue for sending; access was checked when it was opened."""
        return self.opened()

    # -- properties --------------------------------------------------------------------------------------------

    def get_Access(self, context: CallContext) -> int:
        """3.11.4.1.1."""
        return int(self.opened().access)

    def get_ShareMode(self, context: CallContext) -> int:
        """3.11.4.1.2."""
        return int(self.opened().share is Share.DENY_RECEIVE_SHARE)

    def get_QueueInfo(self, context: CallContext) -> MSMQQueueInfo | None:
        """3.11.4.1.3."""
        self.opened()
        return self.info

    def get_Handle(self, context: CallContext) -> int:
        """3.11.4.1.4: only useful to the queue manager."""
        return self.opened().handle

    def get_Handle2(self, context: CallContext) -> Variant:
        """3.11.4.1.20."""
        return Variant(VT.I8, self.opened().handle)

    def get_IsOpen(self, context: CallContext) -> int:
        """3.11.4.1.5."""
        return int(self.get_IsOpen2(context))

    def get_IsOpen2(self, context: CallContext) -> bool:
        """3.11.4.1.32."""
        if self._descriptor is None:
            raise ComError(ComResult.OLE_E_BLANK, "a queue is opened by MSMQQueueInfo.Open")
        return not self._is_closed

    # -- methods -----------------------------------------------------------------------------------------------

    def Close(self, context: CallContext) -> None:
        """3.11.4.1.6."""
        self.opened()
        self.close()

    def Reset(self, context: CallContext) -> None:
        """3.11.4.1.10: resets the cursor to the start of the queue."""
        self.opened()
        if self._cursor is not None:
            self.environment.manager.handles.close_cursor(self._cursor)
            self._cursor = None

    def Purge(self, context: CallContext) -> None:
        """3.11.4.1.31."""
        self.environment.manager.reading.purge(self.opened(_RECEIVING))

    def EnableNotification(
        self, context: CallContext, Event: Any, QueueCursor: Variant | None, ReceiveTimeout: Variant | None
    ) -> None:
        """3.11.4.1.9: fires one event for the next message, which stays in the queue, or for the time-out. Deviation
        D-83: receive access is sufficient, too, as in the example of section 4.5."""
        where = integer(QueueCursor, m.MQMSG_FIRST)
        if where not in _WHERE:
            raise ComError(ComResult.E_INVALIDARG, f"Cursor is {where}, allowed: 0, 1 and 2")
        self.opened()
        if Event is None:
            raise ComError(ComResult.E_INVALIDARG, "Event is NULL")
        if not isinstance(Event, MSMQEvent):
            raise ComError(ComResult.E_INVALIDARG, "Event is no MSMQEvent of this server")
        descriptor = self.opened(_PEEKING)
        milliseconds = timeout(ReceiveTimeout)
        action = _WHERE[where]
        cursor = None if where == m.MQMSG_FIRST else self.cursor()
        if where == m.MQMSG_NEXT and cursor is not None and cursor.state is CursorState.UNREAD:
            action = ReceiveAction.PEEK_CURRENT  # an unused cursor: the next message is the first
        if where == m.MQMSG_CURRENT and cursor is not None and _has_lost_its_message(cursor, descriptor):
            action = ReceiveAction.PEEK_NEXT

        budget, source = context.server.budgets.notifications, context.owner.source

        def reply(status: int, message: Message | None) -> None:
            budget.give_back(source)
            if status == HResult.MQ_OK:
                Event.fire(context, ARRIVED, self, [where])
            else:
                Event.fire(context, ARRIVED_ERROR, self, [_failure(status, milliseconds), where])

        reading = self.environment.manager.reading
        budget.take(source)
        try:
            reading.read(descriptor, action, milliseconds, lambda message: HResult.MQ_OK, reply, cursor=cursor)
        except MsmqError:
            budget.give_back(source)
            raise

    Receive = Receive_v1 = receiving(with_cursor=False)
    ReceiveCurrent = ReceiveCurrent_v1 = receiving(with_cursor=True)
    Peek = Peek_v1 = reading(ReceiveAction.PEEK_CURRENT, with_cursor=False)
    PeekCurrent = PeekCurrent_v1 = reading(ReceiveAction.PEEK_CURRENT, with_cursor=True)
    PeekNext = PeekNext_v1 = reading(ReceiveAction.PEEK_NEXT, with_cursor=True)
    ReceiveByLookupId = by_lookup_id(MessageSeekAction.CURRENT, True)
    ReceiveByLookupIdAllowPeek = by_lookup_id(MessageSeekAction.CURRENT, True, leaves_visible=True)
    ReceiveNextByLookupId = by_lookup_id(MessageSeekAction.NEXT, True)
    ReceivePreviousByLookupId = by_lookup_id(MessageSeekAction.PREVIOUS, True)
    ReceiveFirstByLookupId = by_lookup_id(MessageSeekAction.FIRST, True)
    ReceiveLastByLookupId = by_lookup_id(MessageSeekAction.LAST, True)
    PeekByLookupId = by_lookup_id(MessageSeekAction.CURRENT, False)
    PeekNextByLookupId = by_lookup_id(MessageSeekAction.NEXT, False)
    PeekPreviousByLookupId = by_lookup_id(MessageSeekAction.PREVIOUS, False)
    PeekFirstByLookupId = by_lookup_id(MessageSeekAction.FIRST, False)
    PeekLastByLookupId = by_lookup_id(MessageSeekAction.LAST, False)

    # -- reading -----------------------------------------------------------------------------------------------

    def read(
        self,
        context: CallContext,
        descriptor: OpenQueueDescriptor,
        action: ReceiveAction,
        cursor: QueueCursor | None,
        milliseconds: int,
        wanted: _Wanted,
        transaction: Transaction | None = None,
    ) -> MSMQMessage | Awaitable[MSMQMessage]:
        """Return a message, or an awaitable for the next one. Deviation D-81: only methods with Current or Next in
        their names use the cursor. A time-out of 0 is answered with MQ_ERROR_MESSAGE_NOT_FOUND (0xC00E0088); the number
        published with that name is that of another error."""
        outcome: asyncio.Future[MSMQMessage] = asyncio.get_running_loop().create_future()
        offer = _Offer(self, context, wanted, takes=action is ReceiveAction.RECEIVE)

        def reply(status: int, message: Message | None) -> None:
            if message is None:
                outcome.set_exception(offer.failed(_failure(status, milliseconds), descriptor.name))
            else:
                context.must_wait = self.environment.must_wait(message)
                outcome.set_result(offer.taken())

        reading = self.environment.manager.reading
        reader = reading.read(
            descriptor, action, milliseconds, offer.accept, reply, cursor=cursor, transaction=transaction
        )
        if reader is None:
            return outcome.result()
        context.on_cancel = partial(self._cancel, reader)
        return outcome

    def _cancel(self, reader: WaitingMessageReadOperation) -> None:
        self.environment.manager.reading.cancel(reader)

    def look_up(
        self,
        context: CallContext,
        descriptor: OpenQueueDescriptor,
        identifier: int,
        seek: MessageSeekAction,
        destructive: bool,
        wanted: _Wanted,
        transaction: Transaction | None,
        leaves_visible: bool,
    ) -> MSMQMessage:
        """Return a message by its lookup identifier. Raises MsmqError."""
        offer = _Offer(self, context, wanted, takes=destructive)
        found: list[tuple[int, Message | None]] = []
        self.environment.manager.reading.read_by_lookup_identifier(
            descriptor, identifier, seek, offer.accept, lambda status, message: found.append((status, message)),
            destructive=destructive, transaction=transaction, leaves_visible=leaves_visible,
        )  # fmt: skip
        ((status, message),) = found
        if message is None:
            if not destructive and status == HResult.MQ_ERROR_TRANSACTION_USAGE:
                status = HResult.MQ_ERROR_MESSAGE_NOT_FOUND  # locked, 3.11.4.1.26
            name = f"{descriptor.name}: no message for lookup id {identifier:#x} ({seek.name})"
            raise offer.failed(status, name)
        context.must_wait = self.environment.must_wait(message)
        return offer.taken()


class _Offer:
    """The object for a message that a read has found. It is created before the message is taken, so that the message
    stays in its queue if a limit is exceeded. It has its own copy of the message."""

    def __init__(self, queue: MSMQQueue, context: CallContext, wanted: _Wanted, *, takes: bool) -> None:
        """`takes`: whether it is a receive, which takes no message if its client has disconnected or canceled it
        (deviation D-26)."""
        self._queue, self._context, self._wanted, self._takes = queue, context, wanted, takes
        self._made: MSMQMessage | None = None
        self._refusal: MsmqError | None = None

    def accept(self, message: Message) -> int:
        """See `queueing.descriptors.Accept`."""
        if self._takes and self._context.call.abandoned:
            return HResult.MQ_ERROR_OPERATION_CANCELLED
        wanted = self._wanted
        made = MSMQMessage(
            self._queue.environment, message,
            has_destination=wanted.destination, has_body=wanted.body, has_connector_type=wanted.connector_type,
        )  # fmt: skip
        try:
            made.account(self._context)
            self._context.server.exporter.admit(made, self._context.owner)
        except MsmqError as error:
            self._refusal = error
            return error.hresult
        self._made = made
        return HResult.MQ_OK

    def taken(self) -> MSMQMessage:
        """Return the object, after the message was taken."""
        assert self._made is not None
        return self._made

    def failed(self, status: int, detail: str) -> MsmqError:
        """Withdraw the object and return the error."""
        if self._made is not None:
            self._context.server.exporter.withdraw(self._made)
        return self._refusal or MsmqError(status, detail)


def _has_lost_its_message(cursor: QueueCursor, descriptor: OpenQueueDescriptor) -> bool:
    """Whether the message of a cursor was received or is locked. A notification then seeks the next (3.11.4.1.9)."""
    return descriptor.queue is not None and cursor.for_peek(descriptor.queue)[0] != HResult.MQ_OK


def _failure(status: int, milliseconds: int) -> int:
    """Return the status of a failed read; without waiting, an empty queue has a separate error."""
    if status == HResult.MQ_ERROR_IO_TIMEOUT and milliseconds == 0:
        return HResult.MQ_ERROR_MESSAGE_NOT_FOUND
    return status
