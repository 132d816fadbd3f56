"""The blocking client. Objects may be shared by threads: calls run on a pool of connections of one association.

Generated from asynchronous/__init__.py by tools/sync_client.py; never edited.
"""

from openmsmq.client.sync.manager import QueueManager, connect
from openmsmq.client.sync.queue import Cursor, MessageQueue
from openmsmq.client.sync.transaction import Transaction

__all__ = ["Cursor", "MessageQueue", "QueueManager", "Transaction", "connect"]
