"""The audit log of the daemon: records of what the queue manager reports, and the policy for failed writes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from openmsmq.accounts.users import UsersFile
from openmsmq.admin.audit import AuditEntry, AuditLog
from openmsmq.model.errors import InsufficientResources
from openmsmq.queueing.auditing import LOGIN, Actor, Auditor, AuditRecord

_OPENINGS: Final = ("messages.open", "outgoing.open", LOGIN)
_ONCE_IN: Final = 60.0  # seconds
_MOST_OPENINGS: Final = 1000  # maximum remembered openings and logins
_DENIALS: Final = 20  # recorded per minute for a host and an action; a flood must not displace other records
_MOST_DENIED: Final = 1000  # maximum remembered pairs of host and action

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Denials:
    """The number of denials of a host and an action since a time; `_DENIALS` of them were recorded."""

    since: float
    count: int = 0


class Audit:
    """See `queueing.auditing.Auditor`."""

    def __init__(self, log: AuditLog, *, required: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """With `required`, a change that can't be recorded is refused; otherwise it is made, and an error is logged."""
        self._log: Final = log
        self._required: Final = required
        self._clock: Final = clock
        self._failing = False
        self._opened: dict[tuple[str, str, str, str], float] = {}  # when each opening was last recorded
        self._denied: dict[tuple[str, str], _Denials] = {}

    def record(self, deed: AuditRecord) -> None:
        """Write a record. Raises InsufficientResources if the change must not be made. Denials, openings of queues and
        logins change nothing, so no caller waits for the disk because of them."""
        if deed.action in _OPENINGS and not deed.denied and self._is_recent(deed):
            return
        if deed.denied and self._is_flood(deed):
            return
        self._write(deed)

    def _write(self, deed: AuditRecord) -> None:
        actor = deed.actor
        entry = AuditEntry(
            deed.action, deed.kind, deed.name, actor.name or actor.sid, actor.sid, actor.origin,
            "denied" if deed.denied else "ok", deed.count, deed.before, deed.after,
        )  # fmt: skip
        try:
            self._log.append(entry, sync=not deed.denied and deed.action not in _OPENINGS)
        except OSError as error:
            self._say(error, deed)
            if self._required and not deed.denied and deed.action != LOGIN:
                raise InsufficientResources(
                    detail=f"{deed.action}: the audit log can't be written ({error}), and audit_required is set"
                ) from error
        else:
            self._failing = False

    def _is_recent(self, deed: AuditRecord) -> bool:
        """Whether the same was recorded within the last minute. A stream opens a journal for each batch, and a script
        logs in with each request; one record per minute is sufficient."""
        name = f"{deed.name} {deed.after}" if deed.after else deed.name
        key, now = (deed.actor.sid, deed.actor.origin, deed.action, name), self._clock()
        if now - self._opened.get(key, -_ONCE_IN) < _ONCE_IN:
            return True
        if len(self._opened) >= _MOST_OPENINGS:
            self._opened.clear()
        self._opened[key] = now
        return False

    def _is_flood(self, deed: AuditRecord) -> bool:
        """Whether a denial is only counted. The count is written with the first denial of a later minute."""
        key, now = (deed.actor.origin, deed.action), self._clock()
        known = self._denied.get(key)
        if known is None or now - known.since >= _ONCE_IN:
            if known is not None and known.count > _DENIALS:
                self._write(
                    replace(deed, count=known.count - _DENIALS, after={"denied before, and only counted": True})
                )
            if len(self._denied) >= _MOST_DENIED:
                self._denied.clear()
            known = self._denied[key] = _Denials(now)
        known.count += 1
        return known.count > _DENIALS

    def started(self, entry: AuditEntry) -> None:
        """Record the start of the daemon. It starts even if this fails, and then refuses changes."""
        try:
            self._log.append(entry)
        except OSError as error:
            logger.error("cannot write the audit log: %s", error)

    def _say(self, error: OSError, deed: AuditRecord) -> None:
        """Log a failure once, and each change that is made without a record."""
        if not self._failing or not (self._required or deed.denied):
            self._failing = True
            logger.error("cannot write the audit log: %s; not recorded: %s %s by %s",
                         error, deed.action, deed.name, deed.actor.name or deed.actor.sid)  # fmt: skip


class Logins:
    """Logins of all entry points in the audit log: `accounts.login_attempts.Reporter`."""

    def __init__(self, auditor: Auditor, users: UsersFile) -> None:
        """Record the name of a user who failed to log in only if `users` has it: other text may be a password that was
        typed into the wrong field."""
        self._auditor: Final = auditor
        self._users: Final = users

    def succeeded(self, door: str, sid: str, user: str, peer: str, token: str = "") -> None:
        after = {"token": token} if token else None
        self._auditor.record(AuditRecord(Actor(sid, user, f"{door} {peer}"), LOGIN, "user", user, after=after))

    def failed(self, door: str, user: str, peer: str) -> None:
        name = "an unknown user" if user else "an unknown token"
        if user and self._users.lookup("", user) is not None:
            name = user
        self._auditor.record(AuditRecord(Actor("", name, f"{door} {peer}"), LOGIN, "user", name, denied=True))
