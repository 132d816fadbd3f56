"""Audit records for operations that this process performs with several calls; the daemon records each call itself."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from openmsmq.actions.background import JobView
from openmsmq.actions.jobs import end_of
from openmsmq.admin.audit import AuditEntry, AuditLog
from openmsmq.console.problems import Problem
from openmsmq.console.table import WebRequest

if TYPE_CHECKING:
    from openmsmq.console.services import WebSettings

logger = logging.getLogger(__name__)


def record_interrupted(settings: WebSettings, jobs: Iterable[JobView]) -> None:
    """Record that jobs of an earlier process were interrupted."""
    if not settings.audit:
        return
    log = AuditLog(settings.directory, size=settings.audit_bytes)
    for job in jobs:
        entry = AuditEntry("job.end", "job", job.id, job.user, job.sid, job.origin, count=job.done, after=end_of(job))
        try:
            log.append(entry)
        except OSError as error:
            logger.error("cannot write the audit log: %s; not recorded: job %s was interrupted", error, job.id)


def record(
    asked: WebRequest,
    action: str,
    kind: str,
    name: str,
    *,
    count: int | None = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> int | None:
    """Write a record before the change is made. Returns its number; None if none is written. Raises Problem if a
    required record cannot be written."""
    settings = asked.services.settings
    if not settings.audit:
        return None
    caller = asked.caller
    entry = AuditEntry(
        action, kind, name, caller.name, caller.sid, f"http {caller.peer}", count=count, before=before, after=after
    )
    try:
        return AuditLog(settings.directory, size=settings.audit_bytes).append(entry)
    except OSError as error:
        logger.error("cannot write the audit log: %s; not recorded: %s %s by %s", error, action, name, caller.name)
        if settings.audit_required:
            detail = f"{action}: the audit log can't be written, and audit_required is set"
            raise Problem(507, detail) from None
        return None
