"""Client of RemoteRead ([MS-MQRR] 3.2): two-phase receives, lookup identifiers, canceling, moving, rejecting.

A message that R_StartReceive locks is removed or put back by R_EndReceive. If a call is interrupted, by cancellation of
its task or by KeyboardInterrupt, it is unknown whether it has locked a message. The request is then canceled and, if
that is too late, ended negatively, so no message is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from openmsmq.client.calls import (
    CALL_FAILURES,
    HARMLESS,
    REPEATABLE,
    UNANSWERED,
    ProtocolUnavailable,
    Steps,
    answered,
    call,
    on_failure,
    quietly,
)
from openmsmq.client.open_queue import TakenMessage, queue_format
from openmsmq.client.two_phases import RR_ACK, RR_NACK, TwoPhaseQueue, demand_reader, fate_of_end, locks
from openmsmq.conversion.packets import message_of
from openmsmq.interfaces.ms_mqmq import XACTUOW
from openmsmq.interfaces.ms_mqrr import RemoteRead, SectionBuffer
from openmsmq.model.constants import (
    MAXIMUM_MESSAGE_SIZE,
    Access,
    LookupAction,
    MessageClass,
    ReceiveAction,
    Share,
)
from openmsmq.model.errors import MsmqError, UnreadableMessage
from openmsmq.model.lookup_id import lookup_id, sequence_of
from openmsmq.model.message import Message
from openmsmq.packet.errors import BadPacket
from openmsmq.packet.sections import Section, SectionType, join

MQ_MOVE_ACCESS = 4
_VERSION = {"Major": 6, "Minor": 3, "BuildNumber": 0}  # version of this client; servers should ignore it (3.1.4.2)
# R_CancelReceive may arrive, on another connection, before its R_StartReceive.
_CANCEL_ATTEMPTS = 100


def check_offered() -> Steps[None]:
    """Check with R_GetServerPort that the server offers RemoteRead (3.1.4.1). Raises ProtocolUnavailable.

    Deviation D-40: the returned port is not used. A client may continue on its connection, and must do so behind a
    forwarded port.
    """
    response = yield from call(RemoteRead, "R_GetServerPort", fate=REPEATABLE)
    if not response.result:
        raise ProtocolUnavailable(detail="R_GetServerPort: the server does not offer RemoteRead")


def open_queue(name: str, access: Access, exclusive: bool, caller: bytes) -> Steps[RemoteReadQueue]:
    """Open a queue (3.2.4.1). `caller` is a GUID that identifies the client."""
    demand_reader("RemoteRead", name, access)
    share = Share.DENY_RECEIVE_SHARE if exclusive else Share.DENY_NONE
    response = yield from _open("R_OpenQueue", name, access, share, caller)
    return RemoteReadQueue(name, access, exclusive, response.pphContext)


def _open(operation: str, name: str, access: int, share: int, caller: bytes) -> Steps[Any]:
    """Call R_OpenQueue or R_OpenQueueForMove, whose failures are faults."""
    return call(
        RemoteRead, operation, name, fate=HARMLESS, pQueueFormat=queue_format(name), dwAccess=access, dwShareMode=share,
        pClientId=caller, fNonRoutingServer=1, fWorkgroup=1, **_VERSION,
    )  # fmt: skip


@dataclass(slots=True)
class RemoteReadQueue(TwoPhaseQueue):
    """An open queue: its context handle, and the requests of transactional receives."""

    protocol: ClassVar[str] = "remoteread"

    handle: bytes
    transactional: set[int] = field(default_factory=set)

    def close(self) -> Steps[None]:
        """Close the queue (3.2.4.13). The server puts back locked messages and cancels pending requests (deviation
        D-43)."""
        yield from call(RemoteRead, "R_CloseQueue", self.name, fate=HARMLESS, pphContext=self.handle)

    def purge(self) -> Steps[None]:
        yield from call(RemoteRead, "R_PurgeQueue", self.name, phContext=self.handle)

    def create_cursor(self) -> Steps[int]:
        response = yield from call(RemoteRead, "R_CreateCursor", self.name, fate=HARMLESS, phContext=self.handle)
        cursor: int = response.phCursor
        return cursor

    def close_cursor(self, cursor: int) -> Steps[None]:
        yield from call(RemoteRead, "R_CloseCursor", self.name, fate=HARMLESS, phContext=self.handle, hCursor=cursor)

    def take_in_transaction(self, uow: bytes, timeout: int, cursor: int = 0) -> Steps[TakenMessage]:
        """Receive a message in a distributed transaction in which the server participates (3.2.4.4.2). The message is
        locked until the transaction ends."""
        return self.start(ReceiveAction.RECEIVE, timeout=timeout, cursor=cursor, uow=uow)

    def start(
        self,
        action: ReceiveAction | LookupAction,
        *,
        timeout: int = 0,
        cursor: int = 0,
        identifier: int = 0,
        uow: bytes | None = None,
    ) -> Steps[TakenMessage]:
        """Read a message with R_StartReceive (3.1.4.7) or R_StartTransactionalReceive (3.1.4.13). The whole message is
        requested. A received message stays locked."""
        receives, request = locks(action), self.next_request()
        # Deviation D-38: LookupId is not 0 for a lookup, as its paragraph in 3.1.4.7 has it.
        arguments: dict[str, Any] = {
            "phContext": self.handle, "LookupId": identifier, "hCursor": cursor, "ulAction": action,
            "ulTimeout": timeout, "dwRequestId": request, "dwMaxBodySize": MAXIMUM_MESSAGE_SIZE,
            "dwMaxCompoundMessageSize": MAXIMUM_MESSAGE_SIZE,
        }  # fmt: skip
        operation = "R_StartReceive"
        if uow is not None:
            operation, arguments["pTransactionId"] = "R_StartTransactionalReceive", XACTUOW(uow)
            self.transactional.add(request)
        self.waiting.add(request)
        try:
            response = yield from call(RemoteRead, operation, self.name, wait=timeout, fate=HARMLESS, **arguments)
        except BaseException as error:
            # After an error response nothing is locked; after GeneratorExit no further calls can be made.
            if not answered(error) and not isinstance(error, GeneratorExit):
                yield from self._give_up(request, receives)
            raise
        finally:
            self.waiting.discard(request)
        try:
            message = _message(response.ppPacketSections or [])
        except BaseException as error:
            if receives:
                yield from self._put_back(request)
            if isinstance(error, BadPacket | ValueError):
                detail = f"{self.name}: the server sent no message packet: {error}"
                raise UnreadableMessage(detail, sequence_of(response.pSequenceId)) from error
            raise
        message.arrival_time = response.pdwArriveTime
        # Deviation D-39: pSequenceId lacks the upper byte, 7 - priority.
        message.lookup_identifier = lookup_id(message.priority, sequence_of(response.pSequenceId))
        return TakenMessage(message, request if receives else None)

    def end(self, request: int, taken: bool) -> Steps[None]:
        """End a receive with R_EndReceive (3.1.4.9) or R_EndTransactionalReceive (3.1.4.15). If the message was not
        removed, or if that is unknown, the client tries to put it back."""
        try:
            yield from self._end(request, RR_ACK if taken else RR_NACK)
        except GeneratorExit:
            raise
        except BaseException as error:
            if taken or not answered(error):
                yield from self._put_back(request)
            raise

    def _end(self, request: int, acknowledgment: int) -> Steps[None]:
        operation = "R_EndTransactionalReceive" if request in self.transactional else "R_EndReceive"
        yield from call(
            RemoteRead, operation, self.name, fate=fate_of_end(acknowledgment),
            phContext=self.handle, dwAck=acknowledgment, dwRequestId=request,
        )  # fmt: skip
        self.transactional.discard(request)

    def _put_back(self, request: int) -> Steps[None]:
        """Try to put the message back (deviation D-41 from note 34). If the server cannot be reached, it does so itself
        (3.1.6.2)."""
        return quietly(self._end(request, RR_NACK))

    def _give_up(self, request: int, receives: bool) -> Steps[None]:
        """End a request without a known response: cancel it, and end it negatively. One of the two calls fails,
        depending on the state of the request."""
        try:
            yield from self._cancel(request)
        except CALL_FAILURES:
            if receives:
                yield from self._put_back(request)

    def _cancel(self, request: int) -> Steps[None]:
        yield from call(
            RemoteRead, "R_CancelReceive", self.name, fate=HARMLESS, phContext=self.handle, dwRequestId=request
        )

    def cancel(self) -> Steps[None]:
        """Cancel all pending requests (3.2.4.11). A request whose response is already in transit receives it."""
        for request in tuple(self.waiting):
            for _ in range(_CANCEL_ATTEMPTS):
                try:
                    yield from self._cancel(request)
                    break
                except UNANSWERED:
                    raise
                except MsmqError:
                    if request not in self.waiting:
                        break

    def move(self, identifier: int, to: str, caller: bytes) -> Steps[None]:
        """Move a message without a transaction (3.2.4.6, D-253), to a subqueue by name, or back to the queue itself
        with "". Deviation D-42: ulContextTo is pMoveContext of R_OpenQueueForMove."""
        main, _, _ = self.name.partition(";")
        target = f"{main};{to}" if to else main
        opened = yield from _open("R_OpenQueueForMove", target, MQ_MOVE_ACCESS, Share.DENY_NONE, caller)
        close = partial(call, RemoteRead, "R_CloseQueue", target, fate=HARMLESS, pphContext=opened.pphContext)
        moving = call(
            RemoteRead, "R_MoveMessage", f"{self.name} to {target}", phContextFrom=self.handle,
            ullContextTo=opened.pMoveContext, LookupId=identifier, pTransactionId=XACTUOW(bytes(16)),
        )  # fmt: skip
        yield from on_failure(moving, close)
        yield from quietly(close())

    def reject(self, identifier: int) -> Steps[None]:
        """Reject a message received in a transaction that has not ended (3.2.4.5, 3.1.4.14)."""
        yield from call(
            RemoteRead, "R_SetUserAcknowledgementClass", self.name, phContext=self.handle, LookupId=identifier,
            usClass=MessageClass.NACK_RECEIVE_REJECTED,
        )  # fmt: skip


def _message(buffers: list[SectionBuffer]) -> Message:
    """Return the message in SectionBuffers (2.2.6). Raises BadPacket, also for an incomplete body, because the whole
    message was requested."""
    sections = []
    for buffer in buffers:
        data = buffer.pSectionBuffer or b""
        if buffer.SectionBufferType not in tuple(SectionType):
            raise BadPacket(f"SectionBufferType is {buffer.SectionBufferType}, allowed: 0 to 4")
        if buffer.SectionSize != len(data):
            raise BadPacket(f"SectionSize is {buffer.SectionSize}, of {len(data)} bytes")
        if buffer.SectionSizeAlloc != len(data):
            raise BadPacket(f"SectionSizeAlloc is {buffer.SectionSizeAlloc}, of {len(data)} bytes received")
        sections.append(Section(SectionType(buffer.SectionBufferType), buffer.SectionSizeAlloc, data))
    return message_of(join(sections), tells_level=True)
