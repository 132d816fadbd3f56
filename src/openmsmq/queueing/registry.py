"""Every queue by number, name and format name, and its definition in the log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final
from uuid import UUID

from openmsmq.model import names
from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import HResult, InsufficientResources, MsmqError, QueueNotFound
from openmsmq.model.security import owner_in
from openmsmq.model.shares import Shares
from openmsmq.queueing.locations import QueueLocation, QueueLocations
from openmsmq.queueing.machine import Machine
from openmsmq.queueing.outgoing_queues import ConnectorQueue, OutgoingQueue, foreign_host, path_name_of
from openmsmq.queueing.properties import QueueProperties, of_private_queue
from openmsmq.queueing.queue import (
    APPLICATION_QUEUES,
    SYSTEM_DEADLETTER,
    SYSTEM_DEADXACT,
    SYSTEM_JOURNAL,
    HeldBytes,
    Queue,
    QueueKind,
)
from openmsmq.queueing.records import decode_all_properties, encode_properties
from openmsmq.queueing.storage import MessageStore, storing
from openmsmq.store import Drop, Operation, Put, StoreFull

ANSWERS_OF_HOST: Final = 64  # maximum number of outgoing queues for answers to one host
JOURNAL_BIT: Final = 0x80000000  # number of a queue's journal = number of the queue with this bit
# Private format names with low numbers denote queues of the queue manager itself: 3 is notify_queue$, 4 order_queue$
# ([MS-MQCN] 1.9, [MS-MQQB] 2.2.4).
FIRST_QUEUE_NUMBER, LAST_QUEUE_NUMBER = 0x10, 0x7FFFFF00
# Definitions in the log: prefix and queue number, with these values.
QUEUE_PREFIX = b"queue/"  # properties of a private queue
PUBLIC_PREFIX = b"public/"  # properties of a public queue
CONNECTOR_PREFIX = b"connector/"  # properties of a connector queue
_DESCRIBED: Final = (QUEUE_PREFIX, PUBLIC_PREFIX, CONNECTOR_PREFIX)
OUTGOING_PREFIX = b"outgoing/"  # format name of an outgoing queue
ANSWERS_PREFIX = b"answers/"  # `OutgoingQueue.charged_to`, unless it is empty
SUBQUEUE_PREFIX = b"subqueue/"  # number of the parent and name of a subqueue
_LAST_NUMBER = b"last-queue-number"


class Registry:
    """All queues. Methods that create or drop one write its definition first; they raise MessageStorageFailed (disk
    full) with nothing changed."""

    def __init__(self, machine: Machine, store: MessageStore) -> None:
        self.machine = machine
        self._store = store
        self.queues: dict[int, Queue] = {}
        self.held: Final = HeldBytes()
        self.by_name: dict[str, Queue] = {}  # private queues by lower-case name
        self.public: dict[UUID, Queue] = {}  # public queues of this machine by Queue.Identifier
        self.public_by_name: dict[str, Queue] = {}  # by lower-case name
        self._places: Final = QueueLocations()
        self.outgoing: dict[str, OutgoingQueue] = {}  # by lower-case format name
        most_answers = max(1, machine.limits.max_outgoing_queues // 4)
        self._answers: Final[Shares[str]] = Shares(most_answers, min(ANSWERS_OF_HOST, most_answers))
        self.connectors: dict[names.FormatName, ConnectorQueue] = {}
        self._foreign_machines: dict[str, ConnectorQueue] = {}  # by lower-case name or address
        self.gone: dict[QueueKind, tuple[int, int]] = {}  # `came` and `left` of deleted queues
        self._owned: Counter[bytes] | None = None  # number of application queues by the SID of their owner
        self.system_journal = self._system_queue(SYSTEM_JOURNAL, "journal", machine.journal_quota)
        self.dead_letters = self._system_queue(SYSTEM_DEADLETTER, "deadletter", INFINITE)
        self.transactional_dead_letters = self._system_queue(SYSTEM_DEADXACT, "deadxact", INFINITE)

    def _system_queue(self, number: int, name: str, quota: int) -> Queue:
        path_name = f"{self.machine.computer_name}\\system$;{name}"
        properties = QueueProperties(path_name, quota=quota, transactional=number == SYSTEM_DEADXACT)
        queue = Queue(number, QueueKind.SYSTEM, properties, self._store.read)
        self._add(queue)
        return queue

    def _add(self, queue: Queue) -> None:
        """Add an empty queue."""
        queue.held = self.held
        self.queues[queue.number] = queue

    def _remove(self, queue: Queue) -> None:
        self.held.bytes -= queue.total_bytes
        queue.held = HeldBytes()
        del self.queues[queue.number]

    def recover(self) -> None:
        """Register the queues defined in the log, without messages."""
        definitions = self._store.definitions
        described = [name for name in definitions if name.startswith(_DESCRIBED)]
        descriptions = decode_all_properties(definitions[name] for name in described)
        for name, properties in zip(described, descriptions, strict=True):
            properties = _renamed(properties, self.machine.computer_name)
            if name.startswith(CONNECTOR_PREFIX):
                self._add_connector(_number_in(name), properties)
            else:
                kind = QueueKind.PRIVATE if name.startswith(QUEUE_PREFIX) else QueueKind.PUBLIC
                if kind is QueueKind.PRIVATE and properties.base_priority:  # earlier versions stored one
                    properties = of_private_queue(properties)
                self._add_application(_number_in(name), kind, properties)
        for name, value in definitions.items():
            if name.startswith(OUTGOING_PREFIX):
                parsed = names.parse_format_name(value.decode())
                assert not isinstance(parsed, names.MultipleElementFormatName)
                number = _number_in(name)
                charged_to = definitions.get(ANSWERS_PREFIX + b"%d" % number, b"")
                self._add_outgoing(number, parsed, charged_to.decode())
        for name, value in definitions.items():
            if name.startswith(SUBQUEUE_PREFIX):
                parent, own_name = json.loads(value)
                if parent in self.queues:
                    self._add_subqueue(_number_in(name), self.queues[parent], own_name)

    # -- finding -----------------------------------------------------------------------------------------------

    def local_queue(self, name: names.FormatName) -> Queue | None:
        """Return the local queue of a format name; None if there is none. Whether the name is local: `is_local`."""
        match name:
            case names.PublicFormatName(guid=guid, suffix=suffix):
                return self._suffixed(self.public.get(guid), suffix)
            case names.PrivateFormatName(guid=guid, number=number, suffix=suffix):
                if not self.machine.has_identifier(guid.bytes_le):
                    return None
                queue = self.queues.get(number)
                private = queue is not None and queue.kind is QueueKind.PRIVATE
                return self._suffixed(queue if private else None, suffix)
            case names.MachineFormatName(guid=guid, suffix=suffix):
                return self.system_queue(suffix) if self.machine.has_identifier(guid.bytes_le) else None
            case names.DirectFormatName(path=path, suffix=suffix, subqueue=subqueue):
                if not self.machine.is_local(name.host):
                    return None
                if path.lower() == "system$":
                    return self.system_queue(suffix)
                kind, _, queue_name = path.rpartition("\\")
                if kind.lower() not in ("", "private$"):
                    return None
                queue = (self.by_name if kind else self.public_by_name).get(queue_name.lower())
                if subqueue:
                    return queue.subqueues.get(subqueue.lower()) if queue is not None else None
                return self._suffixed(queue, suffix)
            case names.ConnectorFormatName():
                return self.connectors.get(name)
        return None

    def outgoing_queue(self, name: names.FormatName) -> OutgoingQueue | None:
        """Return the outgoing queue for a format name, or None."""
        return self.outgoing.get(str(name).lower())

    def is_local(self, name: names.FormatName) -> bool:
        """Whether a format name denotes a queue of this machine, existing or not."""
        match name:
            case names.PrivateFormatName(guid=guid) | names.MachineFormatName(guid=guid):
                return self.machine.has_identifier(guid.bytes_le)
            case names.PublicFormatName(guid=guid):
                return guid in self.public
            case names.DirectFormatName():
                return self.machine.is_local(name.host)
            case names.ConnectorFormatName():
                return name in self.connectors
        return False

    def queue_for_path_name(self, path: names.PathName) -> Queue | None:
        """Return the private or public queue of this machine with a path name, or None."""
        if not self.machine.is_local(path.computer) or path.kind == "system" or path.subqueue:
            return None
        return (self.by_name if path.kind == "private" else self.public_by_name).get(path.name.lower())

    def place_of(self, name: names.FormatName) -> QueueLocation | None:
        """Return the location of a public queue of another machine if it is cached, else None."""
        return self._places.of(name)

    def remember_place(self, guid: UUID, place: QueueLocation) -> None:
        """Cache the location of a public queue that the directory reported, so that outgoing queues for it may be
        created."""
        self._places.remember(guid, place)
        outgoing = self.outgoing_queue(names.PublicFormatName(guid))
        if outgoing is not None:
            outgoing.properties = outgoing.properties._replace(
                path_name=place.path_name, base_priority=place.base_priority
            )

    def connector_for(self, name: names.FormatName) -> ConnectorQueue | None:
        """Return the connector queue for messages to a queue of a foreign machine, or None."""
        return self._foreign_machines.get(foreign_host(name))

    def system_queue(self, suffix: names.Suffix) -> Queue | None:
        """Return the system queue of a suffix: JOURNAL, DEADLETTER or DEADXACT; None for others."""
        return {
            names.Suffix.JOURNAL: self.system_journal,
            names.Suffix.DEADLETTER: self.dead_letters,
            names.Suffix.DEADXACT: self.transactional_dead_letters,
        }.get(suffix)

    @staticmethod
    def _suffixed(queue: Queue | None, suffix: names.Suffix) -> Queue | None:
        return queue.journal if queue is not None and suffix is names.Suffix.JOURNAL else queue

    def queue_for(self, format_name: names.FormatName) -> Queue:
        """Return the local queue of a format name. Raises QueueNotFound, or MsmqError for a queue of another
        machine."""
        queue = self.local_queue(format_name)
        if queue is None:
            if not isinstance(format_name, names.MultipleElementFormatName) and not self.is_local(format_name):
                raise MsmqError(
                    HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, f"{format_name} is not a queue of this machine"
                )
            raise QueueNotFound(detail=str(format_name))
        return queue

    def administered(self, name: names.FormatName) -> Queue:
        """Return the queue that an administrator addresses: for a format name of another machine its outgoing queue.
        Raises QueueNotFound."""
        queue = self.outgoing_queue(name)
        if queue is not None:
            return queue
        if isinstance(name, names.MultipleElementFormatName) or not self.is_local(name):
            raise QueueNotFound(detail=f"there is no outgoing queue for {name}")
        return self.queue_for(name)

    def parent_of(self, format_name: names.FormatName) -> Queue | None:
        """Return the local queue whose subqueue a direct format name denotes; None for any other name."""
        if not isinstance(format_name, names.DirectFormatName) or not format_name.subqueue:
            return None
        return self.local_queue(replace(format_name, suffix=names.Suffix.NONE, subqueue=""))

    def format_name(
        self, queue: Queue, suffix: names.Suffix = names.Suffix.NONE
    ) -> names.PrivateFormatName | names.PublicFormatName:
        """Return the private or public format name of an application queue."""
        if queue.kind is QueueKind.PUBLIC:
            return names.PublicFormatName(UUID(bytes_le=queue.properties.instance), suffix)
        return names.PrivateFormatName(UUID(bytes_le=self.machine.identifier), queue.number, suffix)

    @property
    def application_queues(self) -> int:
        """Number of private and public queues."""
        return len(self.by_name) + len(self.public)

    def owned_by(self, sid: bytes) -> int:
        """Return the number of private and public queues of an owner (a binary SID)."""
        if self._owned is None:  # counted on first use, to keep the start fast
            queues = (*self.by_name.values(), *self.public.values())
            self._owned = Counter(owner_in(queue.properties.security) for queue in queues)
        return self._owned[sid]

    # -- creating and dropping ---------------------------------------------------------------------------------

    def create(self, properties: QueueProperties, kind: QueueKind = QueueKind.PRIVATE) -> Queue:
        """Create a private or public queue with its journal."""
        number = self._define(_PREFIXES[kind], encode_properties(properties))
        return self._add_application(number, kind, properties)

    def subqueue(self, parent: Queue, name: str) -> Queue:
        """Return a subqueue of `parent`; create it if needed."""
        existing = parent.subqueues.get(name.lower())
        if existing is not None:
            return existing
        number = self._define(SUBQUEUE_PREFIX, json.dumps([parent.number, name]).encode())
        return self._add_subqueue(number, parent, name)

    def create_outgoing(self, name: names.SingleFormatName, charged_to: str = "") -> OutgoingQueue:
        """Create an outgoing queue. Also raises InsufficientResources: random names must not fill memory and log, and
        answers to other hosts must leave room for local programs."""
        maximum = self.machine.limits.max_outgoing_queues
        remedy = "unused ones are deleted within ten minutes, `openmsmq outgoing delete` removes others"
        if len(self.outgoing) >= maximum:
            raise InsufficientResources(
                detail=f"there are {maximum} outgoing queues, which is the limit (max_outgoing_queues); {remedy}"
            )
        if charged_to and not self._answers.has_room(charged_to):
            raise InsufficientResources(
                detail=f"there are {self._answers.of(charged_to)} outgoing queues for answers to {charged_to}, at most "
                f"{self._answers.each}, and {self._answers.held} for answers to unknown hosts, at most "
                f"{self._answers.total} (25% of max_outgoing_queues); {remedy}"
            )
        also = [(ANSWERS_PREFIX, charged_to.encode())] if charged_to else []
        return self._add_outgoing(self._define(OUTGOING_PREFIX, str(name).encode(), also), name, charged_to)

    def create_connector(self, properties: QueueProperties) -> ConnectorQueue:
        """Create a connector queue, whose path name is its format name."""
        return self._add_connector(self._define(CONNECTOR_PREFIX, encode_properties(properties)), properties)

    def update(self, queue: Queue, properties: QueueProperties) -> None:
        """Change the properties of an application or connector queue, and accordingly those of its subqueues and the
        quota of its journal."""
        with storing():
            self._store.append([Put(_definition(queue), encode_properties(properties))])
        if queue.kind in APPLICATION_QUEUES:  # an administrator of the directory may rename a public queue
            self._forget_names(queue)
            queue.properties = properties
            self._note_names(queue)
        else:
            queue.properties = properties
        if queue.journal is not None:
            queue.journal.properties = _of_journal(properties)
        for subqueue in queue.subqueues.values():
            subqueue.properties = _of_subqueue(properties, subqueue.name)

    def drop(self, queue: Queue, also: Iterable[Operation] = ()) -> None:
        """Delete an application queue with its journal and subqueues, an outgoing queue or a connector queue. `also`
        joins the batch."""
        with storing():
            subqueues = [Drop(_definition(subqueue)) for subqueue in queue.subqueues.values()]
            charge = []
            if isinstance(queue, OutgoingQueue) and queue.charged_to:
                charge.append(Drop(ANSWERS_PREFIX + b"%d" % queue.number))
            self._store.append([Drop(_definition(queue)), *subqueues, *charge, *also])
        if isinstance(queue, OutgoingQueue):
            del self.outgoing[str(queue.destination).lower()]
            if queue.charged_to:
                self._answers.give_back(queue.charged_to)
        elif isinstance(queue, ConnectorQueue):
            del self.connectors[queue.format_name]
        else:
            self._forget_names(queue)
        for member in self.family(queue):
            self._remember(member)
            member.deleted = True
            self._remove(member)

    def drop_unused(self, queue: Queue) -> None:
        """Delete a subqueue if it is empty, not open, and has no consumer group."""
        if queue.kind is not QueueKind.SUBQUEUE or queue.deleted:
            return
        if queue.entries or queue.openers or queue.pins:
            return
        assert queue.parent is not None
        with suppress(StoreFull):  # the next start drops empty subqueues in the log
            self._store.append([Drop(_definition(queue))])
        queue.deleted = True
        self._remember(queue)
        self._remove(queue)
        del queue.parent.subqueues[queue.name.lower()]

    def _remember(self, queue: Queue) -> None:
        """Keep the counts of a deleted queue, so that sums over all queues do not decrease."""
        came, left = self.gone.get(queue.kind, (0, 0))
        self.gone[queue.kind] = (came + queue.came, left + queue.left)

    def route(self, machines: Iterable[str], queue: ConnectorQueue) -> None:
        """Route messages for these machines through a connector queue."""
        self._foreign_machines.update(dict.fromkeys((machine.lower() for machine in machines), queue))

    @staticmethod
    def family(queue: Queue) -> list[Queue]:
        """Return an application queue with its subqueues and journal, or an outgoing queue with the queue of its
        messages that await their final acknowledgment."""
        return [queue, *queue.subqueues.values(), *([queue.journal] if queue.journal is not None else [])]

    # -- tables and definitions --------------------------------------------------------------------------------

    def _define(self, prefix: bytes, value: bytes, also: Iterable[tuple[bytes, bytes]] = ()) -> int:
        """Write the definition of a new queue, and the definitions `also` (prefix, value). Returns the number of the
        queue. Numbers are never reused, so that messages of a deleted queue cannot appear in a new one. Raises
        InsufficientResources if no number is left."""
        number = max(int(self._store.definitions.get(_LAST_NUMBER, b"0")) + 1, FIRST_QUEUE_NUMBER)
        if number > LAST_QUEUE_NUMBER:
            raise InsufficientResources(detail=f"all {LAST_QUEUE_NUMBER} queue numbers are used up")
        with storing():
            definitions = [(prefix, value), *also]
            puts = [Put(each + str(number).encode(), said) for each, said in definitions]
            self._store.append([*puts, Put(_LAST_NUMBER, str(number).encode())])
        return number

    def _add_application(self, number: int, kind: QueueKind, properties: QueueProperties) -> Queue:
        journal = Queue(number | JOURNAL_BIT, QueueKind.JOURNAL, _of_journal(properties), self._store.read)
        queue = Queue(number, kind, properties, self._store.read, journal)
        journal.owner = queue
        self._add(queue)
        self._add(journal)
        self._note_names(queue)
        return queue

    def _note_names(self, queue: Queue) -> None:
        """Register the names of an application queue, and count it for its owner."""
        by_name = self.by_name if queue.kind is QueueKind.PRIVATE else self.public_by_name
        by_name[queue.name.lower()] = queue
        if queue.kind is QueueKind.PUBLIC:
            self.public[UUID(bytes_le=queue.properties.instance)] = queue
        self._count_owner(queue.properties, 1)

    def _forget_names(self, queue: Queue) -> None:
        by_name = self.by_name if queue.kind is QueueKind.PRIVATE else self.public_by_name
        del by_name[queue.name.lower()]
        if queue.kind is QueueKind.PUBLIC:
            del self.public[UUID(bytes_le=queue.properties.instance)]
        self._count_owner(queue.properties, -1)

    def _add_subqueue(self, number: int, parent: Queue, name: str) -> Queue:
        """Add a subqueue with its parent's properties, except name and messages. Journal (D-64) and quota are the
        parent's."""
        properties = _of_subqueue(parent.properties, name)
        queue = Queue(number, QueueKind.SUBQUEUE, properties, self._store.read, parent.journal, parent)
        self._add(queue)
        parent.subqueues[name.lower()] = queue
        return queue

    def _add_outgoing(self, number: int, name: names.SingleFormatName, charged_to: str = "") -> OutgoingQueue:
        place = self.place_of(name) or QueueLocation(path_name_of(name) or str(name))
        properties = QueueProperties(place.path_name, label=str(name), base_priority=place.base_priority)
        awaiting = Queue(number | JOURNAL_BIT, QueueKind.AWAITING, properties, self._store.read)
        queue = OutgoingQueue(number, properties, self._store.read, awaiting, name, charged_to)
        if charged_to:
            self._answers.charge(charged_to)
        self._add(queue)
        self._add(awaiting)
        self.outgoing[str(name).lower()] = queue
        return queue

    def _add_connector(self, number: int, properties: QueueProperties) -> ConnectorQueue:
        name = names.parse_format_name(properties.path_name)
        assert isinstance(name, names.ConnectorFormatName)
        queue = ConnectorQueue(number, properties, self._store.read, name)
        self._add(queue)
        self.connectors[name] = queue
        return queue

    def _count_owner(self, properties: QueueProperties, by: int) -> None:
        if self._owned is not None:
            self._owned[owner_in(properties.security)] += by


