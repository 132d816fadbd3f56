"""Open queues of qmcomm and qmcomm2 (MS-MQMP): sending, and receives of one phase, alone or in a transaction.

The protocol carries no lookup identifiers, and a receive whose answer is lost has taken its message all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from openmsmq.client.calls import Call, Steps, call
from openmsmq.client.open_queue import OpenQueue, Taken, queue_format
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces.ms_mqmq import OBJECTID
from openmsmq.model.constants import Access, Action, Share
from openmsmq.model.errors import HResult, MsmqError, error_for
from openmsmq.model.message import Message
from openmsmq.transfer.receive_buffer import BufferSizes, identifier_of, message_from_receive, receive_buffer
from openmsmq.transfer.send_buffer import send_buffer

_TOO_SMALL = frozenset(
    [
        HResult.MQ_ERROR_BUFFER_OVERFLOW,
        HResult.MQ_ERROR_LABEL_BUFFER_TOO_SMALL,
        HResult.MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL,
        HResult.MQ_ERROR_SENDERID_BUFFER_TOO_SMALL,
    ]
)


def open_queue(name: str, access: Access, exclusive: bool, client: str, licence: bytes) -> Steps[QmcommQueue]:
    response = yield from call(
        m.qmcomm, "rpc_QMOpenQueueInternal", name, pQueueFormat=queue_format(name), dwDesiredAccess=access,
        dwShareMode=Share.DENY_RECEIVE_SHARE if exclusive else Share.DENY_NONE, pLicGuid=licence, lpClientName=client,
    )  # fmt: skip
    if response.lplpRemoteQueueName:
        raise MsmqError(
            HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, f"{name} is at {response.lplpRemoteQueueName}; connect there"
        )
    return QmcommQueue(name, access, exclusive, response.phQueue, response.pdwQMContext)


@dataclass(slots=True)
class QmcommQueue(OpenQueue):
    """The context handle, the context value, and buffer sizes that did."""

    protocol: ClassVar[str] = "qmcomm"

    handle: bytes
    context: int
    sizes: BufferSizes = field(default_factory=BufferSizes)

    def close(self) -> Steps[None]:
        yield from call(m.qmcomm, "rpc_ACCloseHandle", phQueue=self.handle)

    def format_name(self) -> Steps[str]:
        size = 256
        operation = m.qmcomm.operation("rpc_ACHandleToFormatName")
        while True:
            request = m.rpc_ACHandleToFormatName_Request(self.handle, size, "\0" * size, size)
            response = yield Call(m.qmcomm, operation, request)
            if response.result != HResult.MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL:
                break
            size = response.pdwLength
        if response.result & 0x80000000:
            raise error_for(response.result, f"{self.name} ({operation.name})")
        return str(response.lpwcsFormatName).partition("\0")[0]

    def purge(self) -> Steps[None]:
        yield from call(m.qmcomm, "rpc_ACPurgeQueue", self.name, hQueue=self.handle)

    def send(self, message: Message, uow: bytes | None) -> Steps[bytes]:
        """Returns the identifier of the message, 20 bytes."""
        response = yield from call(
            m.qmcomm2,
            "rpc_ACSendMessageEx",
            self.name,
            hQueue=self.handle,
            ptb=send_buffer(message, uow),
            pMessageID=OBJECTID(),
        )
        return identifier_of(response.pMessageID)

    def peek(self, action: Action, timeout: int, cursor: int = 0) -> Steps[Message]:
        return self._read(action, timeout, cursor, None)

    def take(self, timeout: int, cursor: int = 0) -> Steps[Taken]:
        return Taken((yield from self._read(Action.RECEIVE, timeout, cursor, None)))

    def take_in_transaction(self, uow: bytes, timeout: int, cursor: int = 0) -> Steps[Taken]:
        return Taken((yield from self._read(Action.RECEIVE, timeout, cursor, uow)))

    def _read(self, action: Action, timeout: int, cursor: int, uow: bytes | None) -> Steps[Message]:
        """Buffers that prove too small are enlarged, and the sizes that did are kept for the next read."""
        operation = m.qmcomm2.operation("rpc_ACReceiveMessageEx")
        while True:
            used = replace(self.sizes)
            ptb = receive_buffer(action, timeout, cursor, uow, used)
            response = yield Call(m.qmcomm2, operation, m.rpc_ACReceiveMessageEx_Request(self.context, ptb), timeout)
            if response.result not in _TOO_SMALL:
                break
            self.sizes.enlarge(response.result, response.ptb)
            if self.sizes == used:  # other threads enlarge them too
                break
        if response.result & 0x80000000:
            raise error_for(response.result, f"{self.name} ({operation.name})")
        return message_from_receive(response.ptb)

    def create_cursor(self) -> Steps[int]:
        response = yield from call(
            m.qmcomm2, "rpc_ACCreateCursorEx", self.name, hQueue=self.handle, pcc=m.CACCreateRemoteCursor()
        )
        handle: int = response.pcc.hCursor
        return handle

    def close_cursor(self, cursor: int) -> Steps[None]:
        yield from call(m.qmcomm, "rpc_ACCloseCursor", self.name, hQueue=self.handle, hCursor=cursor)
