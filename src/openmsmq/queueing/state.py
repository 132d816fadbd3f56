"""What all events of the queue manager share: its queues, its store, numbering, timers, and serving of readers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID

from openmsmq.model import names
from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import HResult, IllegalFormatName, InsufficientResources, MsmqError
from openmsmq.model.lookup_id import lookup_id
from openmsmq.model.message import Message
from openmsmq.model.security import SecurityDescriptor, owner_in
from openmsmq.queueing.access import default_machine_security
from openmsmq.queueing.connectors import ConnectorQueue, ForeignSite, foreign_host
from openmsmq.queueing.limits import Limits
from openmsmq.queueing.outbox import Outbox, Outside
from openmsmq.queueing.outgoing import NoTransport, OutgoingQueue, Transport, path_name_of
from openmsmq.queueing.plan import new_identifier
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.queueing.stages import Stage
from openmsmq.queueing.storage import MessageStore
from openmsmq.queueing.timers import Timers
from openmsmq.store import Drop, Put, StoreFull

logger = logging.getLogger(__name__)

SEQUENCE_BLOCK = 1 << 16  # sequence numbers reserved in the store at a time, so that express ones need no record
JOURNAL_BIT = 0x80000000  # number of a queue's journal = number of the queue with this bit
SYSTEM_JOURNAL, SYSTEM_DEADLETTER, SYSTEM_DEADXACT = 0x7FFFFFF1, 0x7FFFFFF2, 0x7FFFFFF3
# Private format names with low numbers mean the queues of the queue manager itself: 3 is notify_queue$, 4 order_queue$
# ([MS-MQCN] 1.9, [MS-MQQB] 2.2.4).
FIRST_QUEUE_NUMBER, LAST_QUEUE_NUMBER = 0x10, 0x7FFFFF00
SUBQUEUE_PREFIX = b"subqueue/"
_LAST_NUMBER = b"last-queue-number"


@dataclass(frozen=True, slots=True)
class Machine:
    """Who this queue manager is. `addresses` are those by which DIRECT=TCP reaches it, besides loopback, as
    `str(ipaddress.ip_address(...))` has them; `aliases` are further computer names of it, in lower case: earlier ones,
    and those that were configured.

    Quotas are in kilobytes.
    """

    computer_name: str
    identifier: bytes
    qualified_name: str = ""
    addresses: frozenset[str] = frozenset()
    aliases: frozenset[str] = frozenset()
    quota: int = INFINITE
    journal_quota: int = INFINITE
    security: SecurityDescriptor | None = None
    default_time_to_reach_queue: int = 345600  # seconds, 4 days ([MS-MQDMPR] 3.1.1.12)
    foreign_sites: tuple[ForeignSite, ...] = ()
    limits: Limits = Limits()

    def is_local(self, host: str) -> bool:
        """Whether a computer name or address, in any spelling of it, means this machine."""
        host = host.lower()
        own = (".", "localhost", self.computer_name.lower(), self.qualified_name.lower())
        if host in own or host in self.aliases:
            return True
        address = names.parse_address(host)
        return address is not None and (address.is_loopback or str(address) in self.addresses)


class State:
    """Shared by the parts of the queue manager; see `manager.QueueManager` for its operations."""

    def __init__(self, machine: Machine, store: MessageStore, clock: Callable[[], int], outside: Outside) -> None:
        """`clock` returns milliseconds since 1970 UTC."""
        self.machine = machine
        self.store = store
        self.clock = clock
        self.outbox = Outbox(outside)
        self.security = machine.security or default_machine_security()
        self.queues: dict[int, Queue] = {}
        self.by_name: dict[str, Queue] = {}  # private queues by lower-case name
        self._owned: Counter[bytes] | None = None  # private queues by the SID of their owner
        self.outgoing: dict[str, OutgoingQueue] = {}  # by lower-case format name
        self.connectors: dict[names.FormatName, ConnectorQueue] = {}
        self.foreign_machines: dict[str, ConnectorQueue] = {}  # by lower-case name or address
        self.transport: Transport = NoTransport()
        self.online = True  # QueueManager.ConnectionActive
        self.sequence = store.high_key
        self._reserved = store.high_key
        # Of messages: lookup identifier, queue number.
        self.expiry: Timers[int] = Timers(self._is_present, self.outbox.deadline_changed)
        self.stages: dict[str, Stage] = {}  # by handle
        self.throttled = False  # Begin and End Flow Control, [MS-MQDMPR] 3.1.7.2.5 and 6: no message comes in
        self.discarded = 0  # copies and acknowledgments that found no room
        self.system_journal = self._system_queue(SYSTEM_JOURNAL, "journal", machine.journal_quota)
        self.dead_letters = self._system_queue(SYSTEM_DEADLETTER, "deadletter", INFINITE)
        self.transactional_dead_letters = self._system_queue(SYSTEM_DEADXACT, "deadxact", INFINITE)

    def _system_queue(self, number: int, name: str, quota: int) -> Queue:
        path_name = f"{self.machine.computer_name}\\system$;{name}"
        properties = QueueProperties(path_name, quota=quota, transactional=number == SYSTEM_DEADXACT)
        queue = Queue(number, QueueKind.SYSTEM, properties, self.store.read)
        self.queues[number] = queue
        return queue

    # -- queues ----------------------------------------------------------------------------------------------

    def register(self, number: int, properties: QueueProperties) -> Queue:
        """Make a private queue and its journal known."""
        journal_properties = QueueProperties(f"{properties.path_name};journal", quota=properties.journal_quota)
        journal = Queue(number | JOURNAL_BIT, QueueKind.JOURNAL, journal_properties, self.store.read)
        queue = Queue(number, QueueKind.PRIVATE, properties, self.store.read, journal)
        self.queues[number] = queue
        self.queues[journal.number] = journal
        self.by_name[names.parse_path_name(properties.path_name).name.lower()] = queue
        self._count_owner(properties, 1)
        return queue

    def _count_owner(self, properties: QueueProperties, by: int) -> None:
        if self._owned is not None:
            self._owned[owner_in(properties.security)] += by

    def register_subqueue(self, number: int, parent: Queue, name: str) -> Queue:
        """Make a subqueue known: as its parent in everything but name and messages. Journal (deviation D-64) and quota
        are the parent's."""
        properties = _of_subqueue(parent.properties, name)
        queue = Queue(number, QueueKind.SUBQUEUE, properties, self.store.read, parent.journal, parent=parent)
        self.queues[number] = parent.subqueues[name.lower()] = queue
        return queue

    def forget(self, queue: Queue) -> None:
        """A private queue is no more, nor its journal and subqueues."""
        del self.by_name[names.parse_path_name(queue.properties.path_name).name.lower()]
        self._count_owner(queue.properties, -1)
        for member in self.family(queue):
            member.deleted = True
            del self.queues[member.number]

    @staticmethod
    def family(queue: Queue) -> list[Queue]:
        """A private queue, its subqueues and its journal."""
        return [queue, *queue.subqueues.values(), *([queue.journal] if queue.journal is not None else [])]

    def forget_unused(self, queue: Queue) -> None:
        """A subqueue that is empty, not open and without consumer group goes by itself."""
        if queue.kind is not QueueKind.SUBQUEUE or queue.deleted:
            return
        if queue.entries or queue.descriptors or queue.pins:
            return
        assert queue.parent is not None
        with suppress(StoreFull):  # an empty subqueue in the log goes at the next start
            self.store.append([Drop(subqueue_definition(queue.number))])
        queue.deleted = True
        del self.queues[queue.number]
        del queue.parent.subqueues[queue.name.lower()]

    def register_outgoing(self, number: int, name: names.SingleFormatName) -> OutgoingQueue:
        """Make an outgoing queue known."""
        properties = QueueProperties(path_name_of(name) or str(name), label=str(name))
        queue = OutgoingQueue(number, QueueKind.OUTGOING, properties, self.store.read, destination=name)
        self.queues[number] = queue
        self.outgoing[str(name).lower()] = queue
        return queue

    def forget_outgoing(self, queue: OutgoingQueue) -> None:
        queue.deleted = True
        del self.queues[queue.number]
        del self.outgoing[str(queue.destination).lower()]

    def register_connector(self, number: int, properties: QueueProperties) -> ConnectorQueue:
        """Make a connector queue known; its path name is its format name."""
        name = names.parse_format_name(properties.path_name)
        assert isinstance(name, names.ConnectorFormatName)
        queue = ConnectorQueue(number, QueueKind.CONNECTOR, properties, self.store.read, format_name=name)
        self.queues[number] = self.connectors[name] = queue
        return queue

    def forget_connector(self, queue: ConnectorQueue) -> None:
        queue.deleted = True
        del self.queues[queue.number]
        del self.connectors[queue.format_name]

    def connector_for(self, name: names.FormatName) -> ConnectorQueue | None:
        """The connector queue through which messages for a queue of a foreign machine go, or None."""
        return self.foreign_machines.get(foreign_host(name))

    def update(self, queue: Queue, properties: QueueProperties) -> None:
        """Give a queue new properties, which its subqueues and its journal's quota follow."""
        if queue.kind is QueueKind.PRIVATE:
            self._count_owner(queue.properties, -1)
            self._count_owner(properties, 1)
        queue.properties = properties
        if queue.journal is not None:
            queue.journal.properties = replace(queue.journal.properties, quota=properties.journal_quota)
        for subqueue in queue.subqueues.values():
            subqueue.properties = _of_subqueue(properties, subqueue.name)

    def local_queue(self, name: names.FormatName) -> Queue | None:
        """The local queue a format name stands for, or None; see `is_local` for whose it is."""
        match name:
            case names.PrivateFormatName(guid=guid, number=number, suffix=suffix):
                if guid.bytes_le != self.machine.identifier:
                    return None
                queue = self.queues.get(number)
                private = queue is not None and queue.kind is QueueKind.PRIVATE
                return self._suffixed(queue if private else None, suffix)
            case names.MachineFormatName(guid=guid, suffix=suffix):
                return self.system_queue(suffix) if guid.bytes_le == self.machine.identifier else None
            case names.DirectFormatName(path=path, suffix=suffix, subqueue=subqueue):
                if not self.machine.is_local(name.host):
                    return None
                if path.lower() == "system$":
                    return self.system_queue(suffix)
                kind, _, queue_name = path.rpartition("\\")
                if kind.lower() != "private$":
                    return None
                queue = self.by_name.get(queue_name.lower())
                if subqueue:
                    return queue.subqueues.get(subqueue.lower()) if queue is not None else None
                return self._suffixed(queue, suffix)
            case names.ConnectorFormatName():
                return self.connectors.get(name)
        return None

    def outgoing_queue(self, name: names.FormatName) -> OutgoingQueue | None:
        """The outgoing queue for a format name, or None."""
        return self.outgoing.get(str(name).lower())

    def is_local(self, name: names.FormatName) -> bool:
        """Whether a format name speaks of this machine, whether or not the queue exists."""
        match name:
            case names.PrivateFormatName(guid=guid) | names.MachineFormatName(guid=guid):
                return guid.bytes_le == self.machine.identifier
            case names.DirectFormatName():
                return self.machine.is_local(name.host)
            case names.ConnectorFormatName():
                return name in self.connectors
        return False

    def local_queue_for_text(self, format_name: str) -> Queue | None:
        """As `local_queue`, for the text in a message; None for an empty, foreign or malformed one."""
        if not format_name:
            return None
        try:
            return self.local_queue(names.parse_format_name(format_name))
        except IllegalFormatName:
            return None

    def queue_for_path_name(self, path: names.PathName) -> Queue | None:
        if not self.machine.is_local(path.computer) or path.kind != "private" or path.subqueue:
            return None
        return self.by_name.get(path.name.lower())

    def owned_by(self, sid: bytes) -> int:
        """How many private queues have this owner (a SID in its binary form)."""
        if self._owned is None:  # nobody has asked before; a start with many queues need not look at each
            self._owned = Counter(owner_in(queue.properties.security) for queue in self.by_name.values())
        return self._owned[sid]

    def owner_of(self, journal: Queue) -> Queue:
        """The queue that a journal belongs to."""
        return self.queues[journal.number & ~JOURNAL_BIT]

    def private_format_name(self, queue: Queue) -> names.PrivateFormatName:
        return names.PrivateFormatName(UUID(bytes_le=self.machine.identifier), queue.number)

    def system_queue(self, suffix: names.Suffix) -> Queue | None:
        """The system queue of a suffix: JOURNAL, DEADLETTER or DEADXACT."""
        return {
            names.Suffix.JOURNAL: self.system_journal,
            names.Suffix.DEADLETTER: self.dead_letters,
            names.Suffix.DEADXACT: self.transactional_dead_letters,
        }.get(suffix)

    @staticmethod
    def _suffixed(queue: Queue | None, suffix: names.Suffix) -> Queue | None:
        return queue.journal if queue is not None and suffix is names.Suffix.JOURNAL else queue

    def _is_present(self, lookup_identifier: int, queue_number: int) -> bool:
        queue = self.queues.get(queue_number)
        return queue is not None and lookup_identifier in queue.entries

    # -- numbering -------------------------------------------------------------------------------------------

    def new_queue_number(self) -> tuple[int, Put]:
        """A number that no queue has or had: messages of a deleted queue must not appear in a new one. What comes
        with it goes into the batch that defines the queue."""
        number = max(int(self.store.definitions.get(_LAST_NUMBER, b"0")) + 1, FIRST_QUEUE_NUMBER)
        if number > LAST_QUEUE_NUMBER:
            raise InsufficientResources(detail=f"all {LAST_QUEUE_NUMBER} queue numbers are used up")
        return number, Put(_LAST_NUMBER, str(number).encode())

    def next_sequence(self) -> int:
        """The next SequentialID: rises over the whole queue manager, never reused, also after a restart."""
        return self.next_sequences(1)

    def next_sequences(self, count: int) -> int:
        """The first of so many that follow each other."""
        first = self.sequence + 1
        last = self.sequence + count
        if last > self._reserved:
            self.store.reserve(last + SEQUENCE_BLOCK)  # raises when the disk is full: then nothing is reserved
            self._reserved = last + SEQUENCE_BLOCK
        self.sequence = last
        return first

    def number(self, message: Message, queue: Queue) -> None:
        """Give a message its place in a queue: lookup identifier and arrival time.

        Deviation D-01 from [MS-MQDMPR] 3.1.7.1.9: the upper byte is 7 - Priority for every message; as written it would
        be for transactional ones only, which would not order by arrival within priority (3.1.1.2).
        """
        self._number(message, self.clock())

    def _number(self, message: Message, now: int) -> None:
        message.lookup_identifier = lookup_id(message.priority, self.next_sequence())
        message.arrival_time = now // 1000

    def stamp(self, message: Message, queue: Queue) -> None:
        """As `number`, and identity: identifier, source machine and time of sending."""
        now = self.clock()
        self._number(message, now)
        message.identifier = new_identifier(self.machine.identifier, message.sequence)
        message.source_machine_identifier = self.machine.identifier
        message.sent_time, message.sent_milliseconds = message.arrival_time, now % 1000

    # -- quotas ----------------------------------------------------------------------------------------------

    def staged_bytes(self, queue: Queue | None = None) -> int:
        """Bytes that are staged for a queue, or for all queues: they count for quotas as if they were there."""
        if queue is None:
            return sum(sum(stage.volume.values()) for stage in self.stages.values())
        return sum(stage.volume.get(queue.number, 0) for stage in self.stages.values())

    def has_room(self, size: int) -> bool:
        """Whether the machine quota allows so many bytes more."""
        if self.machine.quota == INFINITE:
            return True
        charged = sum(queue.total_bytes for queue in self.queues.values()) + self.staged_bytes()
        return charged + size <= self.machine.quota * 1024

    def note_discarded(self, queue: Queue, message: Message) -> None:
        self.discarded += 1
        logger.warning(
            "queue %s is over its quota: discarded a copy of message %s", queue.properties.path_name, message.id
        )


def subqueue_definition(number: int) -> bytes:
    """The name under which the store keeps a subqueue: the number of its parent and its own name."""
    return SUBQUEUE_PREFIX + str(number).encode()


def _of_subqueue(parent: QueueProperties, name: str) -> QueueProperties:
    return replace(parent, path_name=f"{parent.path_name};{name}", quota=INFINITE)


def not_here(name: names.FormatName) -> MsmqError:
    """The failure for a format name of another machine that gets no outgoing queue."""
    return MsmqError(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, f"{name} is not on this machine")