_PREFIXES: Final = {
    QueueKind.PRIVATE: QUEUE_PREFIX,
    QueueKind.PUBLIC: PUBLIC_PREFIX,
    QueueKind.SUBQUEUE: SUBQUEUE_PREFIX,
    QueueKind.OUTGOING: OUTGOING_PREFIX,
    QueueKind.CONNECTOR: CONNECTOR_PREFIX,
}


def _definition(queue: Queue) -> bytes:
    """Return the name of the definition that stores a queue."""
    return _PREFIXES[queue.kind] + str(queue.number).encode()


def _number_in(name: bytes) -> int:
    return int(name.rpartition(b"/")[2])


def _renamed(properties: QueueProperties, computer: str) -> QueueProperties:
    """Return the properties of a queue that may have been stored under an earlier name of this computer."""
    stored, separator, name = properties.path_name.partition("\\")
    if not separator or stored == computer or names.is_format_name(properties.path_name):
        return properties
    return properties._replace(path_name=f"{computer}\\{name}")


def _of_journal(owner: QueueProperties) -> QueueProperties:
    return QueueProperties(f"{owner.path_name};journal", quota=owner.journal_quota)


def _of_subqueue(parent: QueueProperties, name: str) -> QueueProperties:
    return parent._replace(path_name=f"{parent.path_name};{name}", quota=INFINITE)


def not_here(name: names.FormatName) -> MsmqError:
    """Return the error for a format name of another machine that gets no outgoing queue."""
    if isinstance(name, names.DirectFormatName) and name.is_http:
        problem = f"{name}: messages are not sent by HTTP (SRMP), only by DIRECT=OS: and DIRECT=TCP:"
        return MsmqError(HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, problem)
    return MsmqError(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, f"{name} is not on this machine")
