"""All operations of the API."""

from __future__ import annotations

from typing import Final

from openmsmq.console import (
    account,
    backups,
    dead_letters,
    definitions,
    derived,
    handles,
    live,
    messages,
    operations,
    permissions,
    queues,
    sequences,
)
from openmsmq.console.table import HttpOperation

OPERATIONS: Final[tuple[HttpOperation, ...]] = (
    *account.OPERATIONS, *queues.OPERATIONS, *messages.OPERATIONS, *operations.OPERATIONS, *dead_letters.OPERATIONS,
    *permissions.OPERATIONS, *handles.OPERATIONS, *sequences.OPERATIONS, *derived.OPERATIONS,
    *definitions.OPERATIONS, *backups.OPERATIONS, *live.OPERATIONS,
)  # fmt: skip
