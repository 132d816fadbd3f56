"""Open queues and cursors ([MS-MQDMPR] 3.1.7.1.1, 3.1.7.1.2, 3.1.7.1.5 and 3.1.7.1.6)."""

from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import suppress
from typing import Final

from openmsmq.model import names
from openmsmq.model.constants import Access, Share
from openmsmq.model.errors import (
    HResult,
    IllegalFormatName,
    InvalidHandle,
    MsmqError,
    QueueDeleted,
    QueueNotFound,
    SharingViolation,
)
from openmsmq.queueing.auditing import Auditor, AuditRecord
from openmsmq.queueing.authorization import Authorization, Caller, Right, is_administrative
from openmsmq.queueing.descriptors import Charge, OpenQueueDescriptor, QueueCursor, RemoteReadState
from openmsmq.queueing.message_locks import MessageLocks
from openmsmq.queueing.outgoing import OutgoingQueues
from openmsmq.queueing.outgoing_queues import OutgoingQueue, can_go_out
from openmsmq.queueing.queue import APPLICATION_QUEUES, Queue
from openmsmq.queueing.reading import ReadOperations
from openmsmq.queueing.registry import Registry, not_here

_RIGHTS: Final = {
    Access.RECEIVE: Right.RECEIVE,
    Access.PEEK: Right.PEEK,
    Access.SEND: Right.SEND,
    Access.MOVE: Right.MOVE,
    Access.RECEIVE_ADMIN: Right.READ_OUTGOING,
    Access.PEEK_ADMIN: Right.READ_OUTGOING,
}
_FIRST_HANDLE = 0x100  # above the reserved cursor value 0x0000000b of [MS-MQMP] 3.1.4.19
_SENDERS_SHARE = "share mode DENY_RECEIVE is not allowed with send access"
_PARTS_OF_PATHS = ("private$", "system$")  # first component if the computer name was forgotten
_DESTRUCTIVE = (Access.RECEIVE, Access.RECEIVE_ADMIN)
_ADMIN = (Access.RECEIVE_ADMIN, Access.PEEK_ADMIN)


