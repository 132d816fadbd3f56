"""The client for asyncio: `await openmsmq.aio.connect(...)`, then the names of `openmsmq` with `await`."""

from openmsmq.client.asynchronous import Cursor, MessageQueue, QueueManager, Transaction, connect
from openmsmq.model.message import Message

__all__ = ["Cursor", "Message", "MessageQueue", "QueueManager", "Transaction", "connect"]
