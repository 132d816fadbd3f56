"""Open queues of qmcomm and qmcomm2 (MS-MQMP): sends, and one-phase receives, alone or in a transaction.

The protocol has no lookup identifiers. A receive whose response is lost has still removed its message.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from openmsmq.client.calls import HARMLESS, REPEATABLE, ClientCall, RetryRule, Steps, call, check
from openmsmq.client.open_queue import OpenQueue, TakenMessage, queue_format
from openmsmq.conversion.receive_buffer import (
    MAXIMUM_FORMAT_NAME_BUFFER,
    TOO_SMALL,
    BufferSizes,
    identifier_of,
    message_from_receive,
    receive_buffer,
)
from openmsmq.conversion.send_buffer import send_buffer
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces.ms_mqmq import OBJECTID
from openmsmq.model.admission import utf16_units
from openmsmq.model.constants import MAXIMUM_LABEL, MAXIMUM_MESSAGE_SIZE, Access, ReceiveAction, Share
from openmsmq.model.errors import HResult, IllegalPropertyValue, InsufficientResources, MsmqError
from openmsmq.model.message import Message

# Possible outcomes of a call whose response was lost.
_SENT = RetryRule(False, "the message may be in the queue; look for it before sending it again")
_TAKEN = RetryRule(
    False, "a message may have been taken, and is lost then; a receive in a transaction or through MS-MQRR loses none"
)
_TAKEN_IN_TRANSACTION = RetryRule(False, "a message may have been taken; aborting the transaction puts it back")
_READ = {
    ReceiveAction.PEEK_CURRENT: REPEATABLE,
    ReceiveAction.PEEK_NEXT: RetryRule(False, "the cursor may have moved to the next message"),
}


def open_queue(name: str, access: Access, exclusive: bool, client: str, license: bytes) -> Steps[QmcommQueue]:
    """Open a queue of the server, or of another machine for sending (deviation D-254)."""
    response = yield from call(
        m.qmcomm, "rpc_QMOpenQueueInternal", name, fate=HARMLESS,
        pQueueFormat=queue_format(name), dwDesiredAccess=access,
        dwShareMode=Share.DENY_RECEIVE_SHARE if exclusive else Share.DENY_NONE, pLicGuid=license, lpClientName=client,
    )  # fmt: skip
    if response.lplpRemoteQueueName:
        raise MsmqError(
            HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE,
            f"{name} is on another machine, {response.lplpRemoteQueueName}; connect to that machine",
        )
    return QmcommQueue(name, access, exclusive, response.phQueue, response.pdwQMContext)


def check_sendable(queue: str, message: Message) -> None:
    """Check that a message arrives unchanged. Raises MsmqError for a label over 249 UTF-16 characters ([MS-MQMP]
    3.1.5.2), NUL in a text, a body over the limit."""
    length = utf16_units(message.label)
    if length > MAXIMUM_LABEL:
        detail = f"{queue}: the label has {length} UTF-16 characters, allowed: at most {MAXIMUM_LABEL}"
        raise MsmqError(HResult.MQ_ERROR_LABEL_TOO_LONG, detail)
    texts = ("label", "response_queue_format_name", "administration_queue_format_name", "authentication_provider_name")
    for name in texts:
        if "\0" in getattr(message, name):
            raise IllegalPropertyValue(detail=f"{queue}: {name} contains NUL, which ends a text on the wire")
    size = len(message.body) + len(message.extension)
    if size > MAXIMUM_MESSAGE_SIZE:
        detail = f"{queue}: body and extension have {size} bytes, a message has at most {MAXIMUM_MESSAGE_SIZE}"
        raise InsufficientResources(detail=f"{detail} with its headers")


@dataclass(slots=True)
class QmcommQueue(OpenQueue):
    """An open queue: the context handle, the context value, and the buffer sizes of the last successful read."""

    protocol: ClassVar[str] = "qmcomm"

    handle: bytes
    context: int
    sizes: BufferSizes = field(default_factory=BufferSizes)

    def close(self) -> Steps[None]:
        yield from call(m.qmcomm, "rpc_ACCloseHandle", self.name, fate=HARMLESS, phQueue=self.handle)

    def format_name(self) -> Steps[str]:
        size = 256
        operation = m.qmcomm.operation("rpc_ACHandleToFormatName")
        while True:
            request = m.rpc_ACHandleToFormatName_Request(self.handle, size, "\0" * size, size)
            response = yield ClientCall(m.qmcomm, operation, request, fate=REPEATABLE)
            too_small = response.result == HResult.MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL
            if not too_small or not size < response.pdwLength <= MAXIMUM_FORMAT_NAME_BUFFER:
                break
            size = response.pdwLength
        check(response.result, operation.name, self.name)
        return str(response.lpwcsFormatName).partition("\0")[0]

    def purge(self) -> Steps[None]:
        yield from call(m.qmcomm, "rpc_ACPurgeQueue", self.name, hQueue=self.handle)

    def send(self, message: Message, uow: bytes | None) -> Steps[bytes]:
        """Send a message. Return its identifier, 20 bytes. Raises MsmqError, also for a message that would be
        altered."""
        check_sendable(self.name, message)
        response = yield from call(
            m.qmcomm2,
            "rpc_ACSendMessageEx",
            self.name,
            fate=_SENT,
            hQueue=self.handle,
            ptb=send_buffer(message, uow),
            pMessageID=OBJECTID(),
        )
        return identifier_of(response.pMessageID)

    def peek(self, action: ReceiveAction, timeout: int, cursor: int = 0) -> Steps[Message]:
        return self._read(action, timeout, cursor, None)

    def take(self, timeout: int, cursor: int = 0) -> Steps[TakenMessage]:
        return TakenMessage((yield from self._read(ReceiveAction.RECEIVE, timeout, cursor, None)))

    def take_in_transaction(self, uow: bytes, timeout: int, cursor: int = 0) -> Steps[TakenMessage]:
        return TakenMessage((yield from self._read(ReceiveAction.RECEIVE, timeout, cursor, uow)))

    def _read(self, action: ReceiveAction, timeout: int, cursor: int, uow: bytes | None) -> Steps[Message]:
        """Read a message. Buffers that are too small are enlarged; the next read starts with the new sizes, up to a
        limit, because buffers are transferred in both directions.

        PEEK_NEXT moves the cursor before a message is found to be too large ([MS-MQDMPR] 3.1.7.1.14, 3.2.7.3), so
        PEEK_CURRENT then reads that message. A server that does not move the cursor returns the previous message, for
        which the buffers were large enough.
        """
        advancing, outgrown, sizes = action, self.sizes, replace(self.sizes)
        while True:
            used = replace(sizes)
            ptb = receive_buffer(action, timeout, cursor, uow, used)
            response = yield self._read_call(action, ptb, timeout, uow)
            if response.result not in TOO_SMALL:
                behind = action is not advancing and (
                    response.result == HResult.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
                    or (not response.result and outgrown.suffice(response.ptb))
                )
                if not behind:
                    break
                action = advancing
                continue
            sizes.enlarge(response.result, response.ptb)
            if sizes == used:
                break
            if action is ReceiveAction.PEEK_NEXT:
                action, outgrown = ReceiveAction.PEEK_CURRENT, used
        self.sizes = sizes.remembered()
        check(response.result, "rpc_ACReceiveMessageEx", self.name)
        return message_from_receive(response.ptb)

    def _read_call(
        self, action: ReceiveAction, ptb: m.CACTransferBufferV2, timeout: int, uow: bytes | None
    ) -> ClientCall:
        operation = m.qmcomm2.operation("rpc_ACReceiveMessageEx")
        request = m.rpc_ACReceiveMessageEx_Request(self.context, ptb)
        fate = _READ.get(action, _TAKEN if uow is None else _TAKEN_IN_TRANSACTION)
        return ClientCall(m.qmcomm2, operation, request, timeout, fate, removes=fate is _TAKEN)

    def create_cursor(self) -> Steps[int]:
        response = yield from call(
            m.qmcomm2,
            "rpc_ACCreateCursorEx",
            self.name,
            fate=HARMLESS,
            hQueue=self.handle,
            pcc=m.CACCreateRemoteCursor(),
        )
        handle: int = response.pcc.hCursor
        return handle

    def close_cursor(self, cursor: int) -> Steps[None]:
        yield from call(m.qmcomm, "rpc_ACCloseCursor", self.name, fate=HARMLESS, hQueue=self.handle, hCursor=cursor)
