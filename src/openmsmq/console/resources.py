"""All operations of the API."""

from __future__ import annotations

from typing import Final

from openmsmq.console import (
    account,
    administration,
    alarms,
    backups,
    dead_letters,
    definitions,
    handles,
    live,
    messages,
    operations,
    permissions,
    queues,
    sequences,
    tokens,
    users,
)
from openmsmq.console.table import HttpOperation

OPERATIONS: Final[tuple[HttpOperation, ...]] = (
    *account.OPERATIONS, *queues.OPERATIONS, *messages.OPERATIONS, *operations.OPERATIONS, *dead_letters.OPERATIONS,
    *permissions.OPERATIONS, *handles.OPERATIONS, *sequences.OPERATIONS, *tokens.OPERATIONS, *users.OPERATIONS,
    *administration.OPERATIONS,
    *definitions.OPERATIONS, *backups.OPERATIONS, *alarms.OPERATIONS, *live.OPERATIONS,
)  # fmt: skip
