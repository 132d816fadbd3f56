"""All operations of the API."""

from __future__ import annotations

from typing import Final

from openmsmq.web import account, messages, queues
from openmsmq.web.table import Operation

OPERATIONS: Final[tuple[Operation, ...]] = (*account.OPERATIONS, *queues.OPERATIONS, *messages.OPERATIONS)
