"""MSMQManagement with its two further interfaces, and MSMQApplication ([MC-MQAC] 3.2 to 3.3.5): administration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, TypeVar
from uuid import UUID

from msrpc.dcom.server import CallContext
from msrpc.dcom.variant import VT, SafeArray, Variant
from msrpc.hresults import ComResult
from msrpc.ndr import Interface
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model import names
from openmsmq.model.errors import ComError, HResult, MsmqError
from openmsmq.protocols import management
from openmsmq.protocols.certificates import register, register_internal
from openmsmq.protocols.environment import MSMQ_VERSION, Environment
from openmsmq.protocols.mqac.collection import MSMQCollection
from openmsmq.protocols.mqac.naming import format_name_of
from openmsmq.protocols.mqac.objects import MqacObject, integer, octets_of, text, texts
from openmsmq.queueing.authorization import Caller, Right
from openmsmq.queueing.outgoing_queues import OutgoingQueue, SequenceInfo
from openmsmq.queueing.queue import Queue

T = TypeVar("T")

MQ_ERROR_UNINITIALIZED_OBJECT: Final = 0xC00E0094
_FOREIGN: Final = {"YES": m.MQ_STATUS_FOREIGN, "NO": m.MQ_STATUS_NOT_FOREIGN, "UNKNOWN": m.MQ_STATUS_UNKNOWN}
_TRANSACTIONAL: Final = {
    "YES": m.MQ_XACT_STATUS_XACT, "NO": m.MQ_XACT_STATUS_NOT_XACT, "UNKNOWN": m.MQ_XACT_STATUS_UNKNOWN,
}  # fmt: skip
_TYPES: Final = {
    "PUBLIC": m.MQ_TYPE_PUBLIC, "PRIVATE": m.MQ_TYPE_PRIVATE, "MACHINE": m.MQ_TYPE_MACHINE,
    "CONNECTOR": m.MQ_TYPE_CONNECTOR, "MULTICAST": m.MQ_TYPE_MULTICAST,
}  # fmt: skip
_STATES: Final = {
    "LOCAL CONNECTION": m.MQ_QUEUE_STATE_LOCAL_CONNECTION, "DISCONNECTED": m.MQ_QUEUE_STATE_DISCONNECTED,
    "WAITING": m.MQ_QUEUE_STATE_WAITING, "NEED VALIDATION": m.MQ_QUEUE_STATE_NEEDVALIDATE,
    "ONHOLD": m.MQ_QUEUE_STATE_ONHOLD, "INACTIVE": m.MQ_QUEUE_STATE_NONACTIVE, "CONNECTED": m.MQ_QUEUE_STATE_CONNECTED,
    "DISCONNECTING": m.MQ_QUEUE_STATE_DISCONNECTING, "LOCKED": m.MQ_QUEUE_STATE_LOCKED,
}  # fmt: skip


class Remote:
    """A machine that is queried through MS-MQMR. This queue manager queries it with its own login, so callers need the
    rights here, too (deviation D-121)."""

    def __init__(self, environment: Environment, machine: str) -> None:
        self.machine: Final = machine
        self._environment: Final = environment

    async def derived(self, caller: Caller, name: str | None, wanted: tuple[str, ...], convert: Callable[..., T]) -> T:
        """Return the result of `convert` for properties of a queue, or of the machine. Raises MsmqError."""
        self._environment.manager.authorization.authorize(caller, None, Right.SEE)
        values = await self._environment.remote.management(self.machine, name, *wanted)
        try:
            return convert(*[values[one] for one in wanted])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MsmqError(HResult.MQ_ERROR, f"{self.machine} answered with what can't be used: {error!r}") from error

    async def act(self, caller: Caller, name: str | None, action: str) -> None:
        """Perform an action on a queue, or on the machine if `name` is None. Raises MsmqError."""
        act = f"{action} {name or 'the machine'} of {self.machine}"
        self._environment.manager.authorization.authorize(caller, None, Right.ADMINISTER, act)
        await self._environment.remote.act(self.machine, name, action)


def remote(environment: Environment, machine: str | None) -> Remote | None:
    """Return a `Remote` for another machine; None for this one."""
    return Remote(environment, machine) if machine and not environment.manager.machine.is_local(machine) else None


class MSMQManagement(MqacObject):
    """3.3: management of a queue. After Init, it has one of the two further interfaces."""

    coclass = m.MSMQManagement

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._name: names.FormatName | None = None
        self._remote: Remote | None = None
        self._text = ""
        self._is_outgoing = False

    @classmethod
    def interfaces(cls) -> tuple[Interface, ...]:
        return (m.IMSMQManagement, m.IMSMQOutgoingQueueManagement, m.IMSMQQueueManagement)

    def query(self, iid: UUID) -> bool:
        """3.3.5, 3.4: an object for an outgoing queue lacks the interface for local queues, and vice versa. Before
        Init it has both (D-234)."""
        if self._name is not None:
            hidden = m.IMSMQQueueManagement if self._is_outgoing else m.IMSMQOutgoingQueueManagement
            if iid == hidden.uuid:
                return False
        return super().query(iid)

    def Init(
        self, context: CallContext, Machine: Variant | None, Pathname: Variant | None, FormatName: Variant | None
    ) -> Awaitable[None] | None:
        """3.3.4.1.1; also for a queue that is not active (D-232)."""
        path, name = text(Pathname), text(FormatName)
        if bool(path) == bool(name):
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "Pathname or FormatName is set, and only one of them")
        found = format_name_of(self.environment, path) if path else names.parse_format_name(name or "")
        elsewhere = remote(self.environment, text(Machine))
        if elsewhere is not None:
            return self._init_remotely(context, elsewhere, found)
        queue = self.environment.manager.registry.administered(found)
        self._authorize(context, queue)
        self._initialized(found, None, isinstance(queue, OutgoingQueue))
        return None

    async def _init_remotely(self, context: CallContext, elsewhere: Remote, name: names.FormatName) -> None:
        is_outgoing = await elsewhere.derived(
            self.caller(context), str(name), ("location",), lambda location: location.upper() == "REMOTE"
        )
        self._initialized(name, elsewhere, is_outgoing)

    def _initialized(self, name: names.FormatName, elsewhere: Remote | None, is_outgoing: bool) -> None:
        self._name, self._text, self._remote, self._is_outgoing = name, str(name), elsewhere, is_outgoing

    def _queue(self, context: CallContext) -> Queue:
        """Return the queue. Raises MsmqError if it does not exist or the caller has no access."""
        queue = self.environment.manager.registry.administered(self._initialized_name())
        self._authorize(context, queue)
        return queue

    def _initialized_name(self) -> names.FormatName:
        """Return the format name set by Init. Raises MsmqError MQ_ERROR_UNINITIALIZED_OBJECT."""
        if self._name is None:
            raise MsmqError(MQ_ERROR_UNINITIALIZED_OBJECT, "Init has not been called")
        return self._name

    def _authorize(self, context: CallContext, queue: Queue) -> None:
        self.environment.manager.authorization.authorize(self.caller(context), queue, Right.SEE)

    def _derived(self, context: CallContext, wanted: str, convert: Callable[..., T]) -> T | Awaitable[T]:
        """Return the result of `convert` for the properties named in `wanted`."""
        self._initialized_name()
        named = tuple(wanted.split())
        if self._remote is not None:
            return self._remote.derived(self.caller(context), self._text, named, convert)
        queue = self._queue(context)
        return convert(*[management.QUEUE[name](self.environment.manager, queue) for name in named])

    # -- IMSMQManagement ---------------------------------------------------------------------------------------

    def get_FormatName(self, context: CallContext) -> str:
        """3.3.4.1.2: the name given to Init, also after the queue was deleted."""
        self._initialized_name()
        return self._text

    def get_Machine(self, context: CallContext) -> str:
        """3.3.4.1.3."""
        self._initialized_name()
        return self.environment.manager.machine.computer_name if self._remote is None else self._remote.machine

    def get_MessageCount(self, context: CallContext) -> int | Awaitable[int]:
        """3.3.4.1.4."""
        return self._derived(context, "message_count", int)

    def get_ForeignStatus(self, context: CallContext) -> int | Awaitable[int]:
        """3.3.4.1.5."""
        return self._derived(context, "foreign", lambda value: _FOREIGN[value.upper()])

    def get_QueueType(self, context: CallContext) -> int | Awaitable[int]:
        """3.3.4.1.6."""
        return self._derived(context, "type", lambda value: _TYPES[value.upper()])

    def get_IsLocal(self, context: CallContext) -> bool | Awaitable[bool]:
        """3.3.4.1.7: whether the queue is on the managed machine, so not an outgoing queue."""
        return self._derived(context, "location", lambda value: value.upper() == "LOCAL")

    def get_TransactionalStatus(self, context: CallContext) -> int | Awaitable[int]:
        """3.3.4.1.8."""
        return self._derived(context, "transactional", lambda value: _TRANSACTIONAL[value.upper()])

    def get_BytesInQueue(self, context: CallContext) -> Variant | Awaitable[Variant]:
        """3.3.4.1.9."""
        return self._derived(context, "bytes_in_queue", lambda value: Variant(VT.UI8, int(value)))

    # -- IMSMQQueueManagement ----------------------------------------------------------------------------------

    def get_JournalMessageCount(self, context: CallContext) -> int | Awaitable[int]:
        """3.4.4.1.1."""
        return self._derived(context, "journal_message_count", int)

    def get_BytesInJournal(self, context: CallContext) -> Variant | Awaitable[Variant]:
        """3.4.4.1.2."""
        return self._derived(context, "bytes_in_journal", lambda value: Variant(VT.UI8, int(value)))

    def EodGetReceiveInfo(self, context: CallContext) -> Variant | Awaitable[Variant]:
        """3.4.4.1.3: a collection for each queue manager that transfers transactional messages to the queue."""

        def convert(rows: list[Any] | None) -> Variant:
            collections = [_collection(self.environment, row) for row in rows or []]
            return Variant(VT.ARRAY | VT.VARIANT, SafeArray.of(VT.VARIANT, collections))

        return self._derived(context, "eod_source_info", convert)

    # -- IMSMQOutgoingQueueManagement --------------------------------------------------------------------------

    def _demand_outgoing(self) -> None:
        self._initialized_name()
        if not self._is_outgoing:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"{self._text} is not an outgoing queue")

    def get_State(self, context: CallContext) -> int | Awaitable[int]:
        """3.3.5.1.1."""
        self._demand_outgoing()
        return self._derived(context, "state", lambda value: _STATES[value.upper()])

    def get_NextHops(self, context: CallContext) -> Variant | Awaitable[Variant]:
        """3.3.5.1.2."""
        self._demand_outgoing()
        return self._derived(context, "next_hops", lambda value: texts(value or []))

    def EodGetSendInfo(self, context: CallContext) -> MSMQCollection | Awaitable[MSMQCollection]:
        """3.3.5.1.3."""
        self._demand_outgoing()

        def convert(*values: Any) -> MSMQCollection:
            found = dict(zip(_SEND_INFO, values, strict=True))
            return MSMQCollection(
                self.environment,
                {name: _SEND_INFO[name][1](self.environment, value) for name, value in found.items()},
            )

        return self._derived(context, " ".join(name for name, _ in _SEND_INFO.values()), convert)

    def Pause(self, context: CallContext) -> Awaitable[None] | None:
        """3.3.5.1.5."""
        return self._act(context, "PAUSE")

    def Resume(self, context: CallContext) -> Awaitable[None] | None:
        """3.3.5.1.4."""
        return self._act(context, "RESUME")

    def EodResend(self, context: CallContext) -> Awaitable[None] | None:
        """3.3.5.1.6."""
        return self._act(context, "EOD_RESEND")

    def _act(self, context: CallContext, action: str) -> Awaitable[None] | None:
        self._demand_outgoing()
        if self._remote is not None:
            return self._remote.act(self.caller(context), self._text, action)
        queue, manager = self._queue(context), self.environment.manager
        if not isinstance(queue, OutgoingQueue):
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"{self._text} is not an outgoing queue")
        manager.authorization.authorize(self.caller(context), None, Right.ADMINISTER, f"{action} {self._text}")
        actions = {
            "PAUSE": manager.outgoing.pause,
            "RESUME": manager.outgoing.resume,
            "EOD_RESEND": manager.outgoing.transport.resend,
        }
        actions[action](queue)
        return None


class MSMQOutgoingQueueManagement(MSMQManagement):
    """3.3.5: the same object under another class identifier."""

    coclass = m.MSMQOutgoingQueueManagement


class MSMQQueueManagement(MSMQManagement):
    """3.4: the same object under another class identifier."""

    coclass = m.MSMQQueueManagement


def _sequence(environment: Environment, value: tuple[int, int, int] | dict[str, int] | None) -> Variant:
    """SequenceInfoCollection, 2.2.7, from a value of this queue manager or the answer of another one."""
    info = SequenceInfo(**value) if isinstance(value, dict) else SequenceInfo(*(value or (0, 0, 0)))
    return Variant(VT.DISPATCH, MSMQCollection(environment, {
        "SeqID": Variant(VT.UI8, info.identifier), "SeqNo": Variant(VT.I4, info.number),
        "PrevNo": Variant(VT.I4, info.previous),
    }))  # fmt: skip


def _number(environment: Environment, value: int | None) -> Variant:
    return Variant(VT.UI4, value or 0)  # 2.2.4.2


def _time(environment: Environment, value: int | None) -> Variant:
    return Variant(VT.I4, value or 0)  # a time_t, 2.2.4.1, 2.2.4.2


# OutgoingTransferInfo, 2.2.6: the property of each member, and its conversion.
_SEND_INFO: Final[dict[str, tuple[str, Callable[[Environment, Any], Variant]]]] = {
    "EodLastAck": ("eod_last_ack", _sequence),
    "EodLastAckTime": ("eod_last_ack_time", _time),
    "EodLastAckCount": ("eod_last_ack_count", _number),
    "EodFirstNonAck": ("eod_first_non_ack", _sequence),
    "EodLastNonAck": ("eod_last_non_ack", _sequence),
    "EodNextSeq": ("eod_next_seq", _sequence),
    "EodNoReadCount": ("eod_no_read_count", _number),
    "EodNoAckCount": ("eod_no_ack_count", _number),
    "EodResendTime": ("eod_resend_time", _time),
    "EodResendInterval": ("eod_resend_interval", _number),
    "EodResendCount": ("eod_resend_count", _number),
}


def _collection(environment: Environment, row: tuple[Any, ...] | dict[str, Any]) -> Variant:
    """IncomingTransactionalTransferInfo, 2.2.5, from a row of PROPID_MGMT_QUEUE_EOD_SOURCE_INFO."""
    format_name, sender, identifier, number, last_access, rejects = row.values() if isinstance(row, dict) else row
    sender = UUID(bytes_le=sender) if isinstance(sender, bytes) else UUID(sender)
    values = {
        "QueueFormatName": Variant(VT.BSTR, format_name), "SenderID": Variant(VT.BSTR, str(sender)),
        "SeqID": Variant(VT.UI8, identifier), "SeqNo": Variant(VT.I4, number),
        "LastAccessTime": _time(environment, last_access), "RejectCount": Variant(VT.I4, rejects),
    }  # fmt: skip
    return Variant(VT.DISPATCH, MSMQCollection(environment, values))


class MSMQApplication(MqacObject):
    """3.2: the machine."""

    coclass = m.MSMQApplication
    states: ClassVar[dict[str, str]] = {
        "get_DirectoryServiceServer": "MQ_ERROR_NO_DS: the directory is a file, with no server",
    }
    not_implemented: ClassVar[frozenset[str]] = frozenset(["get_Properties"])

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._computer_name: str | None = None

    def _local_only(self) -> None:
        if self._computer_name is not None:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "not supported if Machine is set")

    def _derived(self, context: CallContext, name: str, convert: Callable[[Any], T]) -> T | Awaitable[T]:
        """Return the result of `convert` for a property of the machine."""
        elsewhere = remote(self.environment, self._computer_name)
        if elsewhere is not None:
            return elsewhere.derived(self.caller(context), None, (name,), convert)
        manager = self.environment.manager
        manager.authorization.authorize(self.caller(context), None, Right.SEE)
        return convert(management.MACHINE[name](manager))

    def _act(self, context: CallContext, action: str, locally: Callable[[], object]) -> Awaitable[None] | None:
        """Perform an action on the machine: `locally` here, or through MS-MQMR on another machine."""
        elsewhere = remote(self.environment, self._computer_name)
        if elsewhere is not None:
            return elsewhere.act(self.caller(context), None, action)
        caller = self.caller(context)
        self.environment.manager.authorization.authorize(caller, None, Right.ADMINISTER, f"{action} the machine")
        locally()
        return None

    # -- the directory -----------------------------------------------------------------------------------------

    def MachineIdOfMachineName(self, context: CallContext, MachineName: str | None) -> str | Awaitable[str]:
        """3.2.4.1.1: without a directory, only this machine is known."""
        machine = self.environment.manager.machine
        if not MachineName or machine.is_local(MachineName):
            return str(UUID(bytes_le=machine.identifier)).upper()
        if self.environment.directory.exists:
            return self._identifier_of(MachineName)
        raise MsmqError(HResult.MQ_ERROR_MACHINE_NOT_FOUND, f"{MachineName}: there is no directory to look it up in")

    async def _identifier_of(self, name: str) -> str:
        return str((await self.environment.public_queues.machine_named(name)).identifier).upper()

    def MachineNameOfMachineId(self, context: CallContext, bstrGuid: str | None) -> str | Awaitable[str]:
        """3.2.4.2.2."""
        machine = self.environment.manager.machine
        try:
            wanted = UUID(bstrGuid or "")
        except ValueError:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"{bstrGuid!r} is no GUID") from None
        if wanted.bytes_le == machine.identifier:
            return machine.computer_name
        if self.environment.directory.exists:
            return self._name_of(wanted)
        raise MsmqError(HResult.MQ_ERROR_MACHINE_NOT_FOUND, f"cannot look up {wanted}, because there is no directory")

    async def _name_of(self, guid: UUID) -> str:
        return (await self.environment.public_queues.machine(guid)).computer_name

    async def RegisterCertificate(
        self, context: CallContext, Flags: Variant | None, ExternalCertificate: Variant | None
    ) -> HResult | None:
        """3.2.4.2.1: registers the given certificate, or one that the queue manager creates and with whose key it signs
        for the caller."""
        if self._computer_name is not None:
            raise ComError(ComResult.E_NOTIMPL, "not supported if Machine is set")
        flags = integer(Flags, m.MQCERT_REGISTER_ALWAYS)
        if flags not in (m.MQCERT_REGISTER_ALWAYS, m.MQCERT_REGISTER_IF_NOT_EXIST):
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"Flags is {flags}, allowed: 1 and 2")
        given = None
        if ExternalCertificate is not None and ExternalCertificate.resolved.vt not in (VT.EMPTY, VT.NULL):
            given = octets_of(ExternalCertificate)
        if given is not None and flags == m.MQCERT_REGISTER_IF_NOT_EXIST:
            raise MsmqError(
                HResult.MQ_ERROR_INVALID_PARAMETER, "MQCERT_REGISTER_IF_NOT_EXIST cannot be combined with a certificate"
            )
        if not self.environment.directory.exists:
            raise MsmqError(HResult.MQ_ERROR_NO_DS, "certificates are registered in a directory, and there is none")
        sid, directory = context.call.caller.sid, self.environment.directory
        if given is not None:
            await register(directory, sid, given)
            return None
        always = flags == m.MQCERT_REGISTER_ALWAYS
        made = await register_internal(directory, self.environment.message_security, sid, always)
        return None if made else HResult.MQ_INFORMATION_INTERNAL_USER_CERT_EXIST

    def get_IsDsEnabled(self, context: CallContext) -> bool:
        """3.2.4.2.6."""
        self._local_only()
        return self.environment.directory.exists

    def get_DirectoryServiceServer(self, context: CallContext) -> str | Awaitable[str]:
        """3.2.4.3.3."""

        def convert(server: str | None) -> str:
            if not server:
                raise MsmqError(HResult.MQ_ERROR_NO_DS, "there is no directory service")
            return server

        return self._derived(context, "ds_server", convert)

    # -- the machine -------------------------------------------------------------------------------------------

    def _version(self, part: int) -> int:
        self._local_only()
        return int(MSMQ_VERSION.split(".")[part])

    def get_MSMQVersionMajor(self, context: CallContext) -> int:
        """3.2.4.2.3."""
        return self._version(0)

    def get_MSMQVersionMinor(self, context: CallContext) -> int:
        """3.2.4.2.4."""
        return self._version(1)

    def get_MSMQVersionBuild(self, context: CallContext) -> int:
        """3.2.4.2.5."""
        return self._version(2)

    def ActiveQueues(self, context: CallContext) -> Variant | Awaitable[Variant]:
        """3.2.4.3.1."""
        return self._derived(context, "active_queues", lambda value: texts(value or []))

    def get_PrivateQueues(self, context: CallContext) -> Variant | Awaitable[Variant]:
        """3.2.4.3.2."""
        return self._derived(context, "private_queues", lambda value: texts(value or []))

    def get_IsConnected(self, context: CallContext) -> bool | Awaitable[bool]:
        """3.2.4.3.4."""
        return self._derived(context, "connected", lambda value: value.upper() == "CONNECTED")

    def get_BytesInAllQueues(self, context: CallContext) -> Variant | Awaitable[Variant]:
        """3.2.4.3.5."""
        return self._derived(context, "bytes_in_all_queues", lambda value: Variant(VT.I8, int(value)))

    def get_Machine(self, context: CallContext) -> str:
        """3.2.4.3.7."""
        return self._computer_name or self.environment.manager.machine.computer_name

    def put_Machine(self, context: CallContext, value: str | None) -> None:
        """3.2.4.3.6."""
        self._computer_name = value or None

    def Connect(self, context: CallContext) -> Awaitable[None] | None:
        """3.2.4.3.8."""
        return self._act(context, "CONNECT", lambda: self.environment.manager.outgoing.set_online(True))

    def Disconnect(self, context: CallContext) -> Awaitable[None] | None:
        """3.2.4.3.9."""
        return self._act(context, "DISCONNECT", lambda: self.environment.manager.outgoing.set_online(False))

    def Tidy(self, context: CallContext) -> Awaitable[None] | None:
        """3.2.4.3.10: releases unused space of the store. Deviation D-56: purges nothing."""
        return self._act(context, "TIDY", self.environment.tidy)
