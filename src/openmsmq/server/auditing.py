"""The audit log of the daemon: what the queue manager tells, as records; what happens when they can't be written."""

from __future__ import annotations

import logging
from typing import Final

from openmsmq.model.errors import InsufficientResources
from openmsmq.operating.audit import AuditLog, Entry
from openmsmq.queueing.auditing import Deed

logger = logging.getLogger(__name__)


class Audit:
    """See `queueing.auditing.Auditor`."""

    def __init__(self, log: AuditLog, *, required: bool) -> None:
        """`required`: a change that can't be recorded is refused; otherwise it is made, and the log says so."""
        self._log: Final = log
        self._required: Final = required
        self._failing = False

    def record(self, deed: Deed) -> None:
        """Raises InsufficientResources for a change that is not to be made. What was denied changes nothing, so nobody
        waits for the disk because of it."""
        actor = deed.actor
        entry = Entry(
            deed.action, deed.kind, deed.name, actor.name or actor.sid, actor.sid, actor.origin,
            "denied" if deed.denied else "ok", deed.count, deed.before, deed.after,
        )  # fmt: skip
        try:
            self._log.append(entry, sync=not deed.denied)
        except OSError as error:
            self._say(error, deed)
            if self._required and not deed.denied:
                raise InsufficientResources(
                    detail=f"{deed.action}: the audit log can't be written ({error}), and audit_required is set"
                ) from error
        else:
            self._failing = False

    def started(self, entry: Entry) -> None:
        """A record of the daemon's own. Raises OSError where records are required."""
        try:
            self._log.append(entry)
        except OSError as error:
            if self._required:
                raise
            logger.error("the audit log can't be written: %s", error)

    def _say(self, error: OSError, deed: Deed) -> None:
        """Once for each time that it fails, and each change that is made all the same."""
        if not self._failing or not (self._required or deed.denied):
            self._failing = True
            logger.error("the audit log can't be written: %s; not recorded: %s %s by %s",
                         error, deed.action, deed.name, deed.actor.name or deed.actor.sid)  # fmt: skip
