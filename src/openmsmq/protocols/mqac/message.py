"""MSMQMessage ([MC-MQAC] 3.17): a message to be sent, or one that was received."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final
from uuid import UUID

from msrpc.dcom.budget import Charge
from msrpc.dcom.server import CallContext, is_awaitable
from msrpc.dcom.variant import EMPTY, VT, Variant
from msrpc.hresults import ComResult
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.constants import INFINITE, MAXIMUM_MESSAGE_SIZE, MessageClass
from openmsmq.model.errors import ComError, HResult, IllegalPropertyValue, InsufficientResources, MsmqError
from openmsmq.model.message import NULL_GUID, NULL_IDENTIFIER, Message
from openmsmq.model.names import parse_format_name
from openmsmq.model.security import sid_bytes
from openmsmq.protection.algorithms import SHA512
from openmsmq.protection.internal_certificates import InternalCertificate
from openmsmq.protection.sign import Version
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.mqac.bodies import body_of, body_of_object, charge_of, is_object, variant_of
from openmsmq.protocols.mqac.destination import MSMQDestination
from openmsmq.protocols.mqac.objects import MqacObject, date, octets, octets_of
from openmsmq.protocols.mqac.queue_info import info_of, queue_info
from openmsmq.protocols.mqac.transactions import transaction_of
from openmsmq.queueing.descriptors import OpenQueueDescriptor
from openmsmq.queueing.queue import QueueKind

SENDER_VERSION: Final = 0x10
_PROVIDER: Final = "Microsoft Base Cryptographic Provider, v1.0"
_LABEL_LENGTH: Final = 249  # WCHARs, MQ_MAX_MSG_LABEL_LEN
_IDENTIFIER_SIZE: Final = 20
_ELSEWHERE: Final = (QueueKind.OUTGOING, QueueKind.CONNECTOR)  # queues of messages for other machines
_BRACED_GUID: Final = re.compile(r"\{[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}")
# Properties that only a connector application may set (3.17.4.1.48).
_NOTHING: Final[frozenset[str]] = frozenset()
_OF_CONNECTORS: Final = frozenset(
    ["message_class", "sender_identifier", "symmetric_key", "signature", "authentication_provider_name"]
)


# Signature versions by AuthLevel, [MC-MQAC] 2.2.2.16. For a single destination, 2.0 is the newest ([MS-MQQB]
# 3.1.5.8.3).
_VERSIONS: Final = {
    m.MQMSG_AUTH_LEVEL_ALWAYS: Version.MSMQ_2, m.MQMSG_AUTH_LEVEL_SIG10: Version.MSMQ_1,
    m.MQMSG_AUTH_LEVEL_SIG20: Version.MSMQ_2, m.MQMSG_AUTH_LEVEL_SIG30: Version.MSMQ_2,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _SecurityContext:
    """SenderIdentifierCache and SenderCertificateCache (3.17.3); the SID as text, None for an anonymous caller."""

    sid: str | None
    signer: InternalCertificate | None


@dataclass(frozen=True, slots=True)
class MessageProperty:
    """A property of the message: its `names` in COM and its `attribute` of `Message`. `allowed` are its valid values,
    None for any."""

    names: tuple[str, ...]
    attribute: str
    kind: str = "long"  # "long", "short", "BOOL", "BSTR", "octets", "identifier", "date", "guid", "plain guid"
    is_writable: bool = True
    allowed: tuple[int, ...] | None = None


PROPERTIES: Final = (
    MessageProperty(("Class",), "message_class", is_writable=False),
    MessageProperty(("MsgClass",), "message_class", allowed=tuple(map(int, MessageClass))),
    MessageProperty(("PrivLevel",), "privacy_level", allowed=(0, 1, 3)),
    MessageProperty(("IsAuthenticated",), "authentication_level", "short", False),
    MessageProperty(("IsAuthenticated2",), "authentication_level", "BOOL", False),
    MessageProperty(("ReceivedAuthenticationLevel",), "authentication_level", "level", False),
    MessageProperty(("Delivery",), "delivery_guarantee", allowed=(0, 1)),
    MessageProperty(("Trace",), "tracing_requested", allowed=(0, 1)),
    MessageProperty(("Priority",), "priority", allowed=tuple(range(8))),
    MessageProperty(("Journal",), "journaling_requested", allowed=(0, 1, 2, 3)),
    MessageProperty(("AppSpecific",), "application_tag"),
    MessageProperty(("SourceMachineGuid",), "source_machine_identifier", "plain guid", False),
    MessageProperty(("Id",), "identifier", "identifier", False),
    MessageProperty(("CorrelationId",), "correlation_identifier", "identifier"),
    MessageProperty(("TransactionId",), "transaction_identifier", "identifier", False),
    MessageProperty(("Ack",), "acknowledgements_requested", allowed=(0, 1, 2, 4, 5, 8, 0xC, 0xE)),
    MessageProperty(("Label",), "label", "BSTR"),
    MessageProperty(("MaxTimeToReachQueue",), "time_to_reach_queue"),
    MessageProperty(("MaxTimeToReceive",), "time_to_be_received"),
    MessageProperty(("HashAlgorithm",), "hash_algorithm"),
    MessageProperty(("EncryptAlgorithm",), "encryption_algorithm"),
    MessageProperty(("SentTime",), "sent_time", "date", False),
    MessageProperty(("ArrivedTime",), "arrival_time", "date", False),
    MessageProperty(("SenderCertificate",), "sender_certificate", "octets"),
    MessageProperty(("SenderId",), "sender_identifier", "octets"),
    MessageProperty(("SenderIdType",), "sender_identifier_type", allowed=(0, 1)),
    MessageProperty(("Extension",), "extension", "octets"),
    MessageProperty(("ConnectorTypeGuid",), "connector_type_identifier", "guid"),
    MessageProperty(("DestinationSymmetricKey",), "symmetric_key", "octets"),
    MessageProperty(("Signature",), "signature", "octets"),
    MessageProperty(("AuthenticationProviderType",), "authentication_provider_type"),
    MessageProperty(("AuthenticationProviderName",), "authentication_provider_name", "BSTR"),
    MessageProperty(("IsFirstInTransaction",), "first_in_transaction", "short", False),
    MessageProperty(("IsFirstInTransaction2",), "first_in_transaction", "BOOL", False),
    MessageProperty(("IsLastInTransaction",), "last_in_transaction", "short", False),
    MessageProperty(("IsLastInTransaction2",), "last_in_transaction", "BOOL", False),
)


def _guid(value: bytes) -> str:
    return f"{{{str(UUID(bytes_le=value)).upper()}}}"


_TO_COM: Final[dict[str, Callable[[Any], Any]]] = {
    "long": lambda value: value,
    "level": lambda value: value,
    "short": lambda value: int(bool(value)),
    "BOOL": bool,
    "BSTR": lambda value: value,
    "octets": octets,
    "identifier": octets,
    "date": lambda value: date(value) if value else EMPTY,
    "guid": _guid,
    "plain guid": lambda value: str(UUID(bytes_le=value)).upper(),  # 3.17.4.1.19: without braces
}


class MSMQMessage(MqacObject):
    """See the module. `put` contains the attributes that the client has set."""

    coclass = m.MSMQMessage
    not_implemented: ClassVar[frozenset[str]] = frozenset(["get_Properties"])
    longest_text = MAXIMUM_MESSAGE_SIZE

    def __init__(
        self,
        environment: Environment,
        message: Message | None = None,
        *,
        has_destination: bool = False,
        has_body: bool = True,
        has_connector_type: bool = True,
    ) -> None:
        """`message` is copied, because the client may change properties."""
        super().__init__(environment)
        # 3.17.3. A new message also has a body type, so that an empty body is an empty array and not NULL.
        self.message = message.copy() if message is not None else Message(
            hash_algorithm=m.MQMSG_CALG_SHA1, encryption_algorithm=m.MQMSG_CALG_RC4, sender_identifier_type=1,
            authentication_provider_type=1, authentication_provider_name=_PROVIDER,
        )  # fmt: skip
        self._has_destination = has_destination
        if not has_connector_type:
            self.message.connector_type_identifier = NULL_GUID
        if not has_body:
            self.message.body, self.message.body_type = b"", 0
        received = self.message
        if received.authentication_provider_type or received.authentication_provider_name:
            # A packet does not name the default provider ([MS-MQMQ] 2.2.20.6), but Send needs both (3.17.4.1.48).
            received.authentication_provider_type = received.authentication_provider_type or 1
            received.authentication_provider_name = received.authentication_provider_name or _PROVIDER
        self.put = _NOTHING
        self.requested_authentication = 0
        self._attached: _SecurityContext | None = None
        self._charge: Charge | None = None

    def released(self) -> None:
        if self._charge is not None:
            self._charge.set(0)

    def account(self, context: CallContext) -> None:
        """Count the bytes of the message for the caller. Raises InsufficientResources."""
        if self._charge is None:
            self._charge = charge_of(context)
        self._charge.set(self.message.size)

    def change(self, context: CallContext, **values: Any) -> None:
        """Change attributes of the message. Raises InsufficientResources, with nothing changed."""
        message = self.message
        before = {attribute: getattr(message, attribute) for attribute in values}
        for attribute, value in values.items():
            setattr(message, attribute, value)
        try:
            self.account(context)
        except InsufficientResources:
            for attribute, value in before.items():
                setattr(message, attribute, value)
            raise

    def set(self, context: CallContext, attribute: str, value: Any) -> None:
        """Set a property on behalf of the client."""
        self.change(context, **{attribute: value})
        self.put |= {attribute}

    # -- body --------------------------------------------------------------------------------------------------

    def get_Body(self, context: CallContext) -> Variant:
        """3.17.4.1.21."""
        if not self.message.body and not self.message.body_type:
            return EMPTY
        return variant_of(context, self.message.body, self.message.body_type)

    def put_Body(self, context: CallContext, value: Variant) -> Awaitable[None] | None:
        """3.17.4.1.22."""
        if is_object(value):
            return self._put_object(context, value)
        body, body_type = body_of(value)
        self.change(context, body=body, body_type=body_type)
        return None

    async def _put_object(self, context: CallContext, value: Variant) -> None:
        body, body_type = await body_of_object(context, value)
        self.change(context, body=body, body_type=body_type)

    def get_BodyLength(self, context: CallContext) -> int:
        """3.17.4.1.20, in bytes."""
        return len(self.message.body)

    # -- properties with special rules -------------------------------------------------------------------------

    def get_AuthLevel(self, context: CallContext) -> int:
        """3.17.4.1.4."""
        return self.requested_authentication

    def put_AuthLevel(self, context: CallContext, value: int) -> None:
        """3.17.4.1.5."""
        _check("AuthLevel", value, (0, 1, 2, 4, 8))
        self.requested_authentication = value

    def get_SenderVersion(self, context: CallContext) -> int:
        """3.17.4.1.50."""
        return SENDER_VERSION

    def get_LookupId(self, context: CallContext) -> Variant:
        """3.17.4.1.83: a BSTR of decimal digits."""
        return Variant(VT.BSTR, str(self.message.lookup_identifier))

    def get_SoapEnvelope(self, context: CallContext) -> str | None:
        """3.17.4.1.88: for messages received through SRMP, which is not supported."""
        return None

    def get_CompoundMessage(self, context: CallContext) -> Variant:
        """3.17.4.1.89: like `SoapEnvelope`."""
        return EMPTY

    def put_SoapHeader(self, context: CallContext, value: str | None) -> None:
        """3.17.4.1.90: for messages sent through SRMP, which is not supported, so it is ignored."""

    def put_SoapBody(self, context: CallContext, value: str | None) -> None:
        """3.17.4.1.91: like `SoapHeader`."""

    def AttachCurrentSecurityContext(self, context: CallContext) -> None:
        """3.17.4.1.49. A missing certificate is reported when a message is signed."""
        sid = context.call.caller.sid
        try:
            signer = self.environment.message_security.internal_certificate(sid)
        except MsmqError:
            signer = None
        self._attached = _SecurityContext(sid, signer)

    AttachCurrentSecurityContext2 = AttachCurrentSecurityContext

    # -- queues ------------------------------------------------------------------------------------------------

    def get_ResponseQueueInfo(self, context: CallContext) -> Any:
        """3.17.4.1.76."""
        return info_of(self.environment, self.message.response_queue_format_name)

    def put_ResponseQueueInfo(self, context: CallContext, value: Any) -> Awaitable[None] | None:
        """3.17.4.1.77."""
        return self._put_name(context, "response_queue_format_name", value)

    def get_AdminQueueInfo(self, context: CallContext) -> Any:
        """3.17.4.1.78."""
        return info_of(self.environment, self.message.administration_queue_format_name)

    def put_AdminQueueInfo(self, context: CallContext, value: Any) -> Awaitable[None] | None:
        """3.17.4.1.79."""
        return self._put_name(context, "administration_queue_format_name", value)

    def _put_name(self, context: CallContext, attribute: str, value: Any) -> Awaitable[None] | None:
        """Set `attribute` to the format name of an MSMQQueueInfo, or to "" for NULL. Raises ComError, MsmqError."""
        info = queue_info(value)
        if info is None:
            self.change(context, **{attribute: ""})
            return None
        return info.with_name(lambda name: self.change(context, **{attribute: str(name)}))

    get_ResponseQueueInfo_v1 = get_ResponseQueueInfo_v2 = get_ResponseQueueInfo
    put_ResponseQueueInfo_v1 = put_ResponseQueueInfo_v2 = put_ResponseQueueInfo
    get_AdminQueueInfo_v1 = get_AdminQueueInfo_v2 = get_AdminQueueInfo
    put_AdminQueueInfo_v1 = put_AdminQueueInfo_v2 = put_AdminQueueInfo

    def get_DestinationQueueInfo(self, context: CallContext) -> Any:
        """3.17.4.1.42: only if the caller of Receive requested it."""
        return info_of(self.environment, self.message.destination_queue_format_name) if self._has_destination else None

    def get_TransactionStatusQueueInfo(self, context: CallContext) -> Any:
        """3.17.4.1.55."""
        return info_of(self.environment, self.message.transaction_status_queue_format_name)

    def get_ResponseDestination(self, context: CallContext) -> Any:
        """3.17.4.1.80; one attribute with ResponseQueueInfo (D-233)."""
        return MSMQDestination(self.environment, self.message.response_queue_format_name or None)

    def put_ResponseDestination(self, context: CallContext, value: Any) -> None:
        """3.17.4.1.81."""
        self.change(context, response_queue_format_name="" if value is None else _format_name(value))

    def get_Destination(self, context: CallContext) -> Any:
        """3.17.4.1.82: all destination queues of the message."""
        message = self.message
        several = message.destination_multi_queue_format_name
        name = (several or message.destination_queue_format_name) if self._has_destination else ""
        return MSMQDestination(self.environment, name or None)

    # -- sending -----------------------------------------------------------------------------------------------

    def Send(self, context: CallContext, DestinationQueue: Any, Transaction: Variant | None) -> Awaitable[None] | None:
        """3.17.4.1.48. Fields set by the queue manager, such as `Id`, can be read from this object afterwards."""
        if DestinationQueue is None:
            raise ComError(ComResult.E_INVALIDARG, "DestinationQueue is NULL")
        for_sending = getattr(DestinationQueue, "for_sending", None)
        if for_sending is None:
            raise ComError(ComResult.E_INVALIDARG, "DestinationQueue is no MSMQQueue or MSMQDestination of this server")
        self._check_connector()
        signer = self._signer(context)
        look_up = self._look_up(context, signer)
        if look_up is not None:
            return self._send_later(look_up, context, partial(for_sending, context), Transaction, signer)
        opened = for_sending(context)
        if is_awaitable(opened):
            return self._send_later(None, context, lambda: opened, Transaction, signer)
        self._send(context, opened, Transaction, signer)
        return None

    async def _send_later(
        self,
        look_up: Awaitable[None] | None,
        context: CallContext,
        open_queue: Callable[[], Awaitable[OpenQueueDescriptor] | OpenQueueDescriptor],
        transaction: Variant | None,
        signer: InternalCertificate | None,
    ) -> None:
        """Send after the directory has returned the sender's certificates or the destination."""
        if look_up is not None:
            await look_up
        opened = open_queue()
        descriptor = await opened if is_awaitable(opened) else opened
        assert isinstance(descriptor, OpenQueueDescriptor)
        self._send(context, descriptor, transaction, signer)

    def _signer(self, context: CallContext) -> InternalCertificate | None:
        """Return the certificate whose key signs the message: that of the caller, never that of a user named in the
        message (deviation D-119). None if the message is not signed here; then it gets no certificate, either (D-114).
        Raises MsmqError."""
        message = self.message
        if not self.requested_authentication or "signature" in self.put:
            return None
        attached = self._attached
        signer = attached.signer if attached is not None else None
        if signer is None:
            signer = self.environment.message_security.internal_certificate(self._sender(context))
        given = message.sender_certificate if "sender_certificate" in self.put else b""
        if given not in (b"", signer.encoded):
            raise MsmqError(
                HResult.MQ_ERROR_CANNOT_SIGN_DATA_EX,
                "SenderCertificate is one whose key the queue manager does not have; it signs with the one that "
                "RegisterCertificate has made",
            )
        if "sender_identifier" in self.put and message.sender_identifier != self._sender_bytes(context):
            raise MsmqError(HResult.MQ_ERROR_CANNOT_SIGN_DATA_EX, "SenderId is not the caller's")
        if "symmetric_key" in self.put and message.privacy_level:  # that of a received message is not sent on
            raise MsmqError(HResult.MQ_ERROR_CANNOT_SIGN_DATA_EX, "the body is encrypted already")
        return signer

    def _sender(self, context: CallContext) -> str | None:
        """Return the SID of the caller, or the one found by AttachCurrentSecurityContext."""
        sid: str | None = context.call.caller.sid
        return sid if self._attached is None else self._attached.sid

    def _sender_bytes(self, context: CallContext) -> bytes:
        sid = self._sender(context)
        return b"" if sid is None else sid_bytes(sid)

    def _look_up(self, context: CallContext, signer: InternalCertificate | None) -> Awaitable[None] | None:
        """Return an awaitable that must finish before the signature can be verified; None if no lookup is needed."""
        security, message = self.environment.message_security, self.message
        if signer is not None:
            return security.look_up(self._sender_bytes(context), signer.encoded)
        if "signature" in self.put:
            return security.look_up(message.sender_identifier, message.sender_certificate)
        return None

    def _send(
        self,
        context: CallContext,
        descriptor: OpenQueueDescriptor,
        transaction: Variant | None,
        signer: InternalCertificate | None,
    ) -> None:
        unit, is_single = transaction_of(transaction)
        is_single = is_single and _needs_transaction(descriptor)
        message = self._outgoing(context, signed=signer is not None)
        transactional = unit is not None or is_single
        if signer is not None:
            version = _VERSIONS[self.requested_authentication]
            self.environment.message_security.sign(descriptor, message, transactional, signer, version)
        self.environment.message_security.admit(
            descriptor, message, transactional, encrypted=bool(message.symmetric_key and message.privacy_level)
        )
        manager = self.environment.manager
        single = manager.transactions.create(os.urandom(16)) if is_single else None
        try:
            manager.sending.enqueue(descriptor, message, single or unit)
            if single is not None:
                manager.transactions.commit(single)
        except BaseException:
            if single is not None and single.is_open:
                manager.transactions.abort(single)
            raise
        self._sent(message)

    def _check_connector(self) -> None:
        message = self.message
        if self.put & _OF_CONNECTORS and message.connector_type_identifier == NULL_GUID:
            which = ", ".join(sorted(self.put & _OF_CONNECTORS))
            raise MsmqError(
                HResult.MQ_ERROR_MISSING_CONNECTOR_TYPE, f"{which} may be set only together with ConnectorTypeGuid"
            )
        if bool(message.authentication_provider_type) != bool(message.authentication_provider_name):
            raise MsmqError(
                HResult.MQ_ERROR_INSUFFICIENT_PROPERTIES,
                "AuthenticationProviderType and AuthenticationProviderName are set both or not at all",
            )

    def _outgoing(self, context: CallContext, *, signed: bool) -> Message:
        """Return the message to send: a copy, because the queue takes ownership. If it is `signed` here, its sender is
        the signer."""
        message = self.message
        sender = self._sender_bytes(context)
        copy = message.copy()
        if signed or not message.sender_identifier:
            copy.sender_identifier = sender
        copy.identifier = copy.transaction_identifier = NULL_IDENTIFIER
        copy.first_in_transaction = copy.last_in_transaction = False
        copy.lookup_identifier = copy.arrival_time = copy.authentication_level = 0
        copy.abort_count = copy.move_count = copy.last_move_time = 0
        if copy.connector_type_identifier == NULL_GUID:
            copy.message_class = 0
        if not copy.sender_identifier_type or not copy.sender_identifier:
            copy.sender_identifier, copy.sender_identifier_type = b"", 0
        # A received message is sent without its original signature and key.
        if "signature" not in self.put:
            copy.signature = b""
        if "symmetric_key" not in self.put:
            copy.symmetric_key = b""
        if signed and "hash_algorithm" not in self.put:
            copy.hash_algorithm = SHA512  # [MS-MQMQ] 2.2.19.3; the default of 3.17.3 is SHA-1 (deviation D-120)
        copy.multiple_destination_signature = b""
        copy.default_provider = bool(copy.signature) and "authentication_provider_name" not in self.put
        if not copy.signature:
            copy.authentication_provider_name, copy.authentication_provider_type = "", 0
        # Deviation D-82: an unset time-to-reach-queue is infinite and would override the time-to-be-received.
        if INFINITE != copy.time_to_reach_queue > copy.time_to_be_received:
            copy.time_to_be_received = copy.time_to_reach_queue
        return copy

    def _sent(self, message: Message) -> None:
        mine = self.message
        mine.identifier, mine.sender_identifier = message.identifier, message.sender_identifier
        mine.destination_queue_format_name = message.destination_queue_format_name
        mine.destination_multi_queue_format_name = message.destination_multi_queue_format_name
        mine.sent_time, mine.source_machine_identifier = message.sent_time, message.source_machine_identifier
        mine.time_to_be_received = message.time_to_be_received
        mine.authentication_level = message.authentication_level
        self._has_destination = True


