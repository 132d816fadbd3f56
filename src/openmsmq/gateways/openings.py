"""Open queue handles, as rows for lists, and closing them: daemon side.

A handle value grants read access by MS-MQQP. Rows therefore have identifiers derived from it that do not reveal it.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator
from typing import Any, Final

from openmsmq.gateways.rows import id_of, kind_of
from openmsmq.model.constants import Share
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.queueing.auditing import Actor, Auditor, AuditRecord
from openmsmq.queueing.descriptors import OpenQueueDescriptor
from openmsmq.queueing.manager import QueueManager


class Openings:
    """The open queues of one queue manager."""

    def __init__(self, manager: QueueManager, auditor: Auditor) -> None:
        self._manager: Final = manager
        self._auditor: Final = auditor
        self._secret: Final = secrets.token_bytes(32)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each open handle."""
        return (row for _, row in self._open())

    def _open(self) -> Iterator[tuple[OpenQueueDescriptor, dict[str, Any]]]:
        opened = list(self._manager.handles.descriptors.values())
        for found in LEFT_OUT.each("lists of handles", opened, self._row, lambda descriptor: descriptor.name):
            if found is not None:
                yield found

    def _row(self, descriptor: OpenQueueDescriptor) -> tuple[OpenQueueDescriptor, dict[str, Any]] | None:
        queue, opener = descriptor.queue, descriptor.opener
        if queue is None or kind_of(queue) is None:
            return None
        return descriptor, {
            "id": self._id(descriptor), "queue": id_of(queue), "name": descriptor.name,
            "access": descriptor.access.name.lower(),
            "since": descriptor.opened // 1000, "exclusive": descriptor.share is Share.DENY_RECEIVE_SHARE,
            "waiting": len(descriptor.waiting), "cursors": len(descriptor.cursors), "held": len(descriptor.held),
            "user": opener.name if opener is not None else "", "sid": opener.sid if opener is not None else "",
            "origin": opener.origin if opener is not None else "",
        }  # fmt: skip

    def close(self, identifier: str, actor: Actor) -> dict[str, Any] | None:
        """Close the handle of a row and return the row; None if it is already closed. Pending reads are canceled,
        received messages are put back, and the client's next call fails. Raises MsmqError if the audit record cannot be
        written."""
        found = next(((descriptor, row) for descriptor, row in self._open() if row["id"] == identifier), None)
        if found is None:
            return None
        descriptor, row = found
        before = {name: row[name] for name in ("user", "origin", "access", "exclusive", "waiting")}
        self._auditor.record(AuditRecord(actor, "handle.close", "queue", row["name"], before=before))
        self._manager.handles.close_queue(descriptor)
        return row

    def _id(self, descriptor: OpenQueueDescriptor) -> str:
        return hmac.digest(self._secret, descriptor.handle.to_bytes(4, "little"), "sha256")[:8].hex()