class Handles:
    """Creates and closes OpenQueueDescriptors and their cursors; enforces the sharing rules."""

    def __init__(
        self,
        registry: Registry,
        authorization: Authorization,
        outgoing: OutgoingQueues,
        reading: ReadOperations,
        holds: MessageLocks,
        clock: Callable[[], int],
        random: Callable[[int], bytes],
        auditor: Auditor,
    ) -> None:
        self._registry: Final = registry
        self._authorization: Final = authorization
        self._outgoing: Final = outgoing
        self._reading: Final = reading
        self._holds: Final = holds
        self._clock: Final = clock
        self._random: Final = random
        self._auditor: Final = auditor
        self.descriptors: dict[int, OpenQueueDescriptor] = {}

    def descriptor(self, handle: int) -> OpenQueueDescriptor:
        """Return the open queue descriptor of a handle value. Raises InvalidHandle."""
        try:
            return self.descriptors[handle]
        except KeyError:
            raise InvalidHandle(detail=f"no open queue has the handle {handle:#x}") from None

    def unused_handle(self, used: Container[int]) -> int:
        """Return a random unused DWORD as the handle of an open queue or a cursor. Random, so that handles of others
        cannot be guessed."""
        while True:
            handle = int.from_bytes(self._random(4), "little")
            if handle >= _FIRST_HANDLE and handle not in used:
                return handle

    # -- opening -----------------------------------------------------------------------------------------------

    def open_queue(
        self, format_name: names.FormatName, access: Access, share: Share, caller: Caller, owner: object = None
    ) -> OpenQueueDescriptor:
        """Open Queue, [MS-MQDMPR] 3.1.7.1.5. Opening a subqueue of an existing queue creates it.

        Raises QueueNotFound, SharingViolation, AccessDenied, or MsmqError for an operation that the format name does
        not support or that only another machine could do.
        """
        if isinstance(format_name, names.MultipleElementFormatName):
            return self._open_multiple(format_name, access, share, caller, owner)
        queue = self.permitted(format_name, access, share, caller) or self._made(format_name)
        if isinstance(queue, OutgoingQueue):
            queue.touched = True
        handle = self.unused_handle(self.descriptors)
        descriptor = OpenQueueDescriptor(
            handle, format_name, access, share, queue, owner, opener=caller.actor, opened=self._clock()
        )
        _count(queue, descriptor, 1)
        self.descriptors[descriptor.handle] = descriptor
        return descriptor

    def permitted(self, name: names.SingleFormatName, access: Access, share: Share, caller: Caller) -> Queue | None:
        """Check that a caller may open a queue, and return it without opening it; None if opening would create it.
        Raises as `open_queue`."""
        _check_operation(name, access, share)
        queue = self._permitted(name, access, caller)
        if queue is not None:
            _check_sharing(queue, access, share)
        return queue

    def _permitted(self, name: names.SingleFormatName, access: Access, caller: Caller) -> Queue | None:
        if access in _ADMIN:  # the outgoing queue, never the destination
            outgoing = self._registry.outgoing_queue(name)
            if outgoing is None:
                raise QueueNotFound(detail=f"there is no outgoing queue for {name}")
            self._authorization.authorize(caller, outgoing, Right.READ_OUTGOING)
            return outgoing
        queue = self._registry.local_queue(name)
        if access is Access.SEND and _is_read_only(name, queue):
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, f"{name} can't be opened for sending")
        if access is Access.MOVE and queue is not None and not queue.is_destination:
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, f"{name} cannot be the target of a move")
        if queue is not None:
            self._authorization.authorize(caller, queue, _RIGHTS[access])
            return queue
        parent = self._registry.parent_of(name)
        if parent is not None:
            self._authorization.authorize(caller, parent, _RIGHTS[access])  # deviation D-65: the parent's descriptor
            return None
        if access is not Access.SEND or self._registry.is_local(name):
            raise QueueNotFound(detail=str(name))
        connector = self._registry.connector_for(name)
        if connector is not None:
            self._authorization.authorize(caller, connector, Right.SEND)
            return connector
        if not can_go_out(name) and not self._known_elsewhere(name):
            raise not_here(name)
        return self._registry.outgoing_queue(name)

    def _known_elsewhere(self, name: names.SingleFormatName) -> bool:
        """Whether the name is that of a public queue on another machine, as known from the directory or an earlier
        opening. Raises MsmqError for an unknown public queue."""
        if not isinstance(name, names.PublicFormatName):
            return False
        if name.suffix is not names.Suffix.NONE or (
            self._registry.place_of(name) is None and self._registry.outgoing_queue(name) is None
        ):
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
                f"{name}: the directory does not have the location of this queue",
            )
        return True

    def _made(self, name: names.SingleFormatName) -> Queue:
        """Create and return a subqueue or outgoing queue that is being opened. Raises InsufficientResources,
        MessageStorageFailed."""
        parent = self._registry.parent_of(name)
        if parent is not None and isinstance(name, names.DirectFormatName):
            return self._registry.subqueue(parent, name.subqueue)  # deviation D-63
        return self._outgoing.outgoing_for(name)

    def grants_reading(self, name: names.FormatName, caller: Caller) -> bool:
        """Whether a queue of this machine may be peeked at or received from by `caller`."""
        queue = self._registry.local_queue(name) or self._registry.parent_of(name)
        if queue is None:
            return False
        return any(self._authorization.allows(caller, queue, right) for right in (Right.PEEK, Right.RECEIVE))

    def hand_out(self, descriptor: OpenQueueDescriptor) -> None:
        """Mark a descriptor as opened for remote reading: the client passes its handle to another queue manager, which
        may use it once (deviation D-71)."""
        descriptor.remote_read_state = RemoteReadState.OPENED

    def _open_multiple(
        self, format_name: names.MultipleElementFormatName, access: Access, share: Share, caller: Caller, owner: object
    ) -> OpenQueueDescriptor:
        if access is not Access.SEND:
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, "a multiple-element format name is for sending only"
            )
        if share is not Share.DENY_NONE:
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, _SENDERS_SHARE)
        handle = self.unused_handle(self.descriptors)
        descriptor = OpenQueueDescriptor(handle, format_name, access, share, None, owner)
        seen: set[str] = set()
        for element in format_name.elements:
            if str(element).lower() in seen:
                continue
            seen.add(str(element).lower())
            try:
                descriptor.parts.append(self.open_queue(element, access, share, caller, owner))
            except MsmqError:
                self.close_queue(descriptor)
                raise
        descriptor.name = ",".join(part.name for part in descriptor.parts)  # without duplicates, 3.1.7.3.8
        self.descriptors[descriptor.handle] = descriptor
        return descriptor

    # -- closing -----------------------------------------------------------------------------------------------

    def close_queue(self, descriptor: OpenQueueDescriptor) -> None:
        """Close Queue, [MS-MQDMPR] 3.1.7.1.6: cancels waiting reads and puts back two-phase reads."""
        self.descriptors.pop(descriptor.handle, None)
        for part in descriptor.parts:
            self.close_queue(part)
        for cursor in list(descriptor.cursors.values()):
            self.close_cursor(cursor)
        queue = descriptor.queue
        if queue is None:
            return
        _count(queue, descriptor, -1)
        taken = descriptor.taken - len(descriptor.held)  # held messages are put back
        if taken and descriptor.opener is not None and is_administrative(queue):
            name = queue.properties.path_name
            with suppress(MsmqError):  # the messages are gone already
                self._auditor.record(AuditRecord(descriptor.opener, "messages.receive", "queue", name, count=taken))
        for reader in list(descriptor.waiting.values()):
            self._reading.cancel(reader)  # D-245
        descriptor.queue = None
        for key in sorted(descriptor.held):
            lock = queue.locked.get(key)
            if lock is not None and lock.owner is descriptor:
                self._holds.release(queue, key)
        descriptor.held.clear()
        self._registry.drop_unused(queue)

    def detach(self, queue: Queue) -> None:
        """Detach the open descriptors of a deleted queue."""
        if queue.openers:
            for descriptor in self.descriptors.values():
                if descriptor.queue is queue:
                    descriptor.queue = None

    # -- cursors -----------------------------------------------------------------------------------------------

    def open_cursor(self, descriptor: OpenQueueDescriptor, charge: Charge | None = None) -> QueueCursor:
        """Open Cursor, [MS-MQDMPR] 3.1.7.1.1. Raises QueueDeleted, MsmqError if the queue is open for sending or
        moving, and the errors of `charge` if the client has too many cursors."""
        if descriptor.access in (Access.SEND, Access.MOVE):
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, f"{descriptor.name}: a cursor needs peek or receive access")
        if descriptor.queue is None:
            raise QueueDeleted(detail=descriptor.name)
        if charge is not None:
            charge(1)
        cursor = QueueCursor(self.unused_handle(descriptor.cursors), descriptor, charge=charge)
        descriptor.cursors[cursor.handle] = cursor
        return cursor

    def close_cursor(self, cursor: QueueCursor) -> None:
        """Close Cursor, 3.1.7.1.2; cancels its waiting reads."""
        for reader in [r for r in cursor.descriptor.waiting.values() if r.cursor is cursor]:
            self._reading.cancel(reader)
        if cursor.descriptor.cursors.pop(cursor.handle, None) is not None and cursor.charge is not None:
            cursor.charge(-1)