def _getter(wanted: MessageProperty) -> Callable[[MSMQMessage, CallContext], Any]:
    convert, attribute = _TO_COM[wanted.kind], wanted.attribute

    def get(self: MSMQMessage, context: CallContext) -> Any:
        return convert(getattr(self.message, attribute))

    return get


def _setter(wanted: MessageProperty) -> Callable[[MSMQMessage, CallContext, Any], None]:
    name, attribute, kind, allowed = wanted.names[0], wanted.attribute, wanted.kind, wanted.allowed

    def put(self: MSMQMessage, context: CallContext, value: Any) -> None:
        if allowed is not None:
            _check(name, value & 0xFFFFFFFF, allowed)
        self.set(context, attribute, _from_com(name, kind, value))

    return put


def _from_com(name: str, kind: str, value: Any) -> Any:
    """Convert a value set by the client. Raises MsmqError."""
    match kind:
        case "long":
            return value & 0xFFFFFFFF
        case "BSTR":
            text = value or ""
            if name == "Label" and len(text.encode("utf-16-le", "surrogatepass")) // 2 > _LABEL_LENGTH:
                raise MsmqError(HResult.MQ_ERROR_LABEL_TOO_LONG, f"a label has at most {_LABEL_LENGTH} characters")
            return text
        case "octets":
            return octets_of(value)
        case "identifier":
            found = octets_of(value) or NULL_IDENTIFIER
            if len(found) != _IDENTIFIER_SIZE:
                raise IllegalPropertyValue(detail=f"{name} has {len(found)} bytes, not {_IDENTIFIER_SIZE}")
            return found
        case "guid":
            if _BRACED_GUID.fullmatch(value or "") is None:  # 3.17.4.1.54
                raise IllegalPropertyValue(detail=f"{name} is {value!r}, not a GUID in braces")
            return UUID(value).bytes_le
    raise TypeError(kind)


def _format_name(value: Any) -> str:
    """Return the format name of an MSMQDestination. Raises ComError E_INVALIDARG, IllegalFormatName."""
    if not isinstance(value, MSMQDestination):
        raise ComError(ComResult.E_INVALIDARG, "the argument is not an MSMQDestination of this server")
    return str(parse_format_name(value.format_name)) if value.format_name else ""


def _needs_transaction(descriptor: OpenQueueDescriptor) -> bool:
    """Whether a message sent with MQ_SINGLE_MESSAGE needs a transaction (deviation D-190): true for transactional
    queues, and for queues of other machines, which may be transactional."""
    queues = [part.queue for part in descriptor.parts or [descriptor] if part.queue is not None]
    return any(queue.properties.transactional or queue.kind in _ELSEWHERE for queue in queues)


def _check(name: str, value: int, allowed: tuple[int, ...]) -> None:
    if value not in allowed:
        raise IllegalPropertyValue(detail=f"{name} is {value}, allowed: {', '.join(map(str, allowed))}")


for _property in PROPERTIES:
    for _name in _property.names:
        setattr(MSMQMessage, f"get_{_name}", _getter(_property))
        if _property.is_writable:
            setattr(MSMQMessage, f"put_{_name}", _setter(_property))
