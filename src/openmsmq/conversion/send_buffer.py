"""CACTransferBufferV2 of a send ([MS-MQMP] 3.1.5.2): conversion from a message to the buffer and back, with all
constraints."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeGuard, TypeVar

from msrpc.ndr import NULL, Null
from openmsmq.conversion.queue_format import from_queue_format, to_queue_format
from openmsmq.interfaces.ms_mqmp import CACTransferBufferV1, CACTransferBufferV1_Send, CACTransferBufferV2
from openmsmq.interfaces.ms_mqmq import QUEUE_FORMAT, XACTUOW
from openmsmq.model import names
from openmsmq.model.admission import utf16_units
from openmsmq.model.constants import INFINITE, MAXIMUM_LABEL, MessageClass
from openmsmq.model.errors import HResult, IllegalPropertyValue, MsmqError
from openmsmq.model.message import NULL_GUID, NULL_IDENTIFIER, Message
from openmsmq.model.security import is_sid

CACTB_SEND, CACTB_RECEIVE, CACTB_CREATECURSOR = range(3)
SENDERID_NONE, SENDERID_SID, SENDERID_QM = range(3)
PROV_RSA_FULL = 1
NULL_UOW = bytes(16)
# [MS-MQMP] 2.2.3.2, and privacy levels 3 (enhanced) and 5 (AES) of [MS-MQMQ]. 0 means none.
_PRIVACY_LEVELS = (0, 1, 2, 3, 5)  # 3 and 5: deviation D-25
_ENHANCED_HERE, _ENHANCED = 2, 3  # in this protocol, and elsewhere
_HASH_ALGORITHMS = (0, 0x8001, 0x8002, 0x8003, 0x8004, 0x800C, 0x800D, 0x800E)
_ENCRYPTION_ALGORITHMS = (0, 0x6602, 0x6801, 0x660E, 0x660F, 0x6610)  # RC2, RC4, AES of 128, 192 and 256 bits
#: Numeric member of the buffer, attribute of `Message`, and allowed values. Defaults are those of `Message`.
_NUMBERS: Final[tuple[tuple[str, str, Collection[int]], ...]] = (
    ("pPriority", "priority", range(8)),
    ("pTrace", "tracing_requested", range(2)),
    ("pDelivery", "delivery_guarantee", range(2)),
    ("pAuditing", "journaling_requested", range(4)),
    ("pAcknowledge", "acknowledgements_requested", range(16)),  # deviation D-12: any combination of the four flags
    ("pulBodyType", "body_type", range(0x10000)),
    ("pulPrivLevel", "privacy_level", _PRIVACY_LEVELS),
    ("pulHashAlg", "hash_algorithm", _HASH_ALGORITHMS),
    ("pulEncryptAlg", "encryption_algorithm", _ENCRYPTION_ALGORITHMS),
)
T = TypeVar("T")


def message_from_send(ptb: CACTransferBufferV2, sender_sid: bytes) -> Message:
    """Convert a send buffer to a message; members that servers must ignore (3.1.5.2) are ignored.

    `sender_sid` is used if the buffer has no sender. Raises MsmqError for a value that violates a constraint.
    """
    old = ptb.old
    if old.uTransferType != CACTB_SEND or old.Send is None:
        raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"uTransferType is {old.uTransferType}, not CACTB_SEND")
    message = Message()
    for member, attribute, allowed in _NUMBERS:
        value = getattr(old, member)
        if value is not None:  # otherwise the attribute keeps its default
            if value not in allowed:
                raise _not_allowed(member, value, allowed)
            setattr(message, attribute, value)
    if old.Send.pAdminQueueFormat is not None:
        message.administration_queue_format_name = _format_name(old.Send.pAdminQueueFormat)
    if old.Send.pResponseQueueFormat is not None:
        message.response_queue_format_name = _format_name(old.Send.pResponseQueueFormat)
    message.message_class = old.pClass or 0
    if isinstance(old.ppConnectorType, bytes):
        message.connector_type_identifier = old.ppConnectorType
    if message.message_class != MessageClass.NORMAL and message.connector_type_identifier == NULL_GUID:
        raise MsmqError(HResult.MQ_ERROR_MISSING_CONNECTOR_TYPE, f"pClass is {message.message_class:#06x}")
    if isinstance(old.ppCorrelationID, bytes):
        if len(old.ppCorrelationID) != len(NULL_IDENTIFIER):
            raise MsmqError(
                HResult.MQ_ERROR_ILLEGAL_PROPERTY_SIZE, f"ppCorrelationID has {len(old.ppCorrelationID)} bytes, not 20"
            )
        message.correlation_identifier = old.ppCorrelationID
    message.application_tag = old.pApplicationTag or 0
    if isinstance(old.ppTitle, str):  # neither absent nor NULL; same for the members below
        message.label = _label(old.ppTitle, old.ulTitleBufferSizeInWCHARs)
    if isinstance(old.ppMsgExtension, bytes):
        message.extension = old.ppMsgExtension
    if isinstance(old.ppBody, bytes):
        message.body = old.ppBody
    message.time_to_reach_queue = old.ulAbsoluteTimeToQueue or INFINITE
    # Deviation D-10: the specification has this rule only for the time to reach the queue, but clients that set neither
    # leave 0 in both and do not expect messages to expire immediately.
    message.time_to_be_received = old.ulRelativeTimeToLive or INFINITE
    _read_sender(message, old, sender_sid)
    _read_security(message, old)
    return message


def is_encrypted(ptb: CACTransferBufferV2) -> bool:
    """Whether the client has encrypted the body with a symmetric key that is in the buffer."""
    old = ptb.old
    return bool(old.bEncrypted and isinstance(old.ppSymmKeys, bytes) and old.ulSymmKeysSize)


def _label(text: str, size: int) -> str:
    """Return the label in a buffer of `size` WCHARs: at most 249, since the 250th is the terminator that the server
    adds ([MS-MQMP] 3.1.5.2). A surrogate pair is not split."""
    label = text.partition("\0")[0]
    longest = min(size, MAXIMUM_LABEL)
    if len(label) <= longest // 2 or utf16_units(label) <= longest:
        return label
    cut = label.encode("utf-16-le", "surrogatepass")[: 2 * longest].decode("utf-16-le", "surrogatepass")
    return cut[:-1] if cut and cut[-1] != label[len(cut) - 1] else cut


def _not_allowed(member: str, value: int, allowed: Collection[int]) -> IllegalPropertyValue:
    listed = f"0 to {allowed[-1]:#x}" if isinstance(allowed, range) else ", ".join(f"{v:#x}" for v in allowed)
    return IllegalPropertyValue(detail=f"{member} is {value:#x}, allowed: {listed}")


def _absent(buffer: str, size: str, value: int) -> MsmqError:
    """Return the error for a buffer that is NULL although its size is not 0."""
    return MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"{buffer} is NULL, but {size} is {value}")


def _read_sender(message: Message, old: CACTransferBufferV1, sender_sid: bytes) -> None:
    if old.pulSenderIDType is None:
        if old.uSenderIDLen:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "pulSenderIDType is NULL, but uSenderIDLen is not 0")
        if sender_sid:
            message.sender_identifier_type, message.sender_identifier = SENDERID_SID, sender_sid
        return
    if old.pulSenderIDType not in (SENDERID_NONE, SENDERID_SID, SENDERID_QM):
        raise IllegalPropertyValue(detail=f"pulSenderIDType is {old.pulSenderIDType}, allowed: 0, 1 and 2")
    message.sender_identifier_type = old.pulSenderIDType
    if old.pulSenderIDType == SENDERID_NONE:
        return
    if not _given(old.ppSenderID):
        if old.pulSenderIDType == SENDERID_QM:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "ppSenderID is NULL, but pulSenderIDType is 2")
        message.sender_identifier = sender_sid  # D-227
        if not sender_sid:
            message.sender_identifier_type = SENDERID_NONE
        return
    given = old.ppSenderID
    if old.pulSenderIDType == SENDERID_SID and not is_sid(given):
        raise IllegalPropertyValue(detail=f"ppSenderID is not a security identifier: {given[:68].hex()}")
    if old.pulSenderIDType == SENDERID_QM and len(given) != 16:
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_PROPERTY_SIZE, f"ppSenderID has {len(given)} bytes, a GUID has 16")
    message.sender_identifier = given


def _read_security(message: Message, old: CACTransferBufferV1) -> None:
    if message.privacy_level == _ENHANCED_HERE:
        message.privacy_level = _ENHANCED
    if isinstance(old.ppSenderCert, bytes):
        message.sender_certificate = old.ppSenderCert
    elif old.ulSenderCertLen:
        raise _absent("ppSenderCert", "ulSenderCertLen", old.ulSenderCertLen)
    if isinstance(old.ppSymmKeys, bytes):
        message.symmetric_key = old.ppSymmKeys
    elif old.ulSymmKeysSize:
        raise _absent("ppSymmKeys", "ulSymmKeysSize", old.ulSymmKeysSize)
    if not old.ulSignatureSize:
        return
    if old.pulHashAlg is None:
        raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "pulHashAlg is NULL, but there is a signature")
    if old.fDefaultProvider:
        if old.pulProvType != PROV_RSA_FULL:
            raise MsmqError(
                HResult.MQ_ERROR_INVALID_PARAMETER, f"pulProvType is {old.pulProvType}; the default provider has type 1"
            )
    elif not _given(old.ppwcsProvName):
        raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "ppwcsProvName is NULL, but fDefaultProvider is not set")
    message.default_provider = bool(old.fDefaultProvider)
    message.authentication_provider_type = old.pulProvType or 0
    if _given(old.ppwcsProvName):
        message.authentication_provider_name = old.ppwcsProvName.partition("\0")[0]
    if not _given(old.ppSignature):
        return
    message.signature = old.ppSignature
    if old.pulAuthProvNameLenProp is not None:
        # The buffer has two parts; only the second, an MSMQ 2.0 signature, is used.
        second = old.pulAuthProvNameLenProp - old.ulProvNameLen
        if not 0 <= second <= old.ulSignatureSize:
            raise MsmqError(
                HResult.MQ_ERROR_INVALID_PARAMETER,
                f"pulAuthProvNameLenProp - ulProvNameLen is {second}, ulSignatureSize {old.ulSignatureSize}",
            )
        if second:
            message.signature = old.ppSignature[old.ulSignatureSize - second :]


def send_buffer(message: Message, uow: bytes | None = None, *, encrypted: bool = False) -> CACTransferBufferV2:
    """Return the buffer with which a client sends `message` in the unit of work `uow` (16 bytes; None for none).
    `encrypted`: the client has encrypted the body with the key in `symmetric_key`."""
    label = message.label + "\0" if message.label else ""
    old = CACTransferBufferV1(
        uTransferType=CACTB_SEND,
        Send=CACTransferBufferV1_Send(
            _queue_format(message.administration_queue_format_name), _queue_format(message.response_queue_format_name)
        ),
        pClass=message.message_class,
        ppCorrelationID=message.correlation_identifier,
        pPriority=message.priority,
        pDelivery=message.delivery_guarantee,
        pAcknowledge=message.acknowledgements_requested,
        pAuditing=message.journaling_requested,
        pApplicationTag=message.application_tag,
        ppBody=message.body,
        ulBodyBufferSizeInBytes=len(message.body),
        ulAllocBodyBufferInBytes=len(message.body),
        pBodySize=len(message.body),
        ulAbsoluteTimeToQueue=message.time_to_reach_queue,
        ulRelativeTimeToLive=message.time_to_be_received,
        pTrace=message.tracing_requested,
        pulPrivLevel=message.privacy_level,
        pulBodyType=message.body_type,
    )
    if label:
        old.ppTitle, old.ulTitleBufferSizeInWCHARs = label, utf16_units(label)
        old.pulTitleBufferSizeInWCHARs = old.ulTitleBufferSizeInWCHARs
    if message.extension:
        old.ppMsgExtension, old.ulMsgExtensionBufferInBytes = message.extension, len(message.extension)
        old.pMsgExtensionSize = len(message.extension)
    if message.connector_type_identifier != NULL_GUID:
        old.ppConnectorType = message.connector_type_identifier
    if message.sender_identifier:
        old.pulSenderIDType = message.sender_identifier_type
        old.ppSenderID, old.uSenderIDLen = message.sender_identifier, len(message.sender_identifier)
        old.pulSenderIDLenProp = old.uSenderIDLen
    if message.sender_certificate:
        old.ppSenderCert, old.ulSenderCertLen = message.sender_certificate, len(message.sender_certificate)
    if message.privacy_level:
        old.pulEncryptAlg = message.encryption_algorithm
    if encrypted:
        old.bEncrypted = 1
        old.ppSymmKeys, old.ulSymmKeysSize = message.symmetric_key, len(message.symmetric_key)
        old.pulSymmKeysSizeProp = old.ulSymmKeysSize
    if message.signature:
        _write_signature(old, message)
    if uow is not None:
        old.pUow = XACTUOW(uow)
    return CACTransferBufferV2(old=old)


def _write_signature(old: CACTransferBufferV1, message: Message) -> None:
    """Write an MSMQ 2.0 signature as the second part of the buffer; the first part, which servers ignore, is empty."""
    old.ppSignature, old.ulSignatureSize = message.signature, len(message.signature)
    old.pulSignatureSizeProp = old.ulSignatureSize
    old.pulHashAlg = message.hash_algorithm
    if message.default_provider:
        old.fDefaultProvider, old.pulProvType = 1, PROV_RSA_FULL
    else:
        name = message.authentication_provider_name + "\0"
        old.ppwcsProvName, old.ulProvNameLen = name, utf16_units(name)
        old.pulProvType = message.authentication_provider_type
    old.pulAuthProvNameLenProp = old.ulProvNameLen + old.ulSignatureSize


def _format_name(value: QUEUE_FORMAT) -> str:
    return "" if value.m_qft == 0 else str(from_queue_format(value))


def _queue_format(text: str) -> QUEUE_FORMAT | None:
    return to_queue_format(names.parse_format_name(text)) if text else None


def _given(pointer: T | Null | None) -> TypeGuard[T]:
    """Whether a two-level pointer refers to data."""
    return pointer is not None and pointer is not NULL
