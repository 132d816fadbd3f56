"""Queues as objects: creating, deleting, properties, security ([MS-MQDMPR] 3.1.7.1.3 and 3.1.7.1.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from openmsmq.model import names
from openmsmq.model.constants import MessageClass, PropId, SecurityInformation
from openmsmq.model.default_descriptors import default_queue_security
from openmsmq.model.errors import (
    HResult,
    IllegalPropertyValue,
    IllegalQueuePathName,
    InsufficientResources,
    MsmqError,
    QueueExists,
)
from openmsmq.model.sddl import to_sddl
from openmsmq.model.security import AUTHENTICATED_USERS, EVERYONE, SecurityDescriptor, sid_bytes
from openmsmq.queueing import properties as queue_properties
from openmsmq.queueing.auditing import Actor, Auditor, AuditRecord
from openmsmq.queueing.authorization import Authorization, Caller, DirectoryRecord, Right
from openmsmq.queueing.consumer_groups import ConsumerGroups
from openmsmq.queueing.handles import Handles
from openmsmq.queueing.message_locks import MessageLocks
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.queue import LockKind, Queue, QueueKind
from openmsmq.queueing.reading import ReadOperations
from openmsmq.queueing.registry import Registry
from openmsmq.queueing.storage import storing

_SECURITY_PARTS = (
    SecurityInformation.OWNER | SecurityInformation.GROUP | SecurityInformation.DACL | SecurityInformation.SACL
)

# Every user is in these groups, so they cannot own a queue.
_NOT_OWNERS: Final = (EVERYONE, AUTHENTICATED_USERS)


class Administration:
    """Operations on queues as objects."""

    def __init__(
        self,
        registry: Registry,
        authorization: Authorization,
        holds: MessageLocks,
        reading: ReadOperations,
        handles: Handles,
        groups: ConsumerGroups,
        clock: Callable[[], int],
        random: Callable[[int], bytes],
        auditor: Auditor,
    ) -> None:
        self._registry: Final = registry
        self._authorization: Final = authorization
        self._holds: Final = holds
        self._reading: Final = reading
        self._handles: Final = handles
        self._groups: Final = groups
        self._clock: Final = clock
        self._random: Final = random
        self._auditor: Final = auditor

    def create_queue(
        self,
        path_name: str,
        values: Mapping[int, Any],
        security: bytes | None,
        caller: Caller,
    ) -> Queue:
        """Create Queue, [MS-MQDMPR] 3.1.7.1.3: a private queue of this machine.

        `values` maps PROPIDs to values; `security` is a self-relative descriptor or None for the default. Raises
        IllegalQueuePathName, QueueExists, AccessDenied and what properties.changed raises.
        """
        registry = self._registry
        path = names.parse_path_name(path_name)
        if not registry.machine.is_local(path.computer) or path.kind != "private" or path.subqueue:
            raise IllegalQueuePathName(
                detail=f"{path_name!r}: only private queues of this machine can be created, "
                f"for example .\\private$\\{path.name}"
            )
        # MS-MQMP 3.1.4.5: an invalid parameter is reported even if the queue exists.
        described = self._described(path, values, security, registry.machine.computer_name)
        self._check_new(path, caller)
        properties = self._owned(queue_properties.of_private_queue(described), security, caller)
        self._auditor.record(AuditRecord(caller.actor, "queue.create", "queue", properties.path_name))
        return registry.create(properties)

    def public_properties(
        self,
        path: names.PathName,
        values: Mapping[int, Any],
        security: bytes | None,
        caller: Caller,
        elsewhere: DirectoryRecord | None = None,
    ) -> QueueProperties:
        """Return the properties of a new public queue for the directory; create nothing. `elsewhere` is the machine
        that hosts the queue, None for this one. Raises the errors of `create_queue`."""
        if elsewhere is not None:
            self._authorization.authorize(caller, elsewhere, Right.CREATE_QUEUE)
            return self._owned(self._described(path, values, security, elsewhere.name), security, caller)
        described = self._described(path, values, security, self._registry.machine.computer_name)
        self._check_new(path, caller)
        properties = self._owned(described, security, caller)
        self._auditor.record(AuditRecord(caller.actor, "queue.create", "queue", properties.path_name))
        return properties

    def keep_public(self, properties: QueueProperties) -> Queue:
        """Create a public queue of this machine from its directory entry, or update it if the entry has changed. Raises
        MessageStorageFailed, InsufficientResources."""
        queue = self._registry.public.get(UUID(bytes_le=properties.instance))
        if queue is None:
            self._check_count()
            return self._registry.create(properties, QueueKind.PUBLIC)
        if queue.properties != properties:
            self._registry.update(queue, properties)
        return queue

    def drop_public(self, queue: Queue) -> None:
        """Delete a public queue of this machine that is no longer in the directory, with all its messages. Raises
        MessageStorageFailed."""
        self._delete(queue)

    def drop_lost_public(self, queue: Queue, caller: Caller) -> None:
        """Check that the caller may delete the queue, then delete it as `drop_public` does. Also raises
        AccessDenied."""
        self._authorization.authorize(caller, queue, Right.DELETE_QUEUE)
        count = sum(len(member) for member in self._registry.family(queue))
        self._auditor.record(
            AuditRecord(caller.actor, "queue.delete", "queue", queue.properties.path_name, count=count)
        )
        self._delete(queue)

    def _check_new(self, path: names.PathName, caller: Caller) -> None:
        """Check that a queue may be created here. Raises QueueExists, AccessDenied, InsufficientResources."""
        known = self._registry.queue_for_path_name(path)
        if known is not None:
            raise QueueExists(detail=f"{path} is a {known.kind.value} queue of this machine")
        self._authorization.authorize(caller, None, Right.CREATE_QUEUE)
        self._check_count()

    def _described(
        self, path: names.PathName, values: Mapping[int, Any], security: bytes | None, computer: str
    ) -> QueueProperties:
        """Return the properties of a new queue, without its security descriptor; its path name begins with `computer`.
        Raises MsmqError for an invalid value or descriptor."""
        if security:
            SecurityDescriptor.parse(security)
        if PropId.PROPID_Q_PATHNAME in values:
            repeated = names.parse_path_name(values[PropId.PROPID_Q_PATHNAME])
            if (repeated.kind, repeated.subqueue, repeated.name.lower()) != (path.kind, "", path.name.lower()):
                raise IllegalPropertyValue(detail=f"PROPID_Q_PATHNAME {repeated} differs from {path}")
        now = self._clock() // 1000
        canonical = names.PathName(computer, path.name, path.kind)
        properties = QueueProperties(str(canonical), instance=self._random(16), create_time=now, modify_time=now)
        return queue_properties.changed(properties, values, creating=True)

    def _owned(self, properties: QueueProperties, security: bytes | None, caller: Caller) -> QueueProperties:
        """Return the properties of a new queue with its security descriptor. Raises the errors of `check_owner`."""
        given = SecurityDescriptor.parse(security) if security else SecurityDescriptor()
        owner = given.owner or caller.sid
        self.check_owner(caller, owner)
        descriptor = default_queue_security(owner, self._registry.machine.everyones_access(owner))
        if security:
            descriptor = replace(
                given,
                owner=owner,
                group=given.group or descriptor.group,
                dacl=descriptor.dacl if given.dacl is None else given.dacl,
            )
        return properties._replace(security=descriptor.pack())

    def check_owner(self, caller: Caller, owner: str) -> None:
        """Check that a caller may make an account (a SID) the owner of a queue: administrators may name any account,
        others only themselves or a group that they are in. Raises MsmqError ERROR_INVALID_OWNER, or
        InsufficientResources if the owner already has the maximum number of queues."""
        if self._authorization.allows(caller, None, Right.ADMINISTER):
            return
        if owner not in caller.sids or owner in _NOT_OWNERS:
            raise MsmqError(
                HResult.ERROR_INVALID_OWNER,
                f"{caller.name or caller.sid} may not make {owner} the owner: only administrators may name others than "
                "themselves and their groups",
            )
        limit, owned = self._registry.machine.limits.max_queues_per_owner, self._registry.owned_by(sid_bytes(owner))
        if owned >= limit:
            raise InsufficientResources(
                detail=f"{owner} owns {owned} queues, the limit is {limit} (max_queues_per_owner); administrators have "
                "none"
            )

    def _check_count(self) -> None:
        maximum = self._registry.machine.limits.max_queues
        if self._registry.application_queues >= maximum:
            raise InsufficientResources(detail=f"there are {maximum} queues already (max_queues)")

    def delete_queue(self, queue: Queue, caller: Caller) -> None:
        """Delete Queue, [MS-MQDMPR] 3.1.7.1.4, with its subqueues, its journal and all its messages."""
        self._authorize(caller, queue, Right.DELETE_QUEUE)
        if queue.kind is not QueueKind.PRIVATE:
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
                f"{queue.properties.path_name}: only private queues can be deleted",
            )
        count = sum(len(member) for member in self._registry.family(queue))
        deed = AuditRecord(caller.actor, "queue.delete", "queue", queue.properties.path_name, count=count)
        self._auditor.record(deed)
        self._delete(queue)

    def delete_outgoing(self, queue: Queue, actor: Actor) -> int:
        """Delete an outgoing queue with its messages, including those that the destination has received but not finally
        acknowledged. Each is discarded as by a purge (D-58): it becomes a dead letter and is acknowledged as its sender
        requested. Returns the number of messages. Raises MessageStorageFailed."""
        family = self._registry.family(queue)
        count = sum(len(member) for member in family)
        self._auditor.record(AuditRecord(actor, "outgoing.delete", "queue", queue.properties.path_name, count=count))
        self._delete(queue, MessageClass.NACK_DELETED)
        return count

    def _delete(self, queue: Queue, reason: MessageClass = MessageClass.NACK_Q_DELETED) -> None:
        family = self._registry.family(queue)
        with storing():
            for member in family:
                self._remove_all(member, reason)
        self._registry.drop(queue, self._groups.drops(family))
        for member in family:
            self._groups.forget(member)
            self._reading.end_all(member, HResult.MQ_ERROR_QUEUE_DELETED)
            self._handles.detach(member)

    def _remove_all(self, queue: Queue, reason: MessageClass) -> None:
        """Remove all messages except uncommitted sends, which are not yet visible in the queue; their transaction
        handles the deleted queue when it ends."""
        unsent = {key for key, lock in queue.locked.items() if lock.kind is LockKind.ENQUEUE}
        self._holds.sweep(queue, [key for key in queue.entries if key not in unsent], reason)

    def set_properties(self, queue: Queue, values: Mapping[int, Any], caller: Caller) -> None:
        """Change properties by PROPID; all or none. Raises what properties.changed raises, and AccessDenied."""
        self._authorize(caller, queue, Right.SET_PROPERTIES)
        self._only_private(queue)
        changed = queue_properties.changed(queue.properties, values, creating=False)
        updated = queue_properties.of_private_queue(changed)
        self._update(queue, updated._replace(modify_time=self._clock() // 1000), caller, "queue.properties")

    def get_properties(self, queue: Queue, propids: list[int], caller: Caller) -> list[Any]:
        """Return the values of PROPIDs, in order. Raises MsmqError for an unknown PROPID, and AccessDenied."""
        self._authorize(caller, queue, Right.GET_PROPERTIES)
        self._only_private(queue)
        return self.values_of(queue.properties, propids)

    def values_of(
        self, properties: QueueProperties, propids: list[int], of_directory: Mapping[str, str] | None = None
    ) -> list[Any]:
        """Return the values of PROPIDs, in order. `of_directory` are names of a public queue that only the directory
        knows; the default is for a queue of this machine. Raises MsmqError."""
        domain_name = self._registry.machine.qualified_name
        local_name = f"{domain_name}\\{properties.path_name.partition(chr(92))[2]}" if domain_name else ""
        computed = {"path_name_dns": local_name, "ads_path": "", **(of_directory or {})}
        values = []
        for propid in propids:
            attribute = queue_properties.rule_for(propid).attribute
            values.append(computed[attribute] if attribute in computed else getattr(properties, attribute))
        return values

    def set_security(self, queue: Queue, information: int, descriptor: bytes, caller: Caller) -> None:
        """Replace the parts of the security descriptor that `information` (SECURITY_INFORMATION) names."""
        rights = rights_to_change(information)
        for right in rights:
            self._authorize(caller, queue, right)
        self._only_guarded(queue)
        if not rights:
            return
        self.check_new_owner(queue.properties, information, descriptor, caller)
        after = with_security(queue.properties, information, descriptor, self._clock() // 1000)
        owner_only = information & _SECURITY_PARTS == SecurityInformation.OWNER
        self._update(queue, after, caller, "queue.owner" if owner_only else "queue.permissions")

    def check_new_owner(
        self, properties: QueueProperties, information: int, descriptor: bytes, caller: Caller
    ) -> None:  # fmt: skip
        """Call `check_owner` if a descriptor names a different owner than the queue has."""
        if information & SecurityInformation.OWNER:
            owner = SecurityDescriptor.parse(descriptor).owner
            if owner is not None and owner != SecurityDescriptor.parse(properties.security).owner:
                self.check_owner(caller, owner)

    def _update(self, queue: Queue, properties: QueueProperties, caller: Caller, action: str) -> None:
        """Record and apply a change of a queue's properties or security."""
        before, after = _differing(queue.properties, properties)
        self._auditor.record(
            AuditRecord(caller.actor, action, "queue", queue.properties.path_name, before=before, after=after)
        )
        self._registry.update(queue, properties)

    def get_security(self, queue: Queue, information: int, caller: Caller) -> bytes:
        """Return the parts of the security descriptor that `information` names, self-relative.

        Deviation D-09 from [MS-MQMP] 3.1.4.7: the published rules are chained with `Else if` and would return one part
        only; here every requested part is returned.
        """
        parts_of(information)
        self._authorize(caller, queue, Right.GET_PERMISSIONS)
        self._only_guarded(queue)
        return SecurityDescriptor.parse(queue.properties.security).select(information).pack()

    def _authorize(self, caller: Caller, queue: Queue, right: Right) -> None:
        if queue.kind is QueueKind.SYSTEM:  # has no descriptor
            self._only_private(queue)
        self._authorization.authorize(caller, queue, right)

    def _only_guarded(self, queue: Queue) -> None:
        """Deviation D-55 from [MS-MQMP] 3.1.4.6 and 3.1.4.7, which cover private queues only: a connector queue has a
        descriptor too, which a directory would store."""
        if queue.kind is not QueueKind.CONNECTOR:
            self._only_private(queue)

    def _only_private(self, queue: Queue) -> None:
        if queue.kind is not QueueKind.PRIVATE:
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
                f"{queue.properties.path_name} is a {queue.kind.value} queue, not a private queue",
            )


