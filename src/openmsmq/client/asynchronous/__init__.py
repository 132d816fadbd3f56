"""Client for asyncio: the names of `openmsmq`, with `await`. `tools/sync_client.py` generates the blocking client from
it.

A task may be canceled at any time. If it is receiving through MS-MQRR, a locked message is put back. If the message is
already being removed, the receive returns it, and the next receive of the task raises CancelledError. If it is
receiving through MS-MQMP outside a transaction and the server has already responded, the message is lost.
"""

from openmsmq.client.asynchronous.manager import QueueManager, connect
from openmsmq.client.asynchronous.queue import Cursor, MessageQueue
from openmsmq.client.asynchronous.transaction import Transaction

__all__ = ["Cursor", "MessageQueue", "QueueManager", "Transaction", "connect"]
