"""Client of qm2qm ([MS-MQQP] 3.2): two-phase receives from a queue opened with R_QMOpenRemoteQueue.

It reads for its own program (`open_queue`), or as a queue manager for a client that passes on its open queue
(`open_session`). Servers before Windows XP support neither lookup identifiers nor sequence numbers.
Deviation D-255 has the differences.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from msrpc.rpc.association import NULL_HANDLE
from openmsmq.client.calls import (
    CALL_FAILURES,
    HARMLESS,
    REPEATABLE,
    UNANSWERED,
    ProtocolUnavailable,
    Steps,
    answered,
    call,
)
from openmsmq.client.open_queue import TakenMessage, queue_format
from openmsmq.client.two_phases import RR_ACK, RR_NACK, TwoPhaseQueue, demand_reader, fate_of_end, locks
from openmsmq.conversion.packets import message_of
from openmsmq.interfaces import ms_mqmp as mp
from openmsmq.interfaces.ms_mqqp import REMOTEREADDESC, REMOTEREADDESC2, qm2qm
from openmsmq.model.constants import Access, LookupAction, ReceiveAction, Share
from openmsmq.model.errors import HResult, MsmqError, OperationCancelled
from openmsmq.model.lookup_id import lookup_id, sequence_of
from openmsmq.model.message import Message
from openmsmq.packet.errors import BadPacket
from openmsmq.packet.message_packet import MessagePacket

IP_READ = 1  # fIP of R_QMGetRTQMServerPort: the port of qm2qm
_FIRST_WITH_NUMBERS = (5, 1, 951)  # 3.2.4.2: servers of this version and later have RemoteQMStartReceive2


def port() -> Steps[int]:
    """Return the port of qm2qm (R_QMGetRTQMServerPort); 0 if the server does not offer it."""
    response = yield from call(mp.qmcomm, "R_QMGetRTQMServerPort", fate=REPEATABLE, fIP=IP_READ)
    announced: int = response.result
    return announced


@dataclass(frozen=True, slots=True)
class HandedOut:
    """The out parameters of R_QMOpenRemoteQueue ([MS-MQMP] 3.1.4.2), which open a session."""

    queue: int
    pointer: int
    context: int


def open_queue(name: str, access: Access, exclusive: bool, client: bytes) -> Steps[Qm2QmQueue]:
    """Open a queue and a session on it. `client` is a GUID that identifies the client."""
    demand_reader("qm2qm", name, access)
    opened = yield from call(
        mp.qmcomm, "R_QMOpenRemoteQueue", name, fate=HARMLESS, pQueueFormat=queue_format(name), dwDesiredAccess=access,
        dwShareMode=Share.DENY_RECEIVE_SHARE if exclusive else Share.DENY_NONE, pLicGuid=client,
    )  # fmt: skip
    try:
        handed_out = HandedOut(opened.phQueue, opened.dwpQueue, opened.pdwContext)
        return (yield from open_session(name, access, exclusive, client, handed_out))
    finally:
        yield from call(mp.qmcomm, "R_QMCloseRemoteQueueContext", fate=HARMLESS, pphContext=opened.pphContext)


def open_session(name: str, access: Access, exclusive: bool, client: bytes, opened: HandedOut) -> Steps[Qm2QmQueue]:
    """Open a session (3.2.4.1) on a queue that is already open."""
    response = yield from call(
        qm2qm, "RemoteQMOpenQueue", name, fate=HARMLESS,
        pLicGuid=client, dwMQS=0, hQueue=opened.queue, pQueue=opened.pointer,
        dwpContext=opened.context,
    )  # fmt: skip
    try:
        version = yield from call(qm2qm, "RemoteQmGetVersion", fate=REPEATABLE)
        numbered = (version.pMajor, version.pMinor, version.pBuildNumber) >= _FIRST_WITH_NUMBERS
    except ProtocolUnavailable:
        numbered = False
    return Qm2QmQueue(name, access, exclusive, response.phContext, opened, client, numbered)


@dataclass(slots=True)
class Qm2QmQueue(TwoPhaseQueue):
    """An open session, and the handle of the locked message of each request."""

    protocol: ClassVar[str] = "qm2qm"

    session: bytes
    opened: HandedOut
    client: bytes
    numbered: bool  # whether the server sends lookup identifiers
    locked: dict[int, bytes] = field(default_factory=dict)
    reopens: bool = True  # whether the session may be restarted after it had to be closed

    def close(self) -> Steps[None]:
        """Close the session (3.2.4.9). The server puts back locked messages and cancels pending requests."""
        yield from call(qm2qm, "RemoteQMCloseQueue", self.name, fate=HARMLESS, pphContext=self.session)

    def purge(self) -> Steps[None]:
        yield from call(qm2qm, "RemoteQMPurgeQueue", self.name, hQueue=self.opened.queue)

    def create_cursor(self) -> Steps[int]:
        """Create a cursor with R_QMCreateRemoteCursor ([MS-MQMP] 3.1.4.4); qm2qm has no call for it."""
        ignored = mp.CACTransferBufferV1(Send=mp.CACTransferBufferV1_Send())
        response = yield from call(
            mp.qmcomm, "R_QMCreateRemoteCursor", self.name, fate=HARMLESS, ptb1=ignored, hQueue=self.opened.queue
        )
        cursor: int = response.phCursor
        return cursor

    def close_cursor(self, cursor: int) -> Steps[None]:
        yield from call(
            qm2qm, "RemoteQMCloseCursor", self.name, fate=HARMLESS, hQueue=self.opened.queue, hCursor=cursor
        )

    def start(
        self,
        action: ReceiveAction | LookupAction,
        *,
        timeout: int = 0,
        cursor: int = 0,
        identifier: int = 0,
        request: int | None = None,
    ) -> Steps[TakenMessage]:
        """Read a message (3.2.4.2, 3.2.4.3, 3.1.4.11). A received message is locked until `end`."""
        receives = locks(action)
        request = self.next_request() if request is None else request
        description = REMOTEREADDESC(
            hRemoteQueue=self.opened.queue, hCursor=cursor, ulAction=action, ulTimeout=timeout,
            dwQueue=self.opened.pointer, dwRequestID=request,
        )  # fmt: skip
        self.waiting.add(request)
        try:
            response = yield from self._call_start(action, description, identifier, timeout)
        except BaseException as error:
            # After an error response nothing is locked; after GeneratorExit no further calls can be made.
            if not answered(error) and not isinstance(error, GeneratorExit):
                yield from self._give_up(request, receives)
            raise
        finally:
            self.waiting.discard(request)
        if response.result == HResult.MQ_INFORMATION_REMOTE_CANCELED_BY_CLIENT:
            raise OperationCancelled(detail=f"{self.name}: the read was cancelled")
        if receives and response.pphContext != NULL_HANDLE:
            self.locked[request] = response.pphContext
        try:
            message = self._message(response)
        except BadPacket as error:
            if request in self.locked:
                with suppress(*CALL_FAILURES):
                    yield from self.end(request, False)
            raise MsmqError(HResult.MQ_ERROR, f"{self.name}: invalid packet in the response: {error}") from error
        return TakenMessage(message, request if request in self.locked else None)

    def _call_start(
        self, action: ReceiveAction | LookupAction, description: REMOTEREADDESC, identifier: int, timeout: int
    ) -> Steps[Any]:
        if isinstance(action, LookupAction):
            return call(
                qm2qm, "RemoteQMStartReceiveByLookupId", self.name, fate=HARMLESS, LookupId=identifier,
                lpRemoteReadDesc2=REMOTEREADDESC2(description),
            )  # fmt: skip
        if self.numbered:
            numbered = REMOTEREADDESC2(description)
            return call(
                qm2qm, "RemoteQMStartReceive2", self.name, fate=HARMLESS, wait=timeout, lpRemoteReadDesc2=numbered
            )
        return call(qm2qm, "RemoteQMStartReceive", self.name, fate=HARMLESS, wait=timeout, lpRemoteReadDesc=description)

    def _message(self, response: Any) -> Message:
        """Return the message in a response. Raises BadPacket."""
        numbered = getattr(response, "lpRemoteReadDesc2", None)
        description = response.lpRemoteReadDesc if numbered is None else numbered.pRemoteReadDesc
        if description is None or description.lpBuffer is None:
            raise BadPacket("lpBuffer is NULL")
        message = message_of(MessagePacket.unpack(description.lpBuffer), absolute=False, tells_level=True)
        message.arrival_time = description.dwArriveTime
        if numbered is not None:
            message.lookup_identifier = lookup_id(message.priority, sequence_of(numbered.SequentialId))
        return message

    def end(self, request: int, taken: bool) -> Steps[None]:
        """End a receive with RemoteQMEndReceive (3.1.4.2). If the message cannot be removed, or if another thread or
        task had to restart the session, it is put back and the error is raised."""
        handle = self.locked.pop(request, None)
        if handle is None:
            detail = f"{self.name}: the message was put back with its session, in which the answer to a read was lost"
            raise OperationCancelled(detail=detail)
        try:
            yield from self._end(handle, RR_ACK if taken else RR_NACK)
        except UNANSWERED:
            raise
        except MsmqError:
            if taken:
                with suppress(*CALL_FAILURES):
                    yield from self._end(handle, RR_NACK)
            raise

    def _end(self, handle: bytes, acknowledgment: int) -> Steps[None]:
        yield from call(
            qm2qm, "RemoteQMEndReceive", self.name, fate=fate_of_end(acknowledgment), pphContext=handle,
            dwAck=acknowledgment,
        )  # fmt: skip

    def _give_up(self, request: int, receives: bool) -> Steps[None]:
        """End a request without a known response. If the server has responded, it has locked a message whose handle is
        unknown here; closing the session puts that message back."""
        try:
            yield from self.cancel_request(request)
        except CALL_FAILURES:
            if receives:
                with suppress(*CALL_FAILURES):
                    yield from self._begin_anew()

    def _begin_anew(self) -> Steps[None]:
        yield from self.close()
        if not self.reopens:
            return
        self.locked.clear()  # before other threads or tasks can lock messages in the new session
        fresh = yield from open_queue(self.name, self.access, self.exclusive, self.client)
        self.session, self.opened = fresh.session, fresh.opened

    def cancel_request(self, request: int) -> Steps[None]:
        """Cancel one pending request with RemoteQMCancelReceive (3.2.4.7). Raises MsmqError if it is not pending."""
        yield from call(
            qm2qm, "RemoteQMCancelReceive", self.name, fate=HARMLESS,
            hQueue=self.opened.queue, pQueue=self.opened.pointer,
            dwRequestID=request,
        )  # fmt: skip

    def cancel(self) -> Steps[None]:
        """Cancel all pending requests. A request whose response is already in transit receives it."""
        for request in tuple(self.waiting):
            try:
                yield from self.cancel_request(request)
            except UNANSWERED:
                raise
            except MsmqError:
                continue  # it was no longer pending
