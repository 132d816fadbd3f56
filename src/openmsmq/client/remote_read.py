"""The client of RemoteRead ([MS-MQRR] 3.2): receives in two phases, lookup identifiers, cancelling, moving, rejecting.

A message that R_StartReceive locks is removed or put back by R_EndReceive. When a call is cut off, by a cancelled task
or an interrupt, it is not known whether it has locked a message; then the request is cancelled and, if that comes too
late, ended negatively. So nothing is lost, whenever it happens.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from openmsmq.client.calls import (
    CALL_FAILURES,
    HARMLESS,
    REPEATABLE,
    UNANSWERED,
    ProtocolUnavailable,
    RetryRule,
    Steps,
    answered,
    call,
    on_failure,
    quietly,
)
from openmsmq.client.open_queue import OpenQueue, TakenMessage, queue_format
from openmsmq.conversion.packets import message_of
from openmsmq.interfaces.ms_mqmq import XACTUOW
from openmsmq.interfaces.ms_mqrr import RemoteRead, SectionBuffer
from openmsmq.model.constants import (
    MAXIMUM_MESSAGE_SIZE,
    Access,
    LookupAction,
    MessageClass,
    MessageSeekAction,
    ReceiveAction,
    Share,
)
from openmsmq.model.errors import HResult, MsmqError, UnreadableMessage
from openmsmq.model.lookup_id import lookup_id, sequence_of
from openmsmq.model.message import Message
from openmsmq.packet.errors import BadPacket
from openmsmq.packet.sections import Section, SectionType, join

RR_NACK, RR_ACK = 1, 2
MQ_MOVE_ACCESS = 4
_VERSION = {"Major": 6, "Minor": 3, "BuildNumber": 0}  # of this client; servers should ignore it (3.1.4.2)
_RECEIVE_SEEK = 0x40000020  # LookupAction of a receive, without its MessageSeekAction
_PEEK_SEEK = 0x40000010
# R_CancelReceive may overtake, on another connection, the R_StartReceive that it is for.
_CANCEL_ATTEMPTS = 100
# What may have happened to an R_EndReceive whose answer was lost.
_REMOVED = RetryRule(False, "the message may have been removed; otherwise the server puts it back")


def check_offered() -> Steps[None]:
    """R_GetServerPort: raises ProtocolUnavailable if the server does not serve RemoteRead (3.1.4.1).

    Deviation D-40: its answer, the port, is not used: a client may stay where it is, and behind a forwarded port it has
    to.
    """
    response = yield from call(RemoteRead, "R_GetServerPort", fate=REPEATABLE)
    if not response.result:
        raise ProtocolUnavailable(detail="R_GetServerPort: the server serves RemoteRead at no port")


def open_queue(name: str, access: Access, exclusive: bool, caller: bytes) -> Steps[RemoteReadQueue]:
    """3.2.4.1. `caller` is a GUID that identifies the client."""
    if access not in (Access.RECEIVE, Access.PEEK):
        raise MsmqError(
            HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE,
            f"{name}: RemoteRead opens queues for receive and peek, not for {access.name.lower()}",
        )
    share = Share.DENY_RECEIVE_SHARE if exclusive else Share.DENY_NONE
    response = yield from _open("R_OpenQueue", name, access, share, caller)
    return RemoteReadQueue(name, access, exclusive, response.pphContext)


def _open(operation: str, name: str, access: int, share: int, caller: bytes) -> Steps[Any]:
    """R_OpenQueue and R_OpenQueueForMove: failures come as faults."""
    return call(
        RemoteRead, operation, name, fate=HARMLESS, pQueueFormat=queue_format(name), dwAccess=access, dwShareMode=share,
        pClientId=caller, fNonRoutingServer=1, fWorkgroup=1, **_VERSION,
    )  # fmt: skip


@dataclass(slots=True)
class RemoteReadQueue(OpenQueue):
    """The context handle, the requests that wait, and the numbers for those to come: unique for the queue (3.1.4.7)."""

    protocol: ClassVar[str] = "remoteread"
    two_phases: ClassVar[bool] = True

    handle: bytes
    waiting: set[int] = field(default_factory=set)
    transactional: set[int] = field(default_factory=set)
    _requests: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def close(self) -> Steps[None]:
        """3.2.4.13: what is locked is put back, and what waits is cancelled, by the server (deviation D-43)."""
        yield from call(RemoteRead, "R_CloseQueue", self.name, fate=HARMLESS, pphContext=self.handle)

    def purge(self) -> Steps[None]:
        yield from call(RemoteRead, "R_PurgeQueue", self.name, phContext=self.handle)

    def create_cursor(self) -> Steps[int]:
        response = yield from call(RemoteRead, "R_CreateCursor", self.name, fate=HARMLESS, phContext=self.handle)
        cursor: int = response.phCursor
        return cursor

    def close_cursor(self, cursor: int) -> Steps[None]:
        yield from call(RemoteRead, "R_CloseCursor", self.name, fate=HARMLESS, phContext=self.handle, hCursor=cursor)

    def peek(self, action: ReceiveAction, timeout: int, cursor: int = 0) -> Steps[Message]:
        return (yield from self._start(action, timeout=timeout, cursor=cursor)).message

    def take(self, timeout: int, cursor: int = 0) -> Steps[TakenMessage]:
        return self._start(ReceiveAction.RECEIVE, timeout=timeout, cursor=cursor)

    def take_in_transaction(self, uow: bytes, timeout: int, cursor: int = 0) -> Steps[TakenMessage]:
        """3.2.4.4.2: in a distributed transaction that the server takes part in; it stays locked until its end."""
        return self._start(ReceiveAction.RECEIVE, timeout=timeout, cursor=cursor, uow=uow)

    def peek_by_lookup_identifier(self, identifier: int, seek: MessageSeekAction) -> Steps[Message]:
        return (yield from self._start(LookupAction(_PEEK_SEEK | seek), identifier=identifier)).message

    # Deviation D-38: the identifier is never 0, as the paragraph on LookupId in [MS-MQRR] 3.1.4.7 has it.
    def take_by_lookup_identifier(self, identifier: int, seek: MessageSeekAction) -> Steps[TakenMessage]:
        return self._start(LookupAction(_RECEIVE_SEEK | seek), identifier=identifier)

    def _start(
        self,
        action: ReceiveAction | LookupAction,
        *,
        timeout: int = 0,
        cursor: int = 0,
        identifier: int = 0,
        uow: bytes | None = None,
    ) -> Steps[TakenMessage]:
        """R_StartReceive (3.1.4.7) or R_StartTransactionalReceive (3.1.4.13), asking for the whole message. A receive
        leaves it locked."""
        receives = action is ReceiveAction.RECEIVE or (isinstance(action, LookupAction) and action.destructive)
        request = next(self._requests) & 0xFFFFFFFF
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
            # Once it is answered nothing is locked; and after GeneratorExit there is nobody left to make calls.
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
        """R_EndReceive (3.1.4.9) or R_EndTransactionalReceive (3.1.4.15). A message that is not removed, or not for
        certain, is put back as far as possible."""
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
            RemoteRead, operation, self.name, fate=_REMOVED if acknowledgment == RR_ACK else HARMLESS,
            phContext=self.handle, dwAck=acknowledgment, dwRequestId=request,
        )  # fmt: skip
        self.transactional.discard(request)

    def _put_back(self, request: int) -> Steps[None]:
        """Deviation D-41 from note 34: the message is put back, as far as the server can be reached; without the client
        it does so by itself (3.1.6.2)."""
        return quietly(self._end(request, RR_NACK))

    def _give_up(self, request: int, receives: bool) -> Steps[None]:
        """End a request of which no answer is known. Each of the calls fails where it is not its turn."""
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
        """3.2.4.11 for all that wait; one whose answer is under way gets it."""
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
        """3.2.4.6, without a transaction: to a subqueue by its name, or to the queue itself with "". Deviation D-42:
        ulContextTo is pMoveContext of R_OpenQueueForMove."""
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
        """3.2.4.5: for a message received in a transaction that is not over (3.1.4.14)."""
        yield from call(
            RemoteRead, "R_SetUserAcknowledgementClass", self.name, phContext=self.handle, LookupId=identifier,
            usClass=MessageClass.NACK_RECEIVE_REJECTED,
        )  # fmt: skip


def _message(buffers: list[SectionBuffer]) -> Message:
    """The message in SectionBuffers (2.2.6). Raises BadPacket, also for a body that is not whole: we asked for all."""
    sections = []
    for buffer in buffers:
        data = buffer.pSectionBuffer or b""
        if buffer.SectionBufferType not in tuple(SectionType):
            raise BadPacket(f"SectionBufferType is {buffer.SectionBufferType}, allowed are 0 to 4")
        if buffer.SectionSize != len(data):
            raise BadPacket(f"SectionSize is {buffer.SectionSize}, of {len(data)} bytes")
        if buffer.SectionSizeAlloc != len(data):
            raise BadPacket(f"SectionSizeAlloc is {buffer.SectionSizeAlloc}, of {len(data)} bytes that came")
        sections.append(Section(SectionType(buffer.SectionBufferType), buffer.SectionSizeAlloc, data))
    return message_of(join(sections), tells_level=True)
