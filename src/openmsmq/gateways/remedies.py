"""Administrative operations of the daemon: remove an outgoing queue, show and forget incoming sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

from openmsmq.gateways.rows import find, id_of, kind_of
from openmsmq.model.errors import QueueNotFound
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.queueing.auditing import Actor, Auditor, AuditRecord
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import OutgoingQueue
from openmsmq.queueing.queue import Queue

#: Forgets the incoming sequences from a queue manager (16 bytes) to a queue; returns whether there were any.
Forget = Callable[[Queue, bytes], bool]


class Remedies:
    """Used by `WebGateway`, which checks the caller."""

    def __init__(self, manager: QueueManager, auditor: Auditor, forget: Forget) -> None:
        self._manager: Final = manager
        self._auditor: Final = auditor
        self._forget: Final = forget

    def delete_outgoing(self, identifier: str, actor: Actor) -> int | None:
        """Delete an outgoing queue and return the number of deleted messages; None if it is not an outgoing queue.
        Raises MsmqError."""
        queue = find(self._manager, identifier)
        if not isinstance(queue, OutgoingQueue):
            return None
        return self._manager.administration.delete_outgoing(queue, actor)

    def sequences(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each incoming transactional sequence."""
        queues = [queue for queue in self._manager.registry.queues.values() if queue.incoming]
        for rows in LEFT_OUT.each("lists of sequences", queues, self._rows, lambda queue: queue.properties.path_name):
            yield from rows

    @staticmethod
    def _rows(queue: Queue) -> list[dict[str, Any]]:
        if kind_of(queue) is None:
            return []
        return [
            {
                "queue": id_of(queue), "name": queue.properties.path_name,
                "source": str(UUID(bytes_le=known.sender)), "sequence": known.sequence_identifier,
                "number": known.sequence_number, "rejected": known.reject_count, "accessed": known.last_access_time,
            }
            for known in queue.incoming.values()
        ]  # fmt: skip

    def forget_sequence(self, identifier: str, source: str, actor: Actor) -> bool:
        """Forget a sequence; return whether it existed. Raises QueueNotFound; MsmqError if the change cannot be
        recorded or stored."""
        queue = find(self._manager, identifier)
        if queue is None:
            raise QueueNotFound(detail=f"no queue has the identifier {identifier[:40]}")
        try:
            sender = UUID(source).bytes_le
        except ValueError:
            return False
        known = [each for each in queue.incoming.values() if each.sender == sender]  # one per name of the queue
        if not known:
            return False
        stood = ", ".join(f"{each.sequence_identifier} at {each.sequence_number}" for each in known)
        before = {"source": str(UUID(bytes_le=sender)), "sequences": stood}
        self._auditor.record(AuditRecord(actor, "sequence.forget", "queue", queue.properties.path_name, before=before))
        return self._forget(queue, sender)