def parts_of(information: int) -> int:
    """Return the parts of a descriptor that SECURITY_INFORMATION names: zero or more flags ([MS-MQMQ] 2.2.3). Raises
    MsmqError if it only has other flags."""
    parts = information & _SECURITY_PARTS
    if information and not parts:
        raise MsmqError(
            HResult.MQ_ERROR_INVALID_PARAMETER,
            f"SecurityInformation {information:#x} names no part: 1 owner, 2 group, 4 DACL, 8 SACL",
        )
    return parts


def rights_to_change(information: int) -> list[Right]:
    """Return the rights needed to change the parts of a descriptor that SECURITY_INFORMATION names. Raises MsmqError if
    it names something else."""
    parts = parts_of(information)
    rights = [Right.TAKE_OWNERSHIP] if parts & SecurityInformation.OWNER else []
    return [*rights, Right.SET_PERMISSIONS] if parts & ~SecurityInformation.OWNER else rights


def with_security(properties: QueueProperties, information: int, descriptor: bytes, now: int) -> QueueProperties:
    """Return the properties, modified `now` (seconds), with those parts of the descriptor replaced that `information`
    names. Raises MsmqError."""
    current, given = SecurityDescriptor.parse(properties.security), SecurityDescriptor.parse(descriptor)
    if information & SecurityInformation.OWNER and given.owner is None:
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR, "the new descriptor has no owner")
    if information & SecurityInformation.GROUP and given.group is None:
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR, "the new descriptor has no group")
    return properties._replace(security=current.merge(given, information).pack(), modify_time=now)


def _differing(old: QueueProperties, new: QueueProperties) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the differing values before and after; descriptors as SDDL, which people can read and enter again."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for name in QueueProperties._fields:
        values = getattr(old, name), getattr(new, name)
        if values[0] == values[1] or name == "modify_time":
            continue
        for shown, value in zip((before, after), values, strict=True):
            is_descriptor = name == "security" and value
            shown[name] = to_sddl(SecurityDescriptor.parse(value)) if is_descriptor else value
    return before, after
