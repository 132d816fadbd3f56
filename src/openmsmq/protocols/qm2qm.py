"""The interface qm2qm ([MS-MQQP] 3.1.4): queues of this machine for a queue manager that reads for its client.

The client has opened the queue with R_QMOpenRemoteQueue and passed the handle on; RemoteQMOpenQueue turns it into a
session. A receive has two phases: a start locks the message and sends it, RemoteQMEndReceive removes it or puts it
back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msrpc.ndr import NdrError, Operation
from msrpc.rpc.association import NULL_HANDLE, HeldHandles, Holder
from msrpc.rpc.call import Call
from msrpc.rpc.faults import Fault
from msrpc.rpc.pdu import AuthLevel
from openmsmq.conversion.packets import user_message_of
from openmsmq.interfaces import ms_mqqp as m
from openmsmq.model.constants import LookupAction, MessageSeekAction, ReceiveAction
from openmsmq.model.errors import HResult, InvalidHandle, MsmqError, QueueDeleted, TransactionSequence
from openmsmq.model.message import Message
from openmsmq.protocols.dispatch import NdrInterface, check
from openmsmq.protocols.environment import MSMQ_VERSION, Environment
from openmsmq.queueing.descriptors import OpenQueueDescriptor, RemoteReadState, WaitingMessageReadOperation

PCTX_RRSESSION_HANDLE_TYPE = "PCTX_RRSESSION_HANDLE_TYPE"
PCTX_REMOTEREAD_HANDLE_TYPE = "PCTX_REMOTEREAD_HANDLE_TYPE"
RR_NACK, RR_ACK = 1, 2
BUILD_NUMBER = 9600  # 6531 or greater means: as Windows 7 or later (note 24)
BY_SERVER = 1  # REMOTEREADDESC.Reserved
FIRST, LAST = 0, 0xFFFFFFFFFFFFFFFF  # lookup identifiers that denote the ends of the queue
_ACTIONS = {int(action): action for action in ReceiveAction}
_LOOKUP_ACTIONS = {int(action): action for action in LookupAction}
_ENDS = {
    (MessageSeekAction.NEXT, FIRST): MessageSeekAction.FIRST,
    (MessageSeekAction.PREVIOUS, LAST): MessageSeekAction.LAST,
}
# Creates the response of one of the three read operations from context handle, sequence number and status.
MakeResponse = Callable[[bytes, int, int], Any]


@dataclass(slots=True, eq=False)
class OpenQueueEntry:
    """3.1.1.4: a session and its waiting requests."""

    descriptor: OpenQueueDescriptor
    waiting: dict[int, WaitingMessageReadOperation] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class RemoteReadEntry:
    """3.1.1.2: a message locked until the client acknowledges it."""

    descriptor: OpenQueueDescriptor
    lookup_identifier: int


class PendingStart:
    """A RemoteQMStartReceive, RemoteQMStartReceive2 or RemoteQMStartReceiveByLookupId from its request to its answer.
    `waits`: whether it is one of the session's waiting requests."""

    __slots__ = (
        "_call", "_description", "_destructive", "_entry", "_handle", "_interface", "_operation", "_response", "_stub",
        "waits",
    )  # fmt: skip

    def __init__(
        self,
        interface: Qm2Qm,
        call: Call,
        entry: OpenQueueEntry,
        description: m.REMOTEREADDESC,
        destructive: bool,
        operation: Operation,
        response: MakeResponse,
    ) -> None:
        self._interface, self._call, self._entry, self._description = interface, call, entry, description
        self._destructive, self._operation, self._response = destructive, operation, response
        self._handle, self._stub = NULL_HANDLE, b""
        self.waits = False

    def prepare(self, message: Message) -> int:
        """See `descriptors.Accept`: encode the whole answer, with the handle that ends the receive, before the message
        is taken. A receive takes none if nobody awaits the answer, because nobody would get the handle (deviation
        D-26)."""
        if self._destructive and self._call.abandoned:
            return HResult.MQ_ERROR_OPERATION_CANCELLED
        description = self._description
        description.Reserved = BY_SERVER
        description.lpBuffer = user_message_of(message, tells_level=True).pack()
        description.dwSize = len(description.lpBuffer)
        description.dwArriveTime = message.arrival_time
        if self._destructive:
            read = RemoteReadEntry(self._entry.descriptor, message.lookup_identifier)
            try:
                self._handle = self._call.handles.create(PCTX_REMOTEREAD_HANDLE_TYPE, read, self._interface.put_back)
            except Fault:  # too many handles
                return HResult.MQ_ERROR_INSUFFICIENT_RESOURCES
        sequence = message.sequence
        assert self._operation.encode_response is not None
        try:
            response = self._response(self._handle, sequence, HResult.MQ_OK)
            self._stub = self._call.in_syntax(self._operation).encode_response(response)
        except NdrError:
            self._forget_handle()
            raise
        return HResult.MQ_OK

    def _forget_handle(self) -> None:
        if self._handle != NULL_HANDLE:
            self._call.handles.close(self._handle, PCTX_REMOTEREAD_HANDLE_TYPE)
            self._handle = NULL_HANDLE

    def answer(self, status: int, message: Message | None) -> None:
        interface = self._interface
        if self.waits:
            self._entry.waiting.pop(self._description.dwRequestID, None)
        if message is not None:
            queue, location = self._entry.descriptor.queue, None
            if queue is not None and message.lookup_identifier in queue.entries:
                location = queue.location(message.lookup_identifier)
            waits = interface.environment.must_wait(message, location)
            interface.send(self._call, self._stub, waits, partial(interface.give_up, self._call.handles, self._handle))
            return
        self._forget_handle()
        self._description.Reserved = BY_SERVER
        self._description.lpBuffer, self._description.dwSize = None, 0
        interface.finish(self._call, self._operation, self._response(NULL_HANDLE, 0, status), durable=False)


