"""MSMQManagement with its two faces, and MSMQApplication ([MC-MQAC] 3.2 to 3.3.5): what administrators see and do."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, ClassVar, Final
from uuid import UUID

from openmsmq.dcom.hresults import ComError, ComResult
from openmsmq.dcom.server import CallContext
from openmsmq.dcom.variant import VT, SafeArray, Variant
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model import names
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.ndr import Interface
from openmsmq.protocols import management
from openmsmq.protocols.certificates import register, register_internal
from openmsmq.protocols.environment import MSMQ_VERSION, Environment
from openmsmq.protocols.mqac.collection import MSMQCollection
from openmsmq.protocols.mqac.naming import format_name_of
from openmsmq.protocols.mqac.objects import MqacObject, date, integer, octets_of, text, texts
from openmsmq.queueing.authorization import Right
from openmsmq.queueing.outgoing_queues import OutgoingQueue, SequenceInfo
from openmsmq.queueing.queue import Queue

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


class MSMQManagement(MqacObject):
    """3.3: a queue as the queue manager has it. Which of the two further interfaces it has is known after Init."""

    coclass = m.MSMQManagement

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._name: names.FormatName | None = None
        self._text = ""
        self._is_outgoing = False

    @classmethod
    def interfaces(cls) -> tuple[Interface, ...]:
        return (m.IMSMQManagement, m.IMSMQOutgoingQueueManagement, m.IMSMQQueueManagement)

    def query(self, iid: UUID) -> bool:
        """3.3.5, 3.4: an object for an outgoing queue has not the interface for queues of this machine, and the other
        has not that for outgoing ones."""
        if self._name is not None:
            hidden = m.IMSMQQueueManagement if self._is_outgoing else m.IMSMQOutgoingQueueManagement
            if iid == hidden.uuid:
                return False
        return super().query(iid)

    def Init(
        self, context: CallContext, Machine: Variant | None, Pathname: Variant | None, FormatName: Variant | None
    ) -> None:
        """3.3.4.1.1."""
        path, name = text(Pathname), text(FormatName)
        if bool(path) == bool(name):
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "Pathname or FormatName is set, and only one of them")
        self._demand_local(text(Machine))
        found = format_name_of(self.environment, path) if path else names.parse_format_name(name or "")
        queue = self.environment.manager.registry.administered(found)
        self._authorize(context, queue)
        self._name, self._text, self._is_outgoing = found, str(found), isinstance(queue, OutgoingQueue)

    def _demand_local(self, machine: str | None) -> None:
        if machine and not self.environment.manager.machine.is_local(machine):
            raise MsmqError(
                HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE,
                f"{machine}: only this machine is managed through this object",
            )

    def _queue(self, context: CallContext) -> Queue:
        """Raises MsmqError MQ_ERROR_UNINITIALIZED_OBJECT, or what the queue is not there with."""
        if self._name is None:
            raise MsmqError(MQ_ERROR_UNINITIALIZED_OBJECT, "Init has not been called")
        queue = self.environment.manager.registry.administered(self._name)
        self._authorize(context, queue)
        return queue

    def _authorize(self, context: CallContext, queue: Queue) -> None:
        self.environment.manager.authorization.authorize(self.caller(context), queue, Right.SEE)

    def _value(self, context: CallContext, name: str) -> Any:
        return management.QUEUE[name](self.environment.manager, self._queue(context))

    # -- IMSMQManagement ---------------------------------------------------------------------------------------

    def get_FormatName(self, context: CallContext) -> str:
        """3.3.4.1.2."""
        self._queue(context)
        return self._text

    def get_Machine(self, context: CallContext) -> str:
        """3.3.4.1.3."""
        self._queue(context)
        return self.environment.manager.machine.computer_name

    def get_MessageCount(self, context: CallContext) -> int:
        """3.3.4.1.4."""
        count: int = self._value(context, "message_count")
        return count

    def get_ForeignStatus(self, context: CallContext) -> int:
        """3.3.4.1.5."""
        return _FOREIGN[self._value(context, "foreign")]

    def get_QueueType(self, context: CallContext) -> int:
        """3.3.4.1.6."""
        return _TYPES[self._value(context, "type")]

    def get_IsLocal(self, context: CallContext) -> bool:
        """3.3.4.1.7."""
        return bool(self._value(context, "location") == "LOCAL")

    def get_TransactionalStatus(self, context: CallContext) -> int:
        """3.3.4.1.8."""
        return _TRANSACTIONAL[self._value(context, "transactional")]

    def get_BytesInQueue(self, context: CallContext) -> Variant:
        """3.3.4.1.9."""
        return Variant(VT.UI8, self._value(context, "bytes_in_queue"))

    # -- IMSMQQueueManagement ----------------------------------------------------------------------------------

    def get_JournalMessageCount(self, context: CallContext) -> int:
        """3.4.4.1.1."""
        count: int = self._value(context, "journal_message_count")
        return count

    def get_BytesInJournal(self, context: CallContext) -> Variant:
        """3.4.4.1.2."""
        return Variant(VT.UI8, self._value(context, "bytes_in_journal"))

    def EodGetReceiveInfo(self, context: CallContext) -> Variant:
        """3.4.4.1.3: a collection for each queue manager that transfers transactional messages to the queue."""
        collections = [_collection(self.environment, info) for info in self._value(context, "eod_source_info")]
        return Variant(VT.ARRAY | VT.VARIANT, SafeArray.of(VT.VARIANT, collections))

    # -- IMSMQOutgoingQueueManagement --------------------------------------------------------------------------

    def _outgoing(self, context: CallContext) -> OutgoingQueue:
        queue = self._queue(context)
        if not isinstance(queue, OutgoingQueue):
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"{self._text} is no outgoing queue")
        return queue

    def get_State(self, context: CallContext) -> int:
        """3.3.5.1.1."""
        self._outgoing(context)
        return _STATES[self._value(context, "state")]

    def get_NextHops(self, context: CallContext) -> Variant:
        """3.3.5.1.2."""
        self._outgoing(context)
        return texts(self._value(context, "next_hops") or [])

    def EodGetSendInfo(self, context: CallContext) -> MSMQCollection:
        """3.3.5.1.3."""
        info = self._outgoing(context).transfer_info
        return MSMQCollection(self.environment, {
            "EodLastAck": Variant(VT.DISPATCH, _sequence(self.environment, info.eod_last_ack)),
            "EodLastAckTime": date(info.eod_last_ack_time),
            "EodLastAckCount": Variant(VT.I4, info.eod_last_ack_count),
            "EodFirstNonAck": Variant(VT.DISPATCH, _sequence(self.environment, info.eod_first_non_ack)),
            "EodLastNonAck": Variant(VT.DISPATCH, _sequence(self.environment, info.eod_last_non_ack)),
            "EodNextSeq": Variant(VT.DISPATCH, _sequence(self.environment, info.eod_next_seq)),
            "EodNoReadCount": Variant(VT.I4, info.eod_no_read_count),
            "EodNoAckCount": Variant(VT.I4, info.eod_no_ack_count),
            "EodResendTime": date(info.eod_resend_time),
            "EodResendInterval": Variant(VT.I4, info.eod_resend_interval),
            "EodResendCount": Variant(VT.I4, info.eod_resend_count),
        })  # fmt: skip

    def Pause(self, context: CallContext) -> None:
        """3.3.5.1.5."""
        self._act(context, "PAUSE")

    def Resume(self, context: CallContext) -> None:
        """3.3.5.1.4."""
        self._act(context, "RESUME")

    def EodResend(self, context: CallContext) -> None:
        """3.3.5.1.6."""
        self._act(context, "EOD_RESEND")

    def _act(self, context: CallContext, action: str) -> None:
        queue, manager = self._outgoing(context), self.environment.manager
        manager.authorization.authorize(self.caller(context), None, Right.ADMINISTER)
        actions = {
            "PAUSE": manager.outgoing.pause,
            "RESUME": manager.outgoing.resume,
            "EOD_RESEND": manager.outgoing.transport.resend,
        }
        actions[action](queue)


class MSMQOutgoingQueueManagement(MSMQManagement):
    """3.3.5: the same object under another class identifier."""

    coclass = m.MSMQOutgoingQueueManagement


class MSMQQueueManagement(MSMQManagement):
    """3.4: the same object under another class identifier."""

    coclass = m.MSMQQueueManagement


def _sequence(environment: Environment, info: SequenceInfo) -> MSMQCollection:
    """SequenceInfoCollection, 2.2.7."""
    return MSMQCollection(environment, {
        "SeqID": Variant(VT.UI8, info.identifier), "SeqNo": Variant(VT.I4, info.number),
        "PrevNo": Variant(VT.I4, info.previous),
    })  # fmt: skip


def _collection(environment: Environment, row: tuple[Any, ...]) -> Variant:
    """IncomingTransactionalTransferInfo, 2.2.5, of a row of PROPID_MGMT_QUEUE_EOD_SOURCE_INFO."""
    format_name, sender, identifier, number, last_access, rejects = row
    values = {
        "QueueFormatName": Variant(VT.BSTR, format_name), "SenderID": Variant(VT.BSTR, str(UUID(bytes_le=sender))),
        "SeqID": Variant(VT.UI8, identifier), "SeqNo": Variant(VT.I4, number), "LastAccessTime": date(last_access),
        "RejectCount": Variant(VT.I4, rejects),
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
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "only where Machine has not been set")

    def _authorize(self, context: CallContext, right: Right = Right.SEE) -> None:
        machine = self._computer_name
        manager = self.environment.manager
        if machine is not None and not manager.machine.is_local(machine):
            raise MsmqError(
                HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE,
                f"{machine}: only this machine is managed through this object",
            )
        manager.authorization.authorize(self.caller(context), None, right)

    def _value(self, context: CallContext, name: str) -> Any:
        self._authorize(context)
        return management.MACHINE[name](self.environment.manager)

    # -- the directory -----------------------------------------------------------------------------------------

    def MachineIdOfMachineName(self, context: CallContext, MachineName: str | None) -> str | Awaitable[str]:
        """3.2.4.1.1: without a directory this machine alone is known."""
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
        raise MsmqError(HResult.MQ_ERROR_MACHINE_NOT_FOUND, f"{wanted}: there is no directory to look it up in")

    async def _name_of(self, guid: UUID) -> str:
        return (await self.environment.public_queues.machine(guid)).computer_name

    async def RegisterCertificate(
        self, context: CallContext, Flags: Variant | None, ExternalCertificate: Variant | None
    ) -> HResult | None:
        """3.2.4.2.1: a certificate that is given, or one that the queue manager makes, by whose key it signs for the
        caller."""
        if self._computer_name is not None:
            raise ComError(ComResult.E_NOTIMPL, "only where Machine has not been set")
        flags = integer(Flags, m.MQCERT_REGISTER_ALWAYS)
        if flags not in (m.MQCERT_REGISTER_ALWAYS, m.MQCERT_REGISTER_IF_NOT_EXIST):
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"Flags is {flags}, allowed: 1 and 2")
        given = octets_of(ExternalCertificate) if ExternalCertificate is not None else b""
        if given and flags == m.MQCERT_REGISTER_IF_NOT_EXIST:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "MQCERT_REGISTER_IF_NOT_EXIST with a certificate")
        if not self.environment.directory.exists:
            raise MsmqError(HResult.MQ_ERROR_NO_DS, "certificates are registered in a directory, and there is none")
        sid, directory = context.call.caller.sid, self.environment.directory
        if given:
            await register(directory, sid, given)
            return None
        always = flags == m.MQCERT_REGISTER_ALWAYS
        made = await register_internal(directory, self.environment.message_security, sid, always)
        return None if made else HResult.MQ_INFORMATION_INTERNAL_USER_CERT_EXIST

    def get_IsDsEnabled(self, context: CallContext) -> bool:
        """3.2.4.2.6."""
        self._local_only()
        return self.environment.directory.exists

    def get_DirectoryServiceServer(self, context: CallContext) -> str:
        """3.2.4.3.3."""
        self._authorize(context)
        raise MsmqError(HResult.MQ_ERROR_NO_DS, "there is no directory service")

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

    def ActiveQueues(self, context: CallContext) -> Variant:
        """3.2.4.3.1."""
        return texts(self._value(context, "active_queues"))

    def get_PrivateQueues(self, context: CallContext) -> Variant:
        """3.2.4.3.2."""
        return texts(self._value(context, "private_queues"))

    def get_IsConnected(self, context: CallContext) -> bool:
        """3.2.4.3.4."""
        return bool(self._value(context, "connected") == "CONNECTED")

    def get_BytesInAllQueues(self, context: CallContext) -> Variant:
        """3.2.4.3.5."""
        return Variant(VT.I8, self._value(context, "bytes_in_all_queues"))

    def get_Machine(self, context: CallContext) -> str:
        """3.2.4.3.7."""
        return self._computer_name or self.environment.manager.machine.computer_name

    def put_Machine(self, context: CallContext, value: str | None) -> None:
        """3.2.4.3.6."""
        self._computer_name = value or None

    def Connect(self, context: CallContext) -> None:
        """3.2.4.3.8."""
        self._administer(context)
        self.environment.manager.outgoing.set_online(True)

    def Disconnect(self, context: CallContext) -> None:
        """3.2.4.3.9."""
        self._administer(context)
        self.environment.manager.outgoing.set_online(False)

    def Tidy(self, context: CallContext) -> None:
        """3.2.4.3.10: releases what the store does not need. Deviation D-56: purges nothing."""
        self._administer(context)
        self.environment.tidy()

    def _administer(self, context: CallContext) -> None:
        self._authorize(context, Right.ADMINISTER)
