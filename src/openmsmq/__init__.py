"""openmsmq: an MSMQ queue manager for Linux, with a client for the same protocols.

import openmsmq

with openmsmq.connect("server") as qm:
    qm.create_queue(r".\\private$\\orders")
    with qm.open(r".\\private$\\orders", "send") as queue:
        queue.send("hello", label="first")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from openmsmq import compiled as _compiled  # noqa: F401, for `import` has to know before the others come

if TYPE_CHECKING:
    from openmsmq.client.sync import Cursor, MessageQueue, QueueManager, Transaction, connect
    from openmsmq.model.errors import (
        AccessDenied,
        IllegalCursorAction,
        IllegalFormatName,
        IllegalQueuePathName,
        MessageAlreadyReceived,
        MessageNotFound,
        MsmqError,
        OperationCancelled,
        QueueDeleted,
        QueueExists,
        QueueNotFound,
        ReceiveTimeout,
        SharingViolation,
        TransactionUsage,
    )
    from openmsmq.model.message import Message

# Loaded on demand: the server and the compiler import this package too, and need no client.
_HOMES = {
    "openmsmq.client.sync": ("Cursor", "MessageQueue", "QueueManager", "Transaction", "connect"),
    "openmsmq.model.errors": (
        "AccessDenied", "IllegalCursorAction", "IllegalFormatName", "IllegalQueuePathName", "MessageAlreadyReceived",
        "MessageNotFound", "MsmqError", "OperationCancelled", "QueueDeleted", "QueueExists", "QueueNotFound",
        "ReceiveTimeout", "SharingViolation", "TransactionUsage",
    ),
    "openmsmq.model.message": ("Message",),
}  # fmt: skip
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "AccessDenied",
    "Cursor",
    "IllegalCursorAction",
    "IllegalFormatName",
    "IllegalQueuePathName",
    "Message",
    "MessageAlreadyReceived",
    "MessageNotFound",
    "MessageQueue",
    "MsmqError",
    "OperationCancelled",
    "QueueDeleted",
    "QueueExists",
    "QueueManager",
    "QueueNotFound",
    "ReceiveTimeout",
    "SharingViolation",
    "Transaction",
    "TransactionUsage",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'openmsmq' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
