"""Audit records: changes that callers make, and denied attempts.

Four parts write audit records:

- `Authorization`: denied attempts, and allowed acts that change no queue of this machine: administering the machine,
  reading outgoing queues, receiving from journals and system queues, changing public queues in the directory.
- `Administration`: each change of a queue, just before it is made.
- `ReadOperations`: purges.
- `Handles`: the number of messages received through a handle whose opening was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

LOGIN: Final = "login"  # recorded once a minute for each user, address and token


class Actor(NamedTuple):
    """Author of a change: a SID, its account name, and the origin (`rpc 10.0.0.7`, empty for the queue manager
    itself)."""

    sid: str
    name: str
    origin: str


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A change, or an attempt at one: `before` and `after` are the values that differ, `count` messages."""

    actor: Actor
    action: str
    kind: str
    name: str
    denied: bool = False
    count: int | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


class Auditor(Protocol):
    """Stores audit records."""

    def record(self, deed: AuditRecord) -> None:
        """Called before a change is made. Raises MsmqError if the record cannot be stored; the change must then not be
        made."""


class NoAudit:
    """Null auditor: discards audit records."""

    def record(self, deed: AuditRecord) -> None:
        return None