class Qm2Qm(NdrInterface):
    description = m.qm2qm
    # [MS-MQQP] 5: answered before any authentication.
    open_opnums = frozenset([m.qm2qm.operation("RemoteQMGetQMQMServerPort").opnum])
    _start = m.qm2qm.operation("RemoteQMStartReceive")
    _start2 = m.qm2qm.operation("RemoteQMStartReceive2")
    _start_by_lookup = m.qm2qm.operation("RemoteQMStartReceiveByLookupId")

    def __init__(self, environment: Environment, minimum_level: AuthLevel = AuthLevel.NONE) -> None:
        super().__init__(environment, minimum_level)
        self._sessions: dict[int, OpenQueueEntry] = {}  # 3.1.1.5, by handle of the open queue

    def RemoteQMGetQMQMServerPort(
        self, call: Call, q: m.RemoteQMGetQMQMServerPort_Request
    ) -> m.RemoteQMGetQMQMServerPort_Response:
        """3.1.4.8: returns the port, or 0 for an unsupported type."""
        return m.RemoteQMGetQMQMServerPort_Response(result=self.environment.ports.get(q.dwPortType, 0))

    def RemoteQmGetVersion(self, call: Call, q: m.RemoteQmGetVersion_Request) -> m.RemoteQmGetVersion_Response:
        """3.1.4.9; the version is that of the other interfaces (D-245)."""
        major, minor, _ = map(int, MSMQ_VERSION.split("."))
        return m.RemoteQmGetVersion_Response(pMajor=major, pMinor=minor, pBuildNumber=BUILD_NUMBER)

    # -- sessions ----------------------------------------------------------------------------------------------

    def RemoteQMOpenQueue(self, call: Call, q: m.RemoteQMOpenQueue_Request) -> m.RemoteQMOpenQueue_Response:
        """3.1.4.3: takes over the open queue from the client that opened it. Access was checked then. The handle is
        random, so that it cannot be guessed, and can be used once (deviation D-71 from [MS-MQMP] 3.1.4.2)."""
        check(q.pQueue != 0 and q.pQueue == q.dwpContext, f"pQueue is {q.pQueue:#x}, dwpContext {q.dwpContext:#x}")
        descriptor = self.manager.handles.descriptors.get(q.dwpContext)
        if descriptor is None or descriptor.remote_read_state is not RemoteReadState.OPENED:
            call.failed_guess()
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"{q.dwpContext:#x} is not open for a remote reader")
        entry = OpenQueueEntry(descriptor)
        handle = call.handles.create(PCTX_RRSESSION_HANDLE_TYPE, entry, self._close)
        descriptor.remote_read_state = RemoteReadState.READY_FOR_READ
        descriptor.owner = call.holder
        self._sessions[descriptor.handle] = entry
        return m.RemoteQMOpenQueue_Response(phContext=handle)

    def RemoteQMCloseQueue(self, call: Call, q: m.RemoteQMCloseQueue_Request) -> m.RemoteQMCloseQueue_Response:
        """3.1.4.4: cancels waiting requests and puts locked messages back."""
        self._close(call.handles.close(q.pphContext, PCTX_RRSESSION_HANDLE_TYPE))
        return m.RemoteQMCloseQueue_Response(pphContext=NULL_HANDLE)

    def _close(self, entry: OpenQueueEntry) -> None:
        self._sessions.pop(entry.descriptor.handle, None)
        self.manager.handles.close_queue(entry.descriptor)

    def session_of(self, holder: Holder, handle: int) -> OpenQueueEntry | None:
        """Return the session on a queue that a caller has open; None if there is none."""
        entry = self._sessions.get(handle)
        return entry if entry is not None and entry.descriptor.owner.admits(holder) else None

    def _session(self, call: Call, handle: int, failure: int) -> OpenQueueEntry:
        entry = self.session_of(call.holder, handle)
        if entry is None:
            raise MsmqError(failure, f"{handle:#x} is not a queue that this client has open")
        return entry

    def RemoteQMCloseCursor(self, call: Call, q: m.RemoteQMCloseCursor_Request) -> m.RemoteQMCloseCursor_Response:
        """3.1.4.5."""
        entry = self._session(call, q.hQueue, HResult.MQ_ERROR_INVALID_HANDLE)
        cursor = entry.descriptor.cursors.get(q.hCursor)
        if cursor is None:
            raise InvalidHandle(detail=f"{entry.descriptor.name}: no cursor {q.hCursor:#x}")
        self.manager.handles.close_cursor(cursor)
        return m.RemoteQMCloseCursor_Response()

    def RemoteQMPurgeQueue(self, call: Call, q: m.RemoteQMPurgeQueue_Request) -> m.RemoteQMPurgeQueue_Response:
        """3.1.4.7. Deviation D-72: failures are returned as HRESULT."""
        entry = self._session(call, q.hQueue, HResult.MQ_ERROR_INVALID_HANDLE)
        self.manager.reading.purge(entry.descriptor)
        return m.RemoteQMPurgeQueue_Response()

    # -- reading -----------------------------------------------------------------------------------------------

    def RemoteQMStartReceive(self, call: Call, q: m.RemoteQMStartReceive_Request) -> None:
        """3.1.4.1: answers immediately, or when a message arrives, the request times out or is canceled."""

        def response(handle: bytes, sequence: int, status: int) -> Any:
            return m.RemoteQMStartReceive_Response(
                pphContext=handle, lpRemoteReadDesc=q.lpRemoteReadDesc, result=status
            )

        self._by_position(call, q.lpRemoteReadDesc, self._start, response)

    def RemoteQMStartReceive2(self, call: Call, q: m.RemoteQMStartReceive2_Request) -> None:
        """3.1.4.10: like RemoteQMStartReceive, but also returns the lookup identifier."""

        def response(handle: bytes, sequence: int, status: int) -> Any:
            q.lpRemoteReadDesc2.SequentialId = sequence
            return m.RemoteQMStartReceive2_Response(handle, q.lpRemoteReadDesc2, status)

        self._by_position(call, _description(q.lpRemoteReadDesc2), self._start2, response)

    def RemoteQMStartReceiveByLookupId(self, call: Call, q: m.RemoteQMStartReceiveByLookupId_Request) -> None:
        """3.1.4.11: never waits."""

        def response(handle: bytes, sequence: int, status: int) -> Any:
            q.lpRemoteReadDesc2.SequentialId = sequence
            return m.RemoteQMStartReceiveByLookupId_Response(handle, q.lpRemoteReadDesc2, status)

        description = _description(q.lpRemoteReadDesc2)
        action = _LOOKUP_ACTIONS.get(description.ulAction)
        if action is None:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"ulAction is {description.ulAction:#x}")
        check(not description.hCursor, f"hCursor must be 0 for {action.name} by lookup identifier")
        check(not description.ulTimeout, f"ulTimeout must be 0 for {action.name} by lookup identifier")
        entry = self._session(call, description.hRemoteQueue, HResult.MQ_ERROR_INVALID_PARAMETER)
        self._may_take(entry, action.destructive)
        start = PendingStart(self, call, entry, description, action.destructive, self._start_by_lookup, response)
        self.manager.reading.read_by_lookup_identifier(
            entry.descriptor,
            q.LookupId,
            _ENDS.get((action.seek, q.LookupId), action.seek),
            start.prepare,
            start.answer,
            destructive=action.destructive,
            two_phase=action.destructive,
        )

    def _by_position(
        self, call: Call, description: m.REMOTEREADDESC, operation: Operation, response: MakeResponse
    ) -> None:
        queue, request, invalid = description.dwQueue, description.dwRequestID, HResult.STATUS_INVALID_PARAMETER
        check(queue != 0 and queue == description.hRemoteQueue, f"dwQueue {queue:#x}, {description.hRemoteQueue:#x}")
        action = _ACTIONS.get(description.ulAction)
        if action is None:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"ulAction is {description.ulAction:#x}")
        check(action is not ReceiveAction.PEEK_NEXT or description.hCursor != 0, "PEEK_NEXT needs a cursor", invalid)
        entry = self._session(call, queue, HResult.MQ_ERROR_INVALID_PARAMETER)
        check(request not in entry.waiting, f"dwRequestID {request} is in use")
        cursor = None
        if description.hCursor:
            cursor = entry.descriptor.cursors.get(description.hCursor)
            check(cursor is not None, f"{entry.descriptor.name}: no cursor {description.hCursor:#x}", invalid)
        destructive = action is ReceiveAction.RECEIVE
        self._may_take(entry, destructive)
        start = PendingStart(self, call, entry, description, destructive, operation, response)
        reader = self.manager.reading.read(
            entry.descriptor,
            action,
            description.ulTimeout,
            start.prepare,
            start.answer,
            cursor=cursor,
            two_phase=destructive,
        )
        if reader is not None:
            start.waits = True
            entry.waiting[request] = reader
            call.waits()
            call.on_cancel = partial(self._cancel, reader)

    @staticmethod
    def _may_take(entry: OpenQueueEntry, destructive: bool) -> None:
        denied = destructive and not entry.descriptor.destructive
        check(not denied, f"{entry.descriptor.name} was opened with PEEK access", HResult.MQ_ERROR_ACCESS_DENIED)

    def _cancel(self, reader: WaitingMessageReadOperation) -> None:
        self.manager.reading.cancel(reader)

    def RemoteQMEndReceive(self, call: Call, q: m.RemoteQMEndReceive_Request) -> m.RemoteQMEndReceive_Response:
        """3.1.4.2: removes the message or puts it back in its place. After a failure it stays locked, and the client
        may retry."""
        check(q.pphContext != NULL_HANDLE, "pphContext is NULL", HResult.MQ_ERROR_INVALID_HANDLE)
        handles = call.handles
        read: RemoteReadEntry = handles.get(q.pphContext, PCTX_REMOTEREAD_HANDLE_TYPE)
        try:
            self._end(read, delete=q.dwAck == RR_ACK)
        except (QueueDeleted, TransactionSequence):  # closed or deleted meanwhile: nothing to end
            handles.close(q.pphContext, PCTX_REMOTEREAD_HANDLE_TYPE)
            raise
        handles.close(q.pphContext, PCTX_REMOTEREAD_HANDLE_TYPE)
        return m.RemoteQMEndReceive_Response(pphContext=NULL_HANDLE)

    def _end(self, read: RemoteReadEntry, *, delete: bool) -> None:
        self.manager.reading.end_two_phase(read.descriptor, read.lookup_identifier, delete)

    def put_back(self, read: RemoteReadEntry) -> None:
        """3.1.6.2: puts the message back, because the client has disconnected. If its queue was closed before, that has
        put it back."""
        with suppress(QueueDeleted, TransactionSequence):
            self._end(read, delete=False)

    def give_up(self, handles: HeldHandles, handle: bytes) -> None:
        """Put the message of a receive back, because the client did not wait for its answer, which has the handle."""
        if handle != NULL_HANDLE:
            with suppress(Fault):  # it was run down with the last connection of the client
                self.put_back(handles.close(handle, PCTX_REMOTEREAD_HANDLE_TYPE))

    def RemoteQMCancelReceive(self, call: Call, q: m.RemoteQMCancelReceive_Request) -> m.RemoteQMCancelReceive_Response:
        """3.1.4.6: cancels a waiting request. One that already has its message cannot be canceled, only ended."""
        check(q.pQueue != 0 and q.pQueue == q.hQueue, f"pQueue is {q.pQueue:#x}, hQueue {q.hQueue:#x}")
        entry = self._session(call, q.hQueue, HResult.MQ_ERROR_INVALID_HANDLE)
        check(bool(entry.waiting), f"{entry.descriptor.name}: no request is waiting", HResult.MQ_ERROR_INVALID_HANDLE)
        reader = entry.waiting.get(q.dwRequestID)
        if reader is None:
            raise MsmqError(HResult.MQ_ERROR, f"{entry.descriptor.name}: no request {q.dwRequestID} is waiting")
        self.manager.reading.cancel(reader, HResult.MQ_INFORMATION_REMOTE_CANCELED_BY_CLIENT)
        return m.RemoteQMCancelReceive_Response()


def _description(outer: m.REMOTEREADDESC2) -> m.REMOTEREADDESC:
    if outer.pRemoteReadDesc is None:
        raise InvalidHandle(detail="pRemoteReadDesc is NULL")
    return outer.pRemoteReadDesc
