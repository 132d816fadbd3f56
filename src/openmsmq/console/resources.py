"""All operations of the API."""

from __future__ import annotations

from typing import Final

from openmsmq.console import account, derived, live, messages
from openmsmq.console.table import HttpOperation

OPERATIONS: Final[tuple[HttpOperation, ...]] = (
    *account.OPERATIONS, *derived.OPERATIONS, *messages.OPERATIONS, *live.OPERATIONS
)  # fmt: skip
