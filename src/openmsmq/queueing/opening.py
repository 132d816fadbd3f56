"""Opening and closing queues ([MS-MQDMPR] 3.1.7.1.5 and 3.1.7.1.6)."""

from __future__ import annotations

from contextlib import suppress

from openmsmq.model import names
from openmsmq.model.constants import Access, MachineAccessMask, QueueAccessMask, Share
from openmsmq.model.errors import (
    AccessDenied,
    HResult,
    IllegalFormatName,
    MsmqError,
    QueueNotFound,
    SharingViolation,
)
from openmsmq.queueing.access import Caller, demand
from openmsmq.queueing.outgoing import can_go_out
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.queueing.readers import OpenQueueDescriptor, RemoteReadState
from openmsmq.queueing.state import not_here
from openmsmq.queueing.transferring import Transferring

# Open for whom: the right that an access mode demands, by kind of queue.
_OF_DESTINATION = {
    Access.RECEIVE: QueueAccessMask.RECEIVE_MESSAGE,
    Access.PEEK: QueueAccessMask.PEEK_MESSAGE,
    Access.SEND: QueueAccessMask.WRITE_MESSAGE,
    Access.MOVE: QueueAccessMask.RECEIVE_MESSAGE,  # whoever may take messages may put them aside
}
_QUEUE_RIGHTS = {
    QueueKind.PRIVATE: _OF_DESTINATION,
    QueueKind.SUBQUEUE: _OF_DESTINATION,
    QueueKind.JOURNAL: {
        Access.RECEIVE: QueueAccessMask.RECEIVE_JOURNAL_MESSAGE,
        Access.PEEK: QueueAccessMask.PEEK_MESSAGE,
    },
    QueueKind.CONNECTOR: _OF_DESTINATION,
}

_SENDERS_SHARE = "share mode DENY_RECEIVE is not allowed with send access"
_PARTS_OF_PATHS = ("private$", "system$")  # what stands first where somebody forgot the computer
_DESTRUCTIVE = (Access.RECEIVE, Access.RECEIVE_ADMIN)
_ADMIN = (Access.RECEIVE_ADMIN, Access.PEEK_ADMIN)