def _count(queue: Queue, descriptor: OpenQueueDescriptor, by: int) -> None:
    """Count the opening (1) or closing (-1) of a descriptor."""
    queue.openers += by
    if descriptor.share is Share.DENY_RECEIVE_SHARE:
        if descriptor.destructive:
            queue.exclusive_receivers += by
        else:
            queue.exclusive_peekers += by
    if descriptor.destructive:
        queue.receivers += by


def _is_read_only(name: names.SingleFormatName, queue: Queue | None) -> bool:
    if queue is not None:
        return queue.kind not in APPLICATION_QUEUES
    read_only = getattr(name, "suffix", names.Suffix.NONE) in names.READ_ONLY
    return read_only or isinstance(name, names.ConnectorFormatName)


def _check_operation(name: names.SingleFormatName, access: Access, share: Share) -> None:
    sending = access is Access.SEND
    if sending and share is not Share.DENY_NONE:
        raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, _SENDERS_SHARE)
    if isinstance(name, names.DirectFormatName):
        _check_host(name)
    if isinstance(name, names.DistributionListFormatName):
        raise MsmqError(HResult.MQ_ERROR_NO_DS, f"{name}: no directory to resolve a distribution list")
    if isinstance(name, names.MulticastFormatName):
        raise MsmqError(  # deviation D-103
            HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
            f"{name}: this server neither sends nor receives multicast",
        )
    is_http = isinstance(name, names.DirectFormatName) and name.is_http
    wrong = (
        is_http and not sending,
        isinstance(name, names.MachineFormatName) and sending,
        isinstance(name, names.DirectFormatName) and bool(name.subqueue) and sending,
    )
    if any(wrong):
        raise MsmqError(
            HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, f"{name} can't be opened with {access.name} access"
        )


def _check_sharing(queue: Queue, access: Access, share: Share) -> None:
    """Enforce the sharing rules at the end of 3.1.7.1.5. Raises SharingViolation."""
    denies, receives = share is Share.DENY_RECEIVE_SHARE, access in _DESTRUCTIVE
    violated = (
        (queue.exclusive_receivers and (denies or receives))
        or (queue.exclusive_peekers and receives)
        or (queue.receivers and denies)
    )
    if violated:
        raise SharingViolation(
            detail=f"{queue.properties.path_name} is already open, and either that handle or this one denies other "
            "receivers"
        )


def _check_host(name: names.DirectFormatName) -> None:
    """Raises IllegalFormatName for an invalid host, because messages for it would wait until they expire (deviation
    D-27 from [MS-MQMQ] 2.1.2)."""
    if name.protocol.upper() == "TCP" and names.parse_address(name.host) is None:
        raise IllegalFormatName(
            detail=f"{name}: {name.host!r} is no IP address; for a computer name write DIRECT=OS:{name.host}\\..."
        )
    if name.host.lower() in _PARTS_OF_PATHS:
        raise IllegalFormatName(
            detail=f"{name}: {name.host!r} is not a computer; a queue of this machine is DIRECT=OS:.\\{name.host}\\..."
        )
