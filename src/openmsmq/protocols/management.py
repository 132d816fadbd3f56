"""Results of R_QMMgmtGetInfo ([MS-MQMR] 3.1.4.1): how each property of the machine and of a queue is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from openmsmq.model import names
from openmsmq.protocols.environment import MSMQ_VERSION
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import (
    ConnectorQueue,
    OutgoingQueue,
    OutgoingState,
    OutgoingTransferInfo,
    path_name_of,
)
from openmsmq.queueing.queue import APPLICATION_QUEUES, Queue, QueueKind

_HAVE_NEXT_HOPS = (OutgoingState.CONNECTED, OutgoingState.WAITING)


def format_name(manager: QueueManager, queue: Queue) -> str:
    """Return the format name of a queue; for an outgoing queue that of its destination."""
    if isinstance(queue, OutgoingQueue):
        return str(queue.destination)
    if isinstance(queue, ConnectorQueue):
        return str(queue.format_name)
    if queue.kind is QueueKind.SYSTEM:
        suffix = next(s for s in names.READ_ONLY if manager.registry.system_queue(s) is queue)
        return str(names.MachineFormatName(UUID(bytes_le=manager.machine.identifier), suffix))
    if queue.kind is QueueKind.JOURNAL:
        assert queue.owner is not None
        return str(manager.registry.format_name(queue.owner, names.Suffix.JOURNAL))
    if queue.kind is QueueKind.SUBQUEUE:  # has only a direct format name
        return f"DIRECT=OS:{queue.properties.path_name}"
    return str(manager.registry.format_name(queue))


def subqueues(queue: Queue) -> list[str]:
    """Return the names in SubqueueCollection."""
    return [subqueue.name for subqueue in queue.subqueues.values()]


def _active(manager: QueueManager) -> list[str]:
    return [format_name(manager, queue) for queue in manager.registry.queues.values() if queue.is_active]


def _private(manager: QueueManager) -> list[str]:
    return [queue.properties.path_name for queue in manager.registry.queues.values() if queue.kind is QueueKind.PRIVATE]


MACHINE: dict[str, Callable[[QueueManager], Any]] = {
    "active_queues": _active,
    "private_queues": _private,
    "ds_server": lambda manager: None,  # no directory service
    "connected": lambda manager: "CONNECTED" if manager.outgoing.online else "DISCONNECTED",
    "type": lambda manager: f"Message Queuing {MSMQ_VERSION}",
    "bytes_in_all_queues": lambda manager: manager.registry.held.bytes,
}


def _path_name(manager: QueueManager, queue: Queue) -> str | None:
    if isinstance(queue, OutgoingQueue):
        place = manager.registry.place_of(queue.destination)
        return path_name_of(queue.destination) if place is None else place.path_name
    # Deviation D-51: a connector queue has no path name.
    return None if isinstance(queue, ConnectorQueue) else queue.properties.path_name


def _qualified_format_name(manager: QueueManager, queue: Queue) -> str:
    """Return a direct format name with QualifiedPathname (deviation D-48); a host without a domain has only its
    computer name."""
    if isinstance(queue, OutgoingQueue | ConnectorQueue):
        return format_name(manager, queue)
    computer, _, rest = queue.properties.path_name.partition("\\")
    qualified = manager.machine.qualified_name
    return f"DIRECT=OS:{qualified if '.' in qualified else computer}\\{rest}"


def _type(manager: QueueManager, queue: Queue) -> str:
    if queue.kind is QueueKind.SYSTEM:
        return "MACHINE"
    if queue.kind is QueueKind.CONNECTOR:
        return "CONNECTOR"
    return "PRIVATE" if _is_private(queue) else "PUBLIC"


def _is_private(queue: Queue) -> bool:
    """Whether a queue is private; for a direct format name, its path tells."""
    if isinstance(queue, OutgoingQueue):
        if isinstance(queue.destination, names.DirectFormatName):
            return queue.destination.path.lower().startswith("private$\\")
        return not isinstance(queue.destination, names.PublicFormatName)
    return (queue.owner or queue.parent or queue).kind is not QueueKind.PUBLIC


def _foreign(manager: QueueManager, queue: Queue) -> str:
    """Deviation D-50 from [MS-MQMR] 3.1.4.1: UNKNOWN for public queues of other machines and for system queues. YES for
    connector queues, because their messages go to foreign queues ([MS-MQMQ] 2.3.12.6)."""
    if queue.kind is QueueKind.CONNECTOR:
        return "YES"
    is_known = queue.kind is QueueKind.PUBLIC or (_is_private(queue) and queue.kind is not QueueKind.SYSTEM)
    return "NO" if is_known else "UNKNOWN"


def _transactional(manager: QueueManager, queue: Queue) -> str:
    """Deviation D-47 from [MS-MQMR] 3.1.4.1: for an unverified destination, `NO` would be a guess; UNKNOWN is defined
    in [MS-MQMQ] 2.3.12.5."""
    if isinstance(queue, OutgoingQueue):
        return "UNKNOWN"
    return "YES" if queue.properties.transactional else "NO"


def _journal(queue: Queue) -> Queue | None:
    """Return the journal of an application queue. A subqueue has none ([MS-MQDMPR] 3.1.7.1.3), and neither has an
    outgoing queue, for which the attribute is the queue of messages that await their final acknowledgment."""
    return queue.journal if queue.kind in APPLICATION_QUEUES else None


def _state(manager: QueueManager, queue: Queue) -> str:
    return queue.state(manager.outgoing.online).value if isinstance(queue, OutgoingQueue) else "LOCAL CONNECTION"


def _next_hops(manager: QueueManager, queue: Queue) -> list[str] | None:
    known = isinstance(queue, OutgoingQueue) and queue.state(manager.outgoing.online) in _HAVE_NEXT_HOPS
    return queue.next_hops if known and isinstance(queue, OutgoingQueue) else None


def _transfer(value_of: Callable[[OutgoingTransferInfo], Any]) -> Callable[[QueueManager, Queue], Any]:
    return lambda manager, queue: value_of(queue.transfer_info) if isinstance(queue, OutgoingQueue) else None


QUEUE: dict[str, Callable[[QueueManager, Queue], Any]] = {
    "path_name": _path_name,
    "format_name": _qualified_format_name,
    "type": _type,
    "location": lambda manager, queue: "REMOTE" if isinstance(queue, OutgoingQueue) else "LOCAL",
    "transactional": _transactional,
    "foreign": _foreign,
    "message_count": lambda manager, queue: len(queue),
    "bytes_in_queue": lambda manager, queue: queue.total_bytes,
    "journal_message_count": lambda manager, queue: 0 if (journal := _journal(queue)) is None else len(journal),
    "bytes_in_journal": lambda manager, queue: (
        0 if (journal := _journal(queue)) is None or not queue.properties.journaling else journal.total_bytes
    ),
    "state": _state,
    "next_hops": _next_hops,
    "eod_last_ack": _transfer(lambda info: info.eod_last_ack if info.eod_no_ack_count else None),
    "eod_last_ack_time": _transfer(lambda info: info.eod_last_ack_time),
    "eod_last_ack_count": _transfer(lambda info: info.eod_last_ack_count),
    "eod_first_non_ack": _transfer(lambda info: info.eod_first_non_ack),
    "eod_last_non_ack": _transfer(lambda info: info.eod_last_non_ack),
    "eod_next_seq": _transfer(lambda info: info.eod_next_seq),
    "eod_no_read_count": lambda manager, queue: (
        (0 if queue.journal is None else len(queue.journal)) if isinstance(queue, OutgoingQueue) else None
    ),
    "eod_no_ack_count": _transfer(lambda info: info.eod_no_ack_count),
    "eod_resend_time": _transfer(lambda info: info.eod_resend_time),
    "eod_resend_interval": _transfer(lambda info: info.eod_resend_interval),
    "eod_resend_count": _transfer(lambda info: info.eod_resend_count),
    "eod_source_info": lambda manager, queue: list(queue.incoming.values()),
    "connection_history": lambda manager, queue: (
        list(queue.connection_history) if isinstance(queue, OutgoingQueue) else None
    ),
    "subqueue_count": lambda manager, queue: len(subqueues(queue)),
    "subqueue_names": lambda manager, queue: subqueues(queue),
}