class Opening(Transferring):
    """The operations that make and end OpenQueueDescriptors."""

    def open_queue(
        self, format_name: names.FormatName, access: Access, share: Share, caller: Caller, owner: object = None
    ) -> OpenQueueDescriptor:
        """Open Queue, [MS-MQDMPR] 3.1.7.1.5. A subqueue of a queue that exists is made by opening it.

        Raises QueueNotFound, SharingViolation, AccessDenied, or MsmqError for what a format name does not support or
        what another machine would have to do.
        """
        if isinstance(format_name, names.MultipleElementFormatName):
            return self._open_multiple(format_name, access, share, caller, owner)
        self._check_operation(format_name, access, share)
        queue = self._opened(format_name, access, caller)
        self._check_sharing(queue, access, share)
        handle = self.unused_handle(self.descriptors)
        descriptor = OpenQueueDescriptor(handle, format_name, access, share, queue, owner)
        queue.opened(descriptor)
        self.descriptors[descriptor.handle] = descriptor
        return descriptor

    def grants_reading(self, name: names.FormatName, caller: Caller) -> bool:
        """Whether a queue of this machine may be peeked at or received from by `caller`."""
        queue = self.state.local_queue(name) or self.parent_of(name)
        if queue is None:
            return False
        for access in (Access.PEEK, Access.RECEIVE):
            with suppress(AccessDenied):
                self._demand_open(queue, access, caller)
                return True
        return False

    def hand_out(self, descriptor: OpenQueueDescriptor) -> None:
        """Make an open queue one for a remote reader: its client will pass the handle on, which another queue manager
        may use once (deviation D-71)."""
        descriptor.remote_read_state = RemoteReadState.OPENED

    def _opened(self, name: names.SingleFormatName, access: Access, caller: Caller) -> Queue:
        """The queue to open, which the caller may open so."""
        if access in _ADMIN:  # the outgoing queue, never the destination
            outgoing = self.state.outgoing_queue(name)
            if outgoing is None:
                raise QueueNotFound(detail=f"there is no outgoing queue for {name}")
            self.demand_administrator(caller, str(name))
            outgoing.touched = True
            return outgoing
        queue = self.state.local_queue(name)
        if access is Access.SEND and self._is_read_only(name, queue):
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, f"{name} can't be opened for sending")
        if access is Access.MOVE and queue is not None and not queue.is_destination:
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, f"{name} takes no moved messages")
        if queue is not None:
            self._demand_open(queue, access, caller)
            return queue
        parent = self.parent_of(name)
        if parent is not None and isinstance(name, names.DirectFormatName):
            self._demand_open(parent, access, caller)  # deviation D-65: the parent's descriptor
            return self.subqueue(parent, name.subqueue)  # deviation D-63: made by opening it
        if access is not Access.SEND or self.state.is_local(name):
            raise QueueNotFound(detail=str(name))
        connector = self.state.connector_for(name)
        if connector is not None:
            self._demand_open(connector, access, caller)
            return connector
        if not can_go_out(name):
            raise not_here(name)
        return self.outgoing_for(name)

    @staticmethod
    def _is_read_only(name: names.SingleFormatName, queue: Queue | None) -> bool:
        if queue is not None:
            return queue.kind is not QueueKind.PRIVATE
        read_only = getattr(name, "suffix", names.Suffix.NONE) in names.READ_ONLY
        return read_only or isinstance(name, names.ConnectorFormatName)

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
        self.descriptors[descriptor.handle] = descriptor
        return descriptor

    def _check_operation(self, name: names.SingleFormatName, access: Access, share: Share) -> None:
        sending = access is Access.SEND
        if sending and share is not Share.DENY_NONE:
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, _SENDERS_SHARE)
        if isinstance(name, names.DirectFormatName):
            _check_host(name)
        if isinstance(name, names.DistributionListFormatName):
            raise MsmqError(HResult.MQ_ERROR_NO_DS, f"{name}: no directory to resolve a distribution list")
        is_http = isinstance(name, names.DirectFormatName) and name.is_http
        wrong = (
            (is_http or isinstance(name, names.MulticastFormatName)) and not sending,
            isinstance(name, names.MachineFormatName) and sending,
            isinstance(name, names.DirectFormatName) and bool(name.subqueue) and sending,
            isinstance(name, names.PublicFormatName) and sending,
        )
        if any(wrong):
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, f"{name} can't be opened with {access.name} access"
            )

    def _demand_open(self, queue: Queue, access: Access, caller: Caller) -> None:
        state = self.state
        if queue.kind is QueueKind.SYSTEM:
            if queue is state.system_journal:
                wanted = MachineAccessMask.PEEK_JOURNAL_QUEUE_MESSAGE
                if access is Access.RECEIVE:
                    wanted = MachineAccessMask.RECEIVE_JOURNAL_QUEUE_MESSAGE
            else:
                wanted = MachineAccessMask.PEEK_DEADLETTER_MESSAGE
                if access is Access.RECEIVE:
                    wanted = MachineAccessMask.RECEIVE_DEADLETTER_MESSAGE
            demand(state.security, caller, wanted, queue.properties.path_name)
        else:
            self.demand(queue, caller, _QUEUE_RIGHTS[queue.kind][access])

    def _check_sharing(self, queue: Queue, access: Access, share: Share) -> None:
        """The rules at the end of 3.1.7.1.5: who may read beside whom."""
        denies, receives = share is Share.DENY_RECEIVE_SHARE, access in _DESTRUCTIVE
        violated = (
            (queue.exclusive_receivers and (denies or receives))
            or (queue.exclusive_peekers and receives)
            or (queue.receivers and denies)
        )
        if violated:
            raise SharingViolation(
                detail=f"{queue.properties.path_name} is already open, and one of the two openers denies other "
                "receivers"
            )

    def close_queue(self, descriptor: OpenQueueDescriptor) -> None:
        """Close Queue, [MS-MQDMPR] 3.1.7.1.6: waiting reads are cancelled, two-phase reads put back."""
        self.descriptors.pop(descriptor.handle, None)
        for part in descriptor.parts:
            self.close_queue(part)
        for cursor in list(descriptor.cursors.values()):
            self.close_cursor(cursor)
        queue = descriptor.queue
        if queue is None:
            return
        queue.closed(descriptor)
        for reader in list(descriptor.waiting.values()):
            self.end_read(reader, HResult.MQ_ERROR_OPERATION_CANCELLED)
        descriptor.queue = None
        for key in sorted(descriptor.held):
            lock = queue.locked.get(key)
            if lock is not None and lock.owner is descriptor:
                self._release(queue, key)
        descriptor.held.clear()
        self.state.forget_unused(queue)


def _check_host(name: names.DirectFormatName) -> None:
    """Raises IllegalFormatName for a host that can't be one: messages for it would wait until they expire (deviation
    D-27 from [MS-MQMQ] 2.1.2)."""
    if name.protocol.upper() == "TCP" and names.parse_address(name.host) is None:
        raise IllegalFormatName(
            detail=f"{name}: {name.host!r} is no IP address; for a computer name write DIRECT=OS:{name.host}\\..."
        )
    if name.host.lower() in _PARTS_OF_PATHS:
        raise IllegalFormatName(
            detail=f"{name}: {name.host!r} is no computer; a queue of this machine is DIRECT=OS:.\\{name.host}\\..."
        )
