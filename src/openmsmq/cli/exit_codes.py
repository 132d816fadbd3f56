"""Exit codes other than 0, and 2 for wrong usage. Imported only after a failure, because it needs the errors of client
and store.
"""

from __future__ import annotations

from openmsmq.accounts.users import UsersFileError
from openmsmq.actions.errors import ActionIncomplete, ActionRefused
from openmsmq.admin.alarm_rules import AlarmRuleError
from openmsmq.admin.backup import BackupError
from openmsmq.admin.http_requests import ApiError, ApiNotFound, ApiRefused, ApiTimeout, ApiUnreachable
from openmsmq.admin.tokens import TokensFileError
from openmsmq.directory.provider import DirectoryError
from openmsmq.files.private import PrivateFileError
from openmsmq.model.errors import (
    AccessDenied,
    AuthenticationError,
    MsmqError,
    QueueExists,
    QueueNotFound,
    ReceiveTimeout,
)
from openmsmq.protection.directories import DirectoryUnavailable
from openmsmq.server.supervision import FENCED
from openmsmq.store import StoreError, StoreFenced

FAILED, NOT_FOUND, TIMED_OUT, DENIED, UNREACHABLE, EXISTS = 1, 3, 4, 5, 6, 7

_EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (QueueNotFound, NOT_FOUND),
    (QueueExists, EXISTS),
    (ReceiveTimeout, TIMED_OUT),
    (AccessDenied, DENIED),
    (AuthenticationError, DENIED),
    (ApiRefused, DENIED),
    (ApiNotFound, NOT_FOUND),
    (ApiTimeout, TIMED_OUT),
    (ApiUnreachable, UNREACHABLE),
    (ApiError, FAILED),
    (ConnectionError, UNREACHABLE),
    (MsmqError, FAILED),
    (StoreFenced, FENCED),
    (StoreError, FAILED),
    (UsersFileError, FAILED),
    (TokensFileError, FAILED),
    (ActionRefused, FAILED),
    (ActionIncomplete, FAILED),
    (AlarmRuleError, FAILED),
    (BackupError, FAILED),
    (PrivateFileError, FAILED),
    (DirectoryError, FAILED),
    (DirectoryUnavailable, FAILED),
    (OSError, FAILED),
    (ValueError, FAILED),
)


def exit_code(error: Exception) -> int | None:
    """Return the exit code of a failure that one line can describe; None for a bug in this program."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), None)
