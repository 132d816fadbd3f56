"""All operations of the API."""

from __future__ import annotations

from typing import Final

from openmsmq.console import (
    account,
    dead_letters,
    derived,
    handles,
    live,
    messages,
    operations,
    queues,
    sequences,
)
from openmsmq.console.table import HttpOperation

OPERATIONS: Final[tuple[HttpOperation, ...]] = (
    *account.OPERATIONS, *queues.OPERATIONS, *messages.OPERATIONS, *operations.OPERATIONS, *dead_letters.OPERATIONS,
    *handles.OPERATIONS, *sequences.OPERATIONS, *derived.OPERATIONS,
    *live.OPERATIONS,
)  # fmt: skip
