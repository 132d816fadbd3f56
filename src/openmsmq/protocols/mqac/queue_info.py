"""MSMQQueueInfo ([MC-MQAC] 3.10): a queue by its path name or format name, and its properties."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast
from uuid import UUID

from msrpc.dcom.server import CallContext
from msrpc.dcom.variant import Variant
from msrpc.hresults import ComResult
from openmsmq.directory.provider import QueueRecord
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model import names
from openmsmq.model.constants import INFINITE, Access, PropId, QueueAccessMask, Share
from openmsmq.model.errors import ComError, HResult, IllegalPropertyValue, MsmqError
from openmsmq.model.security import EVERYONE, SecurityDescriptor
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.mqac.naming import (
    after,
    format_name_in_directory,
    format_name_of,
    is_public_path,
    needs_lookup,
)
from openmsmq.protocols.mqac.objects import NOBODY, MqacObject, boolean, date
from openmsmq.protocols.public_queues import properties_of
from openmsmq.queueing.descriptors import OpenQueueDescriptor
from openmsmq.queueing.properties import PRIV_LEVEL_OPTIONAL, QueueProperties
from openmsmq.queueing.queue import Queue, QueueKind

T = TypeVar("T")

_ALL: Final = {
    PropId.PROPID_Q_INSTANCE: "instance", PropId.PROPID_Q_TYPE: "type", PropId.PROPID_Q_PATHNAME: "path_name",
    PropId.PROPID_Q_JOURNAL: "journaling", PropId.PROPID_Q_QUOTA: "quota", PropId.PROPID_Q_LABEL: "label",
    PropId.PROPID_Q_BASEPRIORITY: "base_priority", PropId.PROPID_Q_JOURNAL_QUOTA: "journal_quota",
    PropId.PROPID_Q_CREATE_TIME: "create_time", PropId.PROPID_Q_MODIFY_TIME: "modify_time",
    PropId.PROPID_Q_AUTHENTICATE: "authentication", PropId.PROPID_Q_PRIV_LEVEL: "privacy_level",
    PropId.PROPID_Q_TRANSACTION: "transactional", PropId.PROPID_Q_MULTICAST_ADDRESS: "multicast_address",
}  # fmt: skip
_PROPIDS: Final = {attribute: propid for propid, attribute in _ALL.items()}
_UNKNOWN: Final = QueueProperties("")
_WRITABLE: Final = (
    "type", "label", "journaling", "quota", "journal_quota", "base_priority", "authentication", "privacy_level",
    "multicast_address",
)  # fmt: skip
_FEW_KINDS: Final = (names.MulticastFormatName, names.MultipleElementFormatName, names.DistributionListFormatName)


def getter(read: Callable[[MSMQQueueInfo], Any]) -> Callable[[MSMQQueueInfo, CallContext], Any]:
    """Create the getter of a property of the queue; it calls Refresh if that has not been done (3.10.4.1)."""

    def get(self: MSMQQueueInfo, context: CallContext) -> Any:
        if self.is_refreshed:
            return read(self)
        return after(self.Refresh(context), lambda: read(self))

    return get


def of_application_queue(attribute: str, otherwise: Any) -> Callable[[MSMQQueueInfo], Any]:
    """Create the getter of a property that only application queues have; `otherwise` is its value for others."""
    return lambda self: getattr(self.properties, attribute) if self.is_application_queue else otherwise


def setter(
    attribute: str, allowed: tuple[int, ...] | None = None, convert: Callable[[Any], Any] = lambda value: value
) -> Callable[[MSMQQueueInfo, CallContext, Any], None]:
    """Create the setter of a property, which changes only this object until Create or Update."""

    def put(self: MSMQQueueInfo, context: CallContext, value: Any) -> None:
        if allowed is not None and value not in allowed:
            raise IllegalPropertyValue(detail=f"{attribute} is {value}, allowed: {', '.join(map(str, allowed))}")
        self.change(attribute, convert(value))

    return put


class _Opened(Protocol):
    """An MSMQQueue."""

    def attach(self, descriptor: OpenQueueDescriptor, info: MSMQQueueInfo) -> None: ...


class MSMQQueueInfo(MqacObject):
    """See the module. `changes` contains properties that were set but not written to the queue yet."""

    coclass = m.MSMQQueueInfo
    not_implemented: ClassVar[frozenset[str]] = frozenset(["get_Properties", "get_Security", "put_Security"])
    states: ClassVar[dict[str, str]] = {
        "get_ADsPath": "served with Active Directory; otherwise MQ_ERROR_UNSUPPORTED_OPERATION: no LDAP paths"
    }

    def __init__(self, environment: Environment, format_name: str | None = None) -> None:
        super().__init__(environment)
        self.format_name = format_name
        self._forget()

    def _forget(self) -> None:
        """3.10.3."""
        self.properties = _UNKNOWN
        self.changes: dict[str, Any] = {}
        self.path_name: str | None = None
        self.is_refreshed = self.is_application_queue = False

    def change(self, attribute: str, value: Any) -> None:
        """Set a property on behalf of the client."""
        self.changes[attribute] = value
        self.properties = self.properties._replace(**{attribute: value})

    # -- names of the queue ------------------------------------------------------------------------------------

    def get_PathName(self, context: CallContext) -> str | Awaitable[str | None] | None:
        """3.10.4.1.6. Raises MsmqError if no queue is named. Deviation D-194: a path name set by the client is returned
        unchanged, also before the queue is created."""
        if self.path_name is None and not self.is_refreshed:
            return after(self.Refresh(context), lambda: self.path_name)
        return self.path_name

    def put_PathName(self, context: CallContext, value: str | None) -> None:
        """3.10.4.1.7: the object now denotes another queue."""
        self.path_name, self.format_name = value, None
        self.is_refreshed = self.is_application_queue = False

    def get_FormatName(self, context: CallContext) -> str | Awaitable[str | None] | None:
        """3.10.4.1.8. Deviation D-78: if only the path name is set, the format name is computed, as in all other
        methods."""
        if self.format_name is None and self.path_name is not None:
            return self.with_name(str)
        return self.format_name

    def put_FormatName(self, context: CallContext, value: str | None) -> None:
        """3.10.4.1.9."""
        self.format_name, self.path_name = value, None
        self.is_refreshed = self.is_application_queue = False

    def name(self) -> names.FormatName:
        """Update QueueFormatName, 3.10.6.1. Raises MsmqError for a missing or invalid name."""
        if self.format_name is None:
            if not self.path_name:
                raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "neither PathName nor FormatName is set")
            self.format_name = str(format_name_of(self.environment, self.path_name))
        return names.parse_format_name(self.format_name)

    def with_name(self, then: Callable[[names.FormatName], T]) -> T | Awaitable[T]:
        """Return the result of `then` for the format name, immediately or after a directory lookup. Raises the errors
        of `name`."""
        if self.format_name is None and self.path_name and needs_lookup(self.environment, self.path_name):
            return after(self._look_up(self.path_name), lambda: then(self.name()))
        return then(self.name())

    async def _look_up(self, path_name: str) -> None:
        found = await format_name_in_directory(self.environment, path_name)
        if self.path_name == path_name:  # may have changed meanwhile
            self.format_name = found

    @property
    def _is_public(self) -> bool:
        """Whether the name denotes a public queue, which needs the directory. Raises MsmqError for a malformed name."""
        if not self.environment.directory.exists:
            return False
        if self.format_name is None:
            return bool(self.path_name) and is_public_path(self.path_name or "")
        return self._named_identifier(names.parse_format_name(self.format_name)) is not None

    async def _identifier(self) -> UUID:
        """Return Queue.Identifier of the public queue."""
        if self.format_name is None:
            await self._look_up(self.path_name or "")
        found = self._named_identifier(self.name())
        assert found is not None
        return found

    def _named_identifier(self, name: names.FormatName) -> UUID | None:
        """Return Queue.Identifier for the format name of a public queue: PUBLIC=, or the direct name of one of this
        machine. None for any other."""
        if isinstance(name, names.PublicFormatName):
            return name.guid if name.suffix is names.Suffix.NONE else None
        if not isinstance(name, names.DirectFormatName):
            return None
        queue = self.environment.manager.registry.local_queue(name)
        if queue is None or queue.kind is not QueueKind.PUBLIC:
            return None
        return UUID(bytes_le=queue.properties.instance)

    def _queue(self) -> Queue:
        """Return the local queue. Raises QueueNotFound, MsmqError."""
        name = self.name()
        if isinstance(name, _FEW_KINDS) or (isinstance(name, names.DirectFormatName) and name.is_http):
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, f"{name} is not the name of one queue")
        return self.environment.manager.registry.queue_for(name)

    # -- methods -----------------------------------------------------------------------------------------------

    def Create(
        self, context: CallContext, IsTransactional: Variant | None, IsWorldReadable: Variant | None
    ) -> Awaitable[None] | None:
        """3.10.4.1.26. The properties are those of refQueue: what the client has set, and what it has read from another
        queue before. Deviation D-230: IsWorldReadable does not change the default descriptor, which the settings of
        this queue manager determine."""
        boolean(IsWorldReadable, False)
        if not self.path_name:
            raise MsmqError(HResult.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME, "PathName is not set")
        known = {attribute: getattr(self.properties, attribute) for attribute in _WRITABLE}
        values = {
            int(_PROPIDS[attribute]): value
            for attribute, value in known.items()
            if attribute in self.changes or value != getattr(_UNKNOWN, attribute)
        }
        values[PropId.PROPID_Q_TRANSACTION] = int(boolean(IsTransactional, False))
        if self.environment.directory.exists and is_public_path(self.path_name):
            return self._create_public(context, self.path_name, values)
        manager = self.environment.manager
        queue = manager.administration.create_queue(self.path_name, values, None, self.caller(context))
        self.format_name = str(format_name_of(self.environment, self.path_name))
        self.is_application_queue = True
        self._take(queue.properties)
        return None

    async def _create_public(self, context: CallContext, path_name: str, values: dict[int, Any]) -> None:
        self.take(await self.environment.public_queues.create(path_name, values, self.caller(context)))

    def Delete(self, context: CallContext) -> Awaitable[None] | None:
        """3.10.4.1.27."""
        if self._is_public:
            return self._delete_public(context)
        self.environment.manager.administration.delete_queue(self._queue(), self.caller(context))
        self.format_name = None
        self._forget()
        return None

    async def _delete_public(self, context: CallContext) -> None:
        await self.environment.public_queues.delete(await self._identifier(), self.caller(context))
        self.format_name = None
        self._forget()

    def Open(self, context: CallContext, access: int, share: int) -> Any:
        """3.10.4.1.28."""
        try:
            wanted, sharing = Access(access), Share(share)
        except ValueError:
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE,
                f"Access {access:#x} with ShareMode {share}; allowed: 1 (receive), 2 (send), 0x20 (peek), the first "
                "and the last also with 0x80 (admin), and share modes 0 and 1",
            ) from None
        if wanted is Access.MOVE:
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, "access mode 4 is not supported here")
        return self.with_name(lambda name: self._resolved(context, name, wanted, sharing))

    def _resolved(self, context: CallContext, name: names.FormatName, access: Access, share: Share) -> Any:
        if not self.environment.public_queues.needs(name):
            return self._open(context, name, access, share)
        return self._resolve_and_open(context, name, access, share)

    async def _resolve_and_open(
        self, context: CallContext, name: names.FormatName, access: Access, share: Share
    ) -> _Opened:
        resolved = await self.environment.public_queues.resolve(name, access)
        return self._open(context, resolved, access, share)

    def _open(self, context: CallContext, name: names.FormatName, access: Access, share: Share) -> _Opened:
        queue = cast(_Opened, context.server.classes[m.MSMQQueue.uuid](context))  # its module needs this one
        descriptor = self.environment.manager.handles.open_queue(name, access, share, self.caller(context), NOBODY)
        queue.attach(descriptor, self)
        return queue

    def Refresh(self, context: CallContext) -> Awaitable[None] | None:
        """3.10.4.1.29."""
        if self._is_public:
            return self._refresh_public(context)
        queue = self._queue()
        self.is_application_queue = queue.kind is QueueKind.PRIVATE  # public ones are in the directory
        if self.is_application_queue:
            propids = [int(propid) for propid in _ALL]
            found = self.environment.manager.administration.get_properties(queue, propids, self.caller(context))
            known = dict(zip(_ALL.values(), found, strict=True))
            self._take(_UNKNOWN._replace(**known, security=queue.properties.security))
        else:
            self._take(_UNKNOWN._replace(path_name=queue.properties.path_name))
        return None

    async def _refresh_public(self, context: CallContext) -> None:
        guid = await self._identifier()
        self.take(await self.environment.public_queues.record(guid, self.caller(context)))

    def take(self, record: QueueRecord) -> None:
        """Set the properties from a directory record."""
        self.format_name = self.format_name or f"PUBLIC={record.identifier}"
        self.is_application_queue = True
        self._take(properties_of(record))

    def _take(self, properties: QueueProperties) -> None:
        self.properties = properties
        self.path_name = properties.path_name
        self.changes.clear()
        self.is_refreshed = True

    def Update(self, context: CallContext) -> Awaitable[None] | None:
        """3.10.4.1.30. Deviation D-79: only properties set by the client are written. The others of an object that was
        never refreshed are defaults and must not overwrite those of the queue."""
        values = {int(_PROPIDS[attribute]): value for attribute, value in self.changes.items()}
        if self._is_public:
            return self._update_public(context, values)
        queue = self._queue()
        if values:
            self.environment.manager.administration.set_properties(queue, values, self.caller(context))
        self.changes.clear()
        return None

    async def _update_public(self, context: CallContext, values: dict[int, Any]) -> None:
        await self.environment.public_queues.change(await self._identifier(), values, self.caller(context))
        self.changes.clear()

    # -- properties --------------------------------------------------------------------------------------------

    get_QueueGuid = getter(
        lambda self: str(UUID(bytes_le=self.properties.instance)) if self.is_application_queue else None
    )
    get_ServiceTypeGuid = getter(lambda self: str(UUID(bytes_le=self.properties.type)))
    get_Label = getter(lambda self: self.properties.label)
    put_Label = setter("label")
    get_IsTransactional = getter(lambda self: int(self.properties.transactional))
    get_IsTransactional2 = getter(lambda self: self.properties.transactional)
    get_PrivLevel = getter(of_application_queue("privacy_level", PRIV_LEVEL_OPTIONAL))
    put_PrivLevel = setter("privacy_level", (0, 1, 2))
    get_Journal = getter(lambda self: int(self.is_application_queue and self.properties.journaling))
    put_Journal = setter("journaling", convert=bool)  # 3.10.4.1.14: any value but MQ_JOURNAL_NONE
    get_Quota = getter(of_application_queue("quota", INFINITE))
    get_JournalQuota = getter(of_application_queue("journal_quota", INFINITE))
    get_BasePriority = getter(lambda self: self.properties.base_priority)
    get_CreateTime = getter(lambda self: date(self.properties.create_time))
    get_ModifyTime = getter(lambda self: date(self.properties.modify_time if self.is_application_queue else 0))
    get_Authenticate = getter(lambda self: int(self.is_application_queue and self.properties.authentication))
    put_Authenticate = setter("authentication", convert=bool)  # 3.10.4.1.22
    get_MulticastAddress = getter(lambda self: self.properties.multicast_address)

    def put_ServiceTypeGuid(self, context: CallContext, value: str | None) -> None:
        """3.10.4.1.3. Raises IllegalPropertyValue."""
        try:
            self.change("type", UUID(value or "").bytes_le)
        except ValueError:
            raise IllegalPropertyValue(detail=f"ServiceTypeGuid is {value!r}, not a GUID") from None

    def put_Quota(self, context: CallContext, value: int) -> None:
        """3.10.4.1.16, in kilobytes; -1 means no limit."""
        self.change("quota", value & 0xFFFFFFFF)

    def put_JournalQuota(self, context: CallContext, value: int) -> None:
        """3.10.4.1.24, in kilobytes."""
        self.change("journal_quota", value & 0xFFFFFFFF)

    def put_BasePriority(self, context: CallContext, value: int) -> None:
        """3.10.4.1.18: for public queues only."""
        if not (self.format_name or "").upper().startswith("PUBLIC=") or not -32768 <= value <= 32767:
            raise IllegalPropertyValue(detail="only public queues have a base priority, of -32768 to 32767")
        self.change("base_priority", value)

    def put_MulticastAddress(self, context: CallContext, value: str | None) -> None:
        """3.10.4.1.38."""
        self.change("multicast_address", value or "")

    def get_IsWorldReadable(self, context: CallContext) -> int:
        """3.10.4.1.25."""
        return int(self.get_IsWorldReadable2(context))

    def get_IsWorldReadable2(self, context: CallContext) -> bool:
        """3.10.4.1.36: whether Everyone may take ownership of the queue."""
        if not self.properties.security:
            return False
        descriptor = SecurityDescriptor.parse(self.properties.security)
        return descriptor.grants(frozenset([EVERYONE]), QueueAccessMask.TAKE_QUEUE_OWNERSHIP)

    def get_PathNameDNS(self, context: CallContext) -> Awaitable[str]:
        """3.10.4.1.31: for public queues."""
        if self._is_public:
            return self._path_name_dns(context)
        self._queue()
        raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_OPERATION, "only public queues have a DNS path name")

    async def _path_name_dns(self, context: CallContext) -> str:
        public_queues = self.environment.public_queues
        record = await public_queues.record(await self._identifier(), self.caller(context))
        return await public_queues.qualified_path_name(record)

    def get_ADsPath(self, context: CallContext) -> Awaitable[str]:
        """3.10.4.1.39: an LDAP path, if public queues are in Active Directory."""
        if self._is_public:
            return self._directory_path(context)
        self._queue()
        raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_OPERATION, "only public queues have a directory path")

    async def _directory_path(self, context: CallContext) -> str:
        path = await self.environment.public_queues.directory_path(await self._identifier(), self.caller(context))
        if not path:
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_OPERATION, "the directory of this server has no LDAP paths")
        return path


def info_of(environment: Environment, format_name: str) -> MSMQQueueInfo | None:
    """Return the value of a message property that names a queue; None (NULL) for an empty name. It is refreshed when a
    property is read (D-231)."""
    return MSMQQueueInfo(environment, format_name) if format_name else None


def queue_info(value: Any) -> MSMQQueueInfo | None:
    """Return an argument that must be an MSMQQueueInfo of this server or NULL. Raises ComError E_INVALIDARG."""
    if value is None or isinstance(value, MSMQQueueInfo):
        return value
    raise ComError(ComResult.E_INVALIDARG, "the argument is no MSMQQueueInfo of this server")
