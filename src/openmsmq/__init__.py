"""An MSMQ queue manager for Linux, with a client for the same protocols.

    import openmsmq

    with openmsmq.connect("server") as qm:
        qm.create_queue(r".\\private$\\orders")
        with qm.open(r".\\private$\\orders", "send") as queue:
            queue.send("hello", label="first")

`connect` returns a `QueueManager`; all errors derive from `MsmqError`. `openmsmq.aio` is the same for asyncio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openmsmq.client.calls import CallerRefused, ClientClosed, HandleLost, ProtocolUnavailable
    from openmsmq.client.participants import Participant
    from openmsmq.client.pipelining import MessagesNotSent
    from openmsmq.client.sync import Cursor, MessageQueue, QueueManager, Transaction, connect
    from openmsmq.model.bodies import BodyError
    from openmsmq.model.errors import (
        AccessDenied,
        AnswerTimeout,
        AuthenticationError,
        BindError,
        BufferOverflow,
        ClientError,
        IllegalCursorAction,
        IllegalFormatName,
        IllegalPropertyValue,
        IllegalQueuePathName,
        InsufficientResources,
        InvalidHandle,
        LocalProtocolError,
        LoginRefused,
        MessageAlreadyReceived,
        MessageNotFound,
        MessageStorageFailed,
        MsmqError,
        NdrError,
        OperationCancelled,
        ProtocolError,
        QueueDeleted,
        QueueExists,
        QueueNotFound,
        ReceiveTimeout,
        RemoteProtocolError,
        RpcConnectionError,
        SharingViolation,
        TransactionSequence,
        TransactionUsage,
    )
    from openmsmq.model.message import Message

# Loaded on demand: the server and the compiler import this package too, and need no client.
_MODULES_OF = {
    "openmsmq.client.calls": ("CallerRefused", "ClientClosed", "HandleLost", "ProtocolUnavailable"),
    "openmsmq.client.participants": ("Participant",),
    "openmsmq.client.pipelining": ("MessagesNotSent",),
    "openmsmq.client.sync": ("Cursor", "MessageQueue", "QueueManager", "Transaction", "connect"),
    "openmsmq.model.bodies": ("BodyError",),
    "openmsmq.model.errors": (
        "AccessDenied", "AnswerTimeout", "AuthenticationError", "BindError", "BufferOverflow", "ClientError",
        "IllegalCursorAction", "IllegalFormatName", "IllegalPropertyValue", "IllegalQueuePathName",
        "InsufficientResources", "InvalidHandle", "LocalProtocolError", "LoginRefused", "MessageAlreadyReceived",
        "MessageNotFound", "MessageStorageFailed", "MsmqError", "NdrError", "OperationCancelled", "ProtocolError",
        "QueueDeleted", "QueueExists", "QueueNotFound", "ReceiveTimeout", "RemoteProtocolError", "RpcConnectionError",
        "SharingViolation", "TransactionSequence", "TransactionUsage",
    ),
    "openmsmq.model.message": ("Message",),
}  # fmt: skip
_MODULES = {name: module for module, names in _MODULES_OF.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "AccessDenied",
    "AnswerTimeout",
    "AuthenticationError",
    "BindError",
    "BodyError",
    "BufferOverflow",
    "CallerRefused",
    "ClientClosed",
    "ClientError",
    "Cursor",
    "HandleLost",
    "IllegalCursorAction",
    "IllegalFormatName",
    "IllegalPropertyValue",
    "IllegalQueuePathName",
    "InsufficientResources",
    "InvalidHandle",
    "LocalProtocolError",
    "LoginRefused",
    "Message",
    "MessageAlreadyReceived",
    "MessageNotFound",
    "MessageQueue",
    "MessageStorageFailed",
    "MessagesNotSent",
    "MsmqError",
    "NdrError",
    "OperationCancelled",
    "Participant",
    "ProtocolError",
    "ProtocolUnavailable",
    "QueueDeleted",
    "QueueExists",
    "QueueManager",
    "QueueNotFound",
    "ReceiveTimeout",
    "RemoteProtocolError",
    "RpcConnectionError",
    "SharingViolation",
    "Transaction",
    "TransactionSequence",
    "TransactionUsage",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'openmsmq' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the names for `dir` and `help` without loading modules: the names above, and those already loaded."""
    return sorted({*globals(), *__all__})
