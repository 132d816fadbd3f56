"""Public queues and the directory ([MS-MQDMPR] 3.1.7.1.18 to 3.1.7.1.26, 3.1.7.3.8).

The messages of a public queue are in the log of its queue manager, like those of a private queue. The directory stores
its existence, location and properties; the log has a copy, so that messages can be sent and received while the
directory is unavailable. If the two disagree, the directory takes precedence: a queue is created and deleted there
first, and `synchronize` updates the log, also after a crash between the two steps.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final
from uuid import UUID

from openmsmq.directory.connection import DirectoryConnection
from openmsmq.directory.lookup import Filter, Relation
from openmsmq.directory.provider import DirectoryProvider, MachineRecord, QueueRecord
from openmsmq.model import names
from openmsmq.model.constants import Access
from openmsmq.model.errors import (
    HResult,
    IllegalFormatName,
    IllegalQueuePathName,
    InsufficientResources,
    MsmqError,
    QueueNotFound,
)
from openmsmq.queueing import properties as queue_properties
from openmsmq.queueing.administration import rights_to_change, with_security
from openmsmq.queueing.authorization import Caller, DirectoryRecord, Right
from openmsmq.queueing.locations import QueueLocation
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import OutgoingState
from openmsmq.queueing.properties import LOCAL_PROPERTIES, QueueProperties

logger = logging.getLogger(__name__)

MAXIMUM_NAME: Final = 63  # maximum length of a public queue's name, [MC-MQAC] 3.10.6.1
MOST_ELEMENTS: Final = 1000  # maximum number of format names in an expanded distribution list
_PATIENCE: Final = 5.0  # seconds before a name that was not found is looked up again for a message
_MOST_SOUGHT: Final = 1000
_PAGE: Final = 100  # records read at once; the event loop does other work between two pages
# Attributes of the same name in QueueProperties and QueueRecord.
_SHARED: Final = tuple(name for name in QueueProperties._fields if name not in ("instance", *LOCAL_PROPERTIES))
AWAY: Final = (HResult.MQ_ERROR_NO_DS, HResult.MQ_ERROR_NO_RESPONSE_FROM_OBJECT_SERVER)


class PublicQueues:
    """Public queues. Methods that use the directory raise the errors of `DirectoryConnection.ask`."""

    def __init__(
        self,
        manager: QueueManager,
        directory: DirectoryConnection,
        published_keys: Callable[[], bytes] = bytes,
        knows_keys: Callable[[bytes], bool] = lambda identifier: True,
    ) -> None:
        """`published_keys` returns MQDSPUBLICKEYS of this queue manager for publication; it may take a second, and
        raise OSError or LookupError. `knows_keys` returns whether the keys of a queue manager (GUID of 16 bytes) are
        cached."""
        self._manager: Final = manager
        self.directory: Final = directory
        self._published_keys: Final = published_keys
        self._knows_keys: Final = knows_keys
        self._own: Final = UUID(bytes_le=manager.machine.identifier)
        self._changing: Final = asyncio.Lock()  # held from the directory's answer to the local change
        self._is_registered = False
        self._sought: Final[dict[str, float]] = {}  # name -> when it was looked up for a message
        self._missing: set[UUID] = set()  # queues of this machine not in the directory, already reported
        self._stuck: dict[str, str] = {}  # outgoing queues that cannot be located -> reason, already reported

    # -- names -------------------------------------------------------------------------------------------------

    def needs(self, name: names.FormatName) -> bool:
        """Whether `resolve` must look up a format name in the directory before it can be opened."""
        if not self.directory.exists:
            return False
        elements = name.elements if isinstance(name, names.MultipleElementFormatName) else (name,)
        return any(
            isinstance(element, names.DistributionListFormatName)
            or (isinstance(element, names.PublicFormatName) and not self._manager.registry.is_local(element))
            or self._unknown_path(element) is not None
            or self._lacks_keys(element)
            for element in elements
        )

    def _unknown_path(self, name: names.FormatName) -> names.PathName | None:
        """Return the path name in a direct format name of a public queue of this machine that is not known here; None
        for other names."""
        registry = self._manager.registry
        if not isinstance(name, names.DirectFormatName) or name.is_http or not registry.is_local(name):
            return None
        queue = replace(name, suffix=names.Suffix.NONE, subqueue="")
        try:
            path = queue.path_name()
        except IllegalQueuePathName:
            return None
        return path if path.kind == "public" and registry.local_queue(queue) is None else None

    def _lacks_keys(self, name: names.FormatName) -> bool:
        """Whether a format name is of another queue manager whose keys, needed to encrypt bodies, are not known."""
        if self.directory.offline or not isinstance(name, names.PrivateFormatName):
            return False
        return not self._manager.registry.is_local(name) and not self._knows_keys(name.guid.bytes_le)

    async def _learn_keys(self, machine: UUID) -> None:
        """Look up the keys of a queue manager, which `DirectoryConnection.on_machine` receives. A failure only prevents
        encryption."""
        if not self._knows_keys(machine.bytes_le):
            try:
                await self.directory.ask(lambda d: d.machine(machine), HResult.MQ_ERROR_MACHINE_NOT_FOUND)
            except MsmqError as error:
                logger.debug("no keys of the queue manager %s: %s", machine, error)

    async def resolve(self, name: names.FormatName, access: Access) -> names.FormatName:
        """Expand Format Name, 3.1.7.3.8: replace distribution lists by their members. Afterwards, the registry knows
        the public queues among them.

        Raises QueueNotFound for a list or queue that is not in the directory; for sending to a queue, this is
        MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION (3.1.7.1.5). Raises MQ_ERROR_NO_DS if the directory is unavailable
        (deviation D-118).
        """
        expanded = await self._expanded(name)
        for element in expanded.elements if isinstance(expanded, names.MultipleElementFormatName) else (expanded,):
            if isinstance(element, names.PublicFormatName) and not self._manager.registry.is_local(element):
                await self._locate(element, access)
            elif isinstance(element, names.PrivateFormatName) and self._lacks_keys(element):
                await self._learn_keys(element.guid)
            elif self._unknown_path(element) is not None:
                await self._find(element)
        return expanded

    async def _expanded(self, name: names.FormatName) -> names.FormatName:
        waiting = list(name.elements) if isinstance(name, names.MultipleElementFormatName) else [name]
        if not any(isinstance(element, names.DistributionListFormatName) for element in waiting):
            return name
        found: dict[str, names.SingleFormatName] = {}
        seen: set[UUID] = set()  # lists may contain each other
        while waiting:
            element = waiting.pop()
            if not isinstance(element, names.DistributionListFormatName):
                found[str(element).lower()] = element
            elif element.guid not in seen:
                seen.add(element.guid)
                waiting += await self._members(element.guid)
            if len(found) + len(waiting) > MOST_ELEMENTS:
                raise InsufficientResources(detail=f"{name} stands for more than {MOST_ELEMENTS} queues")
        elements = [found[text] for text in sorted(found)]
        if not elements:
            raise QueueNotFound(detail=f"{name} has no members")
        return elements[0] if len(elements) == 1 else names.MultipleElementFormatName(tuple(elements))

    async def _members(self, guid: UUID) -> list[names.SingleFormatName]:
        members = (await self.directory.ask(lambda d: d.distribution_list(guid))).members
        parsed = [names.parse_format_name(member) for member in members]
        for member in parsed:
            if isinstance(member, names.MultipleElementFormatName):
                raise IllegalFormatName(detail=f"{member} in the distribution list {guid}: one queue for each member")
        return [member for member in parsed if not isinstance(member, names.MultipleElementFormatName)]

    async def _locate(self, name: names.PublicFormatName, access: Access) -> None:
        registry = self._manager.registry
        sending = access is Access.SEND
        not_found = HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION if sending else HResult.MQ_ERROR_QUEUE_NOT_FOUND
        try:
            record = await self.directory.ask(lambda d: d.queue(name.guid), not_found)
        except MsmqError as error:
            # Deviation D-115: while the directory is unavailable, cached locations are used to store messages for the
            # queue.
            known = registry.place_of(name) is not None or registry.outgoing_queue(name) is not None
            if error.hresult in AWAY and known:
                return
            raise
        await self._keep_place(record)
        if record.machine != self._own:
            await self._learn_keys(record.machine)

    async def _keep_place(self, record: QueueRecord) -> None:
        """Create a queue of this machine that is not known here yet, or remember on which machine a queue is."""
        if record.machine == self._own:
            await self._follow(record.identifier)
        else:
            place = QueueLocation(record.path_name, record.base_priority, record.machine.bytes_le)
            self._manager.registry.remember_place(record.identifier, place)

    async def _locate_here(self, look_up: Callable[[DirectoryProvider], Awaitable[QueueRecord]]) -> None:
        """Create a public queue of this machine that another machine has just created in the directory. If this fails,
        there is no such queue."""
        try:
            await self._keep_place(await self.directory.ask(look_up))
        except MsmqError as error:
            logger.debug("a public queue was not found in the directory: %s", error)

    def find(self, name: names.FormatName) -> Coroutine[Any, Any, None] | None:
        """Return a coroutine that creates a public queue of this machine which another machine has just created in the
        directory, so that a message for it, or an acknowledgment, can be stored; None if `name` was looked up within
        the last `_PATIENCE` seconds."""
        now, key = time.monotonic(), str(name).lower()
        if now - self._sought.get(key, -_PATIENCE) < _PATIENCE:
            return None
        if len(self._sought) >= _MOST_SOUGHT:  # names that peers have made up
            self._sought.clear()
        self._sought[key] = now
        return self._find(name)

    async def _find(self, name: names.FormatName) -> None:
        if isinstance(name, names.PublicFormatName):
            await self._locate_here(lambda d: d.queue(name.guid))
        elif (path := self._unknown_path(name)) is not None:
            await self._locate_here(lambda d: d.queue_at(str(self._canonical(path))))

    def path_elsewhere(self, name: names.FormatName) -> names.PathName | None:
        """Get Queue Path, 3.1.7.1.26, for a public queue of another machine that `resolve` has found; None
        otherwise."""
        place = self._manager.registry.place_of(name)
        return None if place is None else names.parse_path_name(place.path_name)

    async def identifier_of(self, path: names.PathName) -> UUID:
        """Get Queue Format Name from Pathname ([MC-MQAC] 3.1.6.2). Raises QueueNotFound, IllegalQueuePathName."""
        path = self._canonical(path)
        try:
            return (await self.directory.ask(lambda d: d.queue_at(str(path)))).identifier
        except MsmqError as error:
            local = self._manager.registry.queue_for_path_name(path)
            if error.hresult not in AWAY or local is None:
                raise
            return UUID(bytes_le=local.properties.instance)

    def _canonical(self, path: names.PathName) -> names.PathName:
        """Return a path name as the directory stores it: names of this machine become its computer name. Raises
        IllegalQueuePathName."""
        if path.kind != "public" or path.subqueue or len(path.name) > MAXIMUM_NAME:
            raise IllegalQueuePathName(
                detail=f"{path}: the name of a public queue is computer\\name, with 1 to {MAXIMUM_NAME} characters"
            )
        machine = self._manager.machine
        return replace(path, computer=machine.computer_name) if machine.is_local(path.computer) else path

    # -- objects -----------------------------------------------------------------------------------------------

    async def record(self, guid: UUID, caller: Caller, right: Right = Right.GET_PROPERTIES) -> QueueRecord:
        """Read Directory, 3.1.7.1.20. While the directory is unavailable, this still works for queues of this machine.
        Raises AccessDenied."""
        try:
            record = await self.directory.ask(lambda d: d.queue(guid))
        except MsmqError as error:
            local = self._manager.registry.public.get(guid)
            if error.hresult not in AWAY or local is None:
                raise
            record = record_of(local.properties, self._own)
        self._authorize(record, caller, right)
        return record

    async def next(self, filters: Sequence[Filter], after: int, caller: Caller) -> QueueRecord | None:
        """Read Directory Begin and Next: return the first queue after a position (of `QueueRecord`) that matches the
        filters and that the caller may see; None at the end."""
        limit = 1
        while page := await self._page(filters, after, limit):
            for record in page:
                guarded = DirectoryRecord(record.security, record.path_name)
                if self._manager.authorization.allows(caller, guarded, Right.GET_PROPERTIES):
                    return record
            after, limit = page[-1].position, _PAGE
        return None

    async def _page(self, filters: Sequence[Filter], after: int, limit: int) -> Sequence[QueueRecord]:
        return await self.directory.ask(lambda d: d.find_queues(filters, after, limit))

    async def create(
        self, path_name: str, values: Mapping[int, Any], caller: Caller, security: bytes | None = None
    ) -> QueueRecord:
        """Create Queue, 3.1.7.1.3, for a public queue of this machine, or of another one, which creates it when it
        synchronizes. `values` are by PROPID; `security` and errors as of `Administration.create_queue`; also raises
        MQ_ERROR_MACHINE_NOT_FOUND."""
        path = self._canonical(names.parse_path_name(path_name))
        administration = self._manager.administration
        async with self._changing:
            if self._manager.machine.is_local(path.computer):
                properties, machine = administration.public_properties(path, values, security, caller), self._own
                if not self._is_registered:  # not yet since the start
                    await self._register()
            else:
                owner = await self.machine_named(path.computer)
                there = DirectoryRecord(owner.security, owner.computer_name, is_machine=True)
                properties = administration.public_properties(path, values, security, caller, there)
                machine = owner.identifier
            if machine != self._own:
                _demand_no_local(QueueProperties(""), properties)
            wanted = record_of(properties, machine)
            record = await self.directory.ask(lambda d: d.create_queue(wanted), HResult.MQ_ERROR_MACHINE_NOT_FOUND)
            if record.machine == self._own:
                administration.keep_public(_with_local(properties_of(record), properties))
        return record

    async def delete(self, guid: UUID, caller: Caller) -> None:
        """Delete Queue, 3.1.7.1.4: in the directory, then here (deviation D-110). Another machine drops its queue when
        it synchronizes. For a queue of this machine whose record is lost, the local copy of its descriptor decides.
        Raises AccessDenied, QueueNotFound."""
        async with self._changing:
            try:
                record = await self.directory.ask(lambda d: d.queue(guid))
            except MsmqError as error:
                lost = self._manager.registry.public.get(guid)
                if error.hresult != HResult.MQ_ERROR_QUEUE_NOT_FOUND or lost is None:
                    raise
                self._manager.administration.drop_lost_public(lost, caller)
                return
            self._authorize(record, caller, Right.DELETE_QUEUE)
            await self.directory.ask(lambda d: d.delete_queue(guid))
            if record.machine == self._own:
                self._drop(guid)
                await self.directory.ask(lambda d: d.confirm_deletion(guid))

    async def change(self, guid: UUID, values: Mapping[int, Any], caller: Caller) -> QueueRecord:
        """Write Directory, 3.1.7.1.24, of properties by PROPID. Raises AccessDenied, and the errors of
        `properties.changed`."""
        async with self._changing:
            record = await self.directory.ask(lambda d: d.queue(guid))
            self._authorize(record, caller, Right.SET_PROPERTIES)
            after = queue_properties.changed(self.properties(record), values, creating=False)
            after = after._replace(modify_time=self._manager.clock() // 1000)
            return await self._write(record, after)

    async def set_security(self, guid: UUID, information: int, descriptor: bytes, caller: Caller) -> None:
        """Write Directory, 3.1.7.1.24, of the parts of the descriptor that `information` (SECURITY_INFORMATION) names.
        Raises AccessDenied, MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR."""
        rights = rights_to_change(information)
        async with self._changing:
            record = await self.directory.ask(lambda d: d.queue(guid))
            for right in rights:
                self._authorize(record, caller, right)
            if not rights:
                return
            properties = self.properties(record)
            self._manager.administration.check_new_owner(properties, information, descriptor, caller)
            after = with_security(properties, information, descriptor, self._manager.clock() // 1000)
            await self._write(record, after)

    def properties(self, record: QueueRecord) -> QueueProperties:
        """Return the properties of a queue: those in the directory, and for a queue of this machine also those that
        directories do not store (`LOCAL_PROPERTIES`)."""
        queue = self._manager.registry.public.get(record.identifier)
        return _with_local(properties_of(record), queue.properties if queue is not None else None)

    async def _write(self, record: QueueRecord, after: QueueProperties) -> QueueRecord:
        if record.machine != self._own:
            _demand_no_local(self.properties(record), after)
        wanted = record_of(after, record.machine)
        changes = {
            f.name: getattr(wanted, f.name)
            for f in fields(QueueRecord)
            if f.name != "position" and getattr(wanted, f.name) != getattr(record, f.name)
        }
        written = await self.directory.ask(lambda d: d.update_queue(record.identifier, changes))
        if written.machine == self._own:
            self._manager.administration.keep_public(_with_local(properties_of(written), after))
        return written

    def _authorize(self, record: QueueRecord, caller: Caller, right: Right) -> None:
        self._manager.authorization.authorize(caller, DirectoryRecord(record.security, record.path_name), right)

    # -- machines ----------------------------------------------------------------------------------------------

    async def machine_named(self, name: str) -> MachineRecord:
        """Return a machine by computer name or DNS name. Raises MQ_ERROR_MACHINE_NOT_FOUND."""
        return await self.directory.ask(lambda d: d.machine_named(name), HResult.MQ_ERROR_MACHINE_NOT_FOUND)

    async def machine(self, guid: UUID) -> MachineRecord:
        """Return a machine by its identifier. Raises MQ_ERROR_MACHINE_NOT_FOUND."""
        return await self.directory.ask(lambda d: d.machine(guid), HResult.MQ_ERROR_MACHINE_NOT_FOUND)

    async def qualified_path_name(self, record: QueueRecord) -> str:
        """Return Queue.QualifiedPathname: the path name with the DNS name of the machine, if it has one."""
        computer, _, name = record.path_name.partition("\\")
        owner = await self.machine(record.machine)
        return f"{owner.dns_names[0] if owner.dns_names else computer}\\{name}"

    async def directory_path(self, guid: UUID, caller: Caller) -> str:
        """Return Queue.DirectoryPath, empty if the directory has no paths. Raises AccessDenied."""
        await self.record(guid, caller)
        return await self.directory.ask(lambda d: d.directory_path(guid))

    async def values_of(self, record: QueueRecord, propids: list[int]) -> list[Any]:
        """Return the values of PROPIDs, in order. While the directory is unavailable, those of a queue of this machine
        lack its LDAP path. Raises MsmqError."""
        wanted = {queue_properties.rule_for(propid).attribute for propid in propids}
        found = {}
        try:
            if "path_name_dns" in wanted:
                found["path_name_dns"] = await self.qualified_path_name(record)
            if "ads_path" in wanted:
                found["ads_path"] = await self.directory.ask(lambda d: d.directory_path(record.identifier))
        except MsmqError as error:
            if error.hresult not in AWAY or record.machine != self._own:
                raise
        return self._manager.administration.values_of(self.properties(record), propids, found)

    # -- synchronization with the directory --------------------------------------------------------------------

    async def synchronize(self) -> None:
        """Check Directory Online, 3.1.7.1.25 (deviation D-251): register this queue manager, update its public queues
        from the directory, and look up where messages go. Raises MsmqError; changes made before the error stay."""
        try:
            await self._update()
        except MsmqError:  # such as the computer name of another queue manager, which stops no messages
            await self._locate_destinations()
            raise
        await self._locate_destinations()

    async def _update(self) -> None:
        async with self._changing:
            await self._register()
            for guid in await self.directory.ask(lambda d: d.deleted_queues(self._own)):
                self._drop(guid)
                await self._confirm(guid)
            left = set(self._manager.registry.public)
            own = Filter("machine", Relation.EQUALS, self._own)
            page = await self._page([own], 0, _PAGE)
            while page:
                for record in page:
                    self._keep(record)
                    left.discard(record.identifier)
                page = await self._page([own], page[-1].position, _PAGE)
            self._report(left)

    async def _locate_destinations(self) -> None:
        """Look up the destinations of outgoing queues of an earlier run, of which only the identifiers are stored.
        Those of messages that this queue manager passes on as a router are in the packets."""
        registry, stuck = self._manager.registry, {}
        for outgoing in list(registry.outgoing.values()):
            name = outgoing.destination
            if isinstance(name, names.PublicFormatName) and registry.place_of(name) is None:
                try:
                    await self._locate(name, Access.SEND)
                except MsmqError as error:
                    if outgoing.entries and outgoing.link is OutgoingState.NEED_VALIDATION:
                        stuck[str(name)] = str(error)
        for text, reason in stuck.items():
            if self._stuck.get(text) != reason:
                logger.warning("the outgoing queue for %s has messages that can't be sent: %s", text, reason)
        self._stuck = stuck

    async def _register(self) -> None:
        machine = self._manager.machine
        dns_names = tuple(name for name in (machine.qualified_name,) if "." in name)
        security = self._manager.authorization.machine.pack()
        try:
            keys = await asyncio.to_thread(self._published_keys)
        except (OSError, LookupError) as error:
            logger.error("cannot publish the keys of this queue manager in the directory: %s", error)
            keys = b""
        record = MachineRecord(self._own, machine.computer_name, dns_names, keys, security=security)
        await self.directory.ask(lambda d: d.register_machine(record), force=True)
        self._is_registered = True

    async def _confirm(self, guid: UUID) -> None:
        await self.directory.ask(lambda d: d.confirm_deletion(guid))

    async def _follow(self, guid: UUID) -> None:
        """Create a public queue of this machine from its directory entry, if it is opened before `synchronize` has
        found it."""
        async with self._changing:
            self._keep(await self.directory.ask(lambda d: d.queue(guid)))

    def _keep(self, record: QueueRecord) -> None:
        registry = self._manager.registry
        try:
            path = names.parse_path_name(record.path_name)
        except IllegalQueuePathName as error:  # created by another machine
            logger.error("%s, which the directory has for this machine, is not made: %s", record.path_name, error)
            return
        same_name = registry.queue_for_path_name(path)
        if same_name not in (None, registry.public.get(record.identifier)):
            logger.error(
                "the directory has %s with the identifier %s, but that queue is here with another one; delete one of "
                "them", record.path_name, record.identifier,
            )  # fmt: skip
            return
        try:
            self._manager.administration.keep_public(self.properties(record))
        except InsufficientResources as error:  # other machines have created too many queues here
            logger.error("%s, which the directory has for this machine, is not made: %s", record.path_name, error)

    def _drop(self, guid: UUID) -> None:
        queue = self._manager.registry.public.get(guid)
        if queue is not None:
            self._manager.administration.drop_public(queue)

    def _report(self, missing: Iterable[UUID]) -> None:
        """Log queues that are not in the directory. They are kept: a lost directory file must not delete messages."""
        for guid in set(missing) - self._missing:
            logger.error(
                "the directory does not have the public queue %s (%s) of this machine; nobody finds it, and it stays "
                "with its messages until it is deleted (`openmsmq queue delete`)",
                self._manager.registry.public[guid].properties.path_name, guid,
            )  # fmt: skip
        self._missing = set(missing)


def _with_local(properties: QueueProperties, local: QueueProperties | None) -> QueueProperties:
    if local is None:
        return properties
    return properties._replace(**{name: getattr(local, name) for name in LOCAL_PROPERTIES})


def _demand_no_local(before: QueueProperties, after: QueueProperties) -> None:
    """Raises MsmqError if a property changes that only the queue manager of the queue stores."""
    changed = [name for name in LOCAL_PROPERTIES if getattr(before, name) != getattr(after, name)]
    if changed:
        raise MsmqError(
            HResult.MQ_ERROR_PROPERTY_NOTALLOWED,
            f"{after.path_name}: {', '.join(changed)} can only be set on the queue manager of the queue",
        )


def record_of(properties: QueueProperties, machine: UUID) -> QueueRecord:
    """Return the directory's record of a queue."""
    values = {name: getattr(properties, name) for name in _SHARED}
    values["type"] = UUID(bytes_le=properties.type)
    return QueueRecord(identifier=UUID(bytes_le=properties.instance), machine=machine, **values)


def properties_of(record: QueueRecord) -> QueueProperties:
    """Return the properties in a directory record: the inverse of `record_of`."""
    values = {name: getattr(record, name) for name in _SHARED}
    values["type"] = record.type.bytes_le
    return QueueProperties(instance=record.identifier.bytes_le, **values)
