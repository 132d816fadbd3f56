"""CACTransferBufferV2 of a read ([MS-MQMP] 3.1.5.3), as a table of its members.

Each variable-length member has a buffer, its size, a property with the full length, and an error for a buffer that is
too small. A message that does not fit is not removed; the full lengths are still returned, because the client needs
them to retry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from msrpc.ndr import NULL, Null
from openmsmq.conversion.send_buffer import CACTB_RECEIVE
from openmsmq.interfaces.ms_mqmp import CACTransferBufferV1, CACTransferBufferV1_Receive, CACTransferBufferV2
from openmsmq.interfaces.ms_mqmq import OBJECTID, XACTUOW
from openmsmq.model.admission import utf16_units
from openmsmq.model.constants import INFINITE, ReceiveAction
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import NULL_GUID, NULL_IDENTIFIER, Message

PACKET_VERSION = 0x10
MAXIMUM_FORMAT_NAME_BUFFER = 1024  # characters, the range of the length members


@dataclass(frozen=True, slots=True)
class TextMember:
    """A text of WCHARs with its terminator. `absent_is_null`: an empty text is returned as NULL with length 0."""

    buffer: str
    size: str
    length: str
    too_small: HResult
    attribute: str
    absent_is_null: bool
    shrinks: bool  # whether the size is set to the returned length


@dataclass(frozen=True, slots=True)
class BytesMember:
    buffer: str
    size: str
    length: str
    too_small: HResult
    attribute: str


def _name_member(name: str, attribute: str) -> TextMember:
    too_small = HResult.MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL
    return TextMember(f"pp{name}FormatName", f"ul{name}FormatNameLen", f"pul{name}FormatNameLenProp", too_small,
                      attribute, absent_is_null=True, shrinks=True)  # fmt: skip


# Members of the Receive arm.
FORMAT_NAMES = (
    _name_member("Response", "response_queue_format_name"),
    _name_member("Admin", "administration_queue_format_name"),
    _name_member("Dest", "destination_queue_format_name"),
    _name_member("Ordering", "transaction_status_queue_format_name"),
)
# Members of CACTransferBufferV1.
TEXTS = (
    TextMember("ppTitle", "ulTitleBufferSizeInWCHARs", "pulTitleBufferSizeInWCHARs",
               HResult.MQ_ERROR_LABEL_BUFFER_TOO_SMALL, "label", absent_is_null=False, shrinks=True),
    TextMember("ppwcsProvName", "ulProvNameLen", "pulAuthProvNameLenProp",
               HResult.MQ_ERROR_PROV_NAME_BUFFER_TOO_SMALL, "authentication_provider_name",
               absent_is_null=True, shrinks=False),
)  # fmt: skip
BYTES = (
    BytesMember("ppBody", "ulBodyBufferSizeInBytes", "pBodySize", HResult.MQ_ERROR_BUFFER_OVERFLOW,
                "body"),
    BytesMember("ppMsgExtension", "ulMsgExtensionBufferInBytes", "pMsgExtensionSize",
                HResult.MQ_ERROR_BUFFER_OVERFLOW, "extension"),
    BytesMember("ppSenderID", "uSenderIDLen", "pulSenderIDLenProp", HResult.MQ_ERROR_SENDERID_BUFFER_TOO_SMALL,
                "sender_identifier"),
    BytesMember("ppSenderCert", "ulSenderCertLen", "pulSenderCertLenProp",
                HResult.MQ_ERROR_SENDER_CERT_BUFFER_TOO_SMALL, "sender_certificate"),
    BytesMember("ppSymmKeys", "ulSymmKeysSize", "pulSymmKeysSizeProp", HResult.MQ_ERROR_SYMM_KEY_BUFFER_TOO_SMALL,
                "symmetric_key"),
    BytesMember("ppSignature", "ulSignatureSize", "pulSignatureSizeProp", HResult.MQ_ERROR_SIGNATURE_BUFFER_TOO_SMALL,
                "signature"),
)  # fmt: skip


def objectid(identifier: bytes) -> OBJECTID:
    return OBJECTID(identifier[:16], int.from_bytes(identifier[16:], "little"))


def identifier_of(value: OBJECTID) -> bytes:
    return value.Lineage + value.Uniquifier.to_bytes(4, "little")


def _remaining(seconds: int, message: Message, now: int) -> int:
    """Return the seconds left of a lifetime. The sender's clock may be ahead, so their number may exceed 32 bits."""
    return INFINITE if seconds == INFINITE else min(max(0, message.sent_time + seconds - now), INFINITE)


# Members to fill if the client passed a pointer, with the attribute of the message.
SCALARS: tuple[tuple[str, str], ...] = (
    ("pClass", "message_class"),
    ("ppCorrelationID", "correlation_identifier"),
    ("pSentTime", "sent_time"),
    ("pArrivedTime", "arrival_time"),
    ("pPriority", "priority"),
    ("pDelivery", "delivery_guarantee"),
    ("pAcknowledge", "acknowledgements_requested"),
    ("pAuditing", "journaling_requested"),
    ("pApplicationTag", "application_tag"),
    ("pTrace", "tracing_requested"),
    ("pulSenderIDType", "sender_identifier_type"),
    ("pulPrivLevel", "privacy_level"),
    ("pAuthenticated", "authentication_level"),
    ("pulHashAlg", "hash_algorithm"),
    ("pulEncryptAlg", "encryption_algorithm"),
    ("pulProvType", "authentication_provider_type"),
    ("ppSrcQMID", "source_machine_identifier"),
    ("ppConnectorType", "connector_type_identifier"),
    ("pulBodyType", "body_type"),
)
# Those with another value: (member, function of message and time in seconds).
COMPUTED: tuple[tuple[str, Callable[[Message, int], Any]], ...] = (
    ("ppMessageID", lambda m, now: objectid(m.identifier)),
    ("pulRelativeTimeToQueue", lambda m, now: _remaining(m.time_to_reach_queue, m, now)),
    ("pulRelativeTimeToLive", lambda m, now: _remaining(m.time_to_be_received, m, now)),
    ("pulVersion", lambda m, now: PACKET_VERSION),
)
COMPUTED_V2: tuple[tuple[str, Callable[[Message, int], Any]], ...] = (
    ("pbFirstInXact", lambda m, now: int(m.first_in_transaction)),
    ("pbLastInXact", lambda m, now: int(m.last_in_transaction)),
    ("ppXactID", lambda m, now: objectid(m.transaction_identifier)),
)


# Buffers whose size must be 0 if they are NULL, and the members with the sizes.
_CHECKED_IN_RECEIVE = tuple((text.buffer, text.size) for text in FORMAT_NAMES)
_CHECKED = ((TEXTS[0].buffer, TEXTS[0].size), *((member.buffer, member.size) for member in BYTES[:2]))


def check_sizes(ptb: CACTransferBufferV2) -> None:
    """Check the buffer of a read. Raises MsmqError for a member that is NULL although its size is not 0 ([MS-MQMP]
    3.1.5.3)."""
    for owner, members in ((ptb.old.Receive, _CHECKED_IN_RECEIVE), (ptb.old, _CHECKED)):
        for buffer, name in members:
            size: int = getattr(owner, name)
            if size and getattr(owner, buffer) is None:
                raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"{buffer} is NULL, but {name} is {size}")


def fill(ptb: CACTransferBufferV2, message: Message, now: int) -> int:
    """Write a message into the buffer of a read; `now` in seconds since 1970 UTC.

    Returns MQ_OK, or the error of the first member that is too small; then only full lengths are returned. Deviation
    D-13: the specification ignores out parameters of a failed call.
    """
    old, receive = ptb.old, ptb.old.Receive
    assert receive is not None
    status = HResult.MQ_OK
    lengths: list[tuple[object, str, int]] = []
    texts: list[tuple[object, TextMember, str, int]] = []  # members with a buffer, and their lengths with terminator
    owners: tuple[tuple[object, tuple[TextMember, ...]], ...] = ((receive, FORMAT_NAMES), (old, TEXTS))
    for owner, members in owners:
        for text in members:
            value: str = getattr(message, text.attribute)
            length = 0 if text.absent_is_null and not value else utf16_units(value) + 1
            lengths.append((owner, text.length, length))
            buffer = getattr(owner, text.buffer)
            if buffer is None or buffer is NULL:
                continue
            texts.append((owner, text, value, length))
            given = getattr(owner, text.length) if text.shrinks else None  # buffer size given by the client
            if length > getattr(owner, text.size) or (given is not None and length > given):
                status = status or text.too_small
    contents: list[tuple[BytesMember, bytes]] = []
    for member in BYTES:
        data: bytes = getattr(message, member.attribute)
        lengths.append((old, member.length, len(data)))
        buffer = getattr(old, member.buffer)
        if buffer is None or buffer is NULL:
            continue
        contents.append((member, data))
        if len(data) > getattr(old, member.size):
            status = status or member.too_small
    if status == HResult.MQ_OK:
        for owner, text, value, length in texts:
            _fill_text(owner, text, value, length)
        for member, data in contents:
            setattr(old, member.buffer, data.ljust(getattr(old, member.size), b"\0"))
        _fill_scalars(ptb, message, now)
    for owner, length_name, length in lengths:
        if getattr(owner, length_name) is not None:
            setattr(owner, length_name, length)
    return status


def _fill_scalars(ptb: CACTransferBufferV2, message: Message, now: int) -> None:
    old = ptb.old
    for name, attribute in SCALARS:
        if getattr(old, name) is not None:
            setattr(old, name, getattr(message, attribute))
    for name, value in COMPUTED:
        if getattr(old, name) is not None:
            setattr(old, name, value(message, now))
    for name, value in COMPUTED_V2:
        if getattr(ptb, name) is not None:
            setattr(ptb, name, value(message, now))


def _fill_text(owner: object, text: TextMember, value: str, length: int) -> None:
    """Write a text. `length` is in WCHARs with the terminator; 0 for a text that is returned as NULL."""
    size = getattr(owner, text.size)
    if not length and text.shrinks:
        setattr(owner, text.buffer, None)
        setattr(owner, text.size, 0)
        return
    length = length or 1
    if text.shrinks:
        size = min(size, length)
        setattr(owner, text.size, size)
    setattr(owner, text.buffer, value + "\0" * (1 + size - length))


# -- client side ---------------------------------------------------------------------------------------------------


MAXIMUM_BODY = 4 << 20
_REMEMBERED = 64 << 10  # bytes


@dataclass(slots=True)
class BufferSizes:
    """Buffer sizes of a read, in bytes, or characters of the provider's name and of each format name.

    Buffers are transferred in both directions, so they start small and grow as needed.
    """

    body: int = 1024
    extension: int = 0
    sender: int = 68  # the longest SID
    format_name: int = 64
    certificate: int = 0
    key: int = 0
    signature: int = 0
    provider: int = 1

    def suffice(self, ptb: CACTransferBufferV2) -> bool:
        """Whether the message in a filled buffer would have fitted into buffers of these sizes."""
        old, receive = ptb.old, ptb.old.Receive
        assert receive is not None
        names = max(getattr(receive, member.length) or 0 for member in FORMAT_NAMES)
        return names <= self.format_name and all(
            (getattr(old, member.length) or 0) <= getattr(self, size) for size, member, _ in _GROWING
        )

    def remembered(self) -> BufferSizes:
        """Return the sizes for the next read."""
        kept = {size: min(getattr(self, size), _REMEMBERED) for size in ("body", "extension", "certificate")}
        return replace(self, **kept)

    def enlarge(self, status: int, ptb: CACTransferBufferV2) -> None:
        """Enlarge the sizes after a buffer was too small, to the lengths that the server returned. If it returned none
        that is larger (see deviation D-13), try larger ones."""
        if status == HResult.MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL:
            self.format_name = MAXIMUM_FORMAT_NAME_BUFFER
        concerned = [(size, limit) for size, member, limit in _GROWING if member.too_small == status]
        before = [getattr(self, size) for size, _ in concerned]
        for size, member, limit in _GROWING:
            returned: int = getattr(ptb.old, member.length) or 0
            setattr(self, size, max(getattr(self, size), min(returned, limit)))
        if before == [getattr(self, size) for size, _ in concerned]:
            for size, limit in concerned:
                setattr(self, size, min(2 * getattr(self, size) + 256, limit))


#: Size of `BufferSizes`, its member of the buffer, and the largest size.
_GROWING: tuple[tuple[str, TextMember | BytesMember, int], ...] = (
    ("body", BYTES[0], MAXIMUM_BODY),
    ("extension", BYTES[1], MAXIMUM_BODY),
    ("sender", BYTES[2], 0xFFFF),
    ("certificate", BYTES[3], MAXIMUM_BODY),
    ("key", BYTES[4], 0xFFFF),
    ("signature", BYTES[5], 0xFFFF),
    ("provider", TEXTS[1], 0xFFFF),
)
#: Errors of buffers that can be enlarged. A label always fits.
TOO_SMALL = frozenset([FORMAT_NAMES[0].too_small, *(member.too_small for _, member, _ in _GROWING)])


def receive_buffer(
    action: ReceiveAction, timeout: int, cursor: int = 0, uow: bytes | None = None, sizes: BufferSizes | None = None
) -> CACTransferBufferV2:
    """Return a buffer that requests every property; `timeout` in milliseconds."""
    sizes = sizes or BufferSizes()
    receive = CACTransferBufferV1_Receive(RequestTimeout=timeout, Action=action, Cursor=cursor)
    for text in FORMAT_NAMES:
        setattr(receive, text.buffer, "\0" * sizes.format_name)
        setattr(receive, text.size, sizes.format_name)
        setattr(receive, text.length, sizes.format_name)
    old = CACTransferBufferV1(uTransferType=CACTB_RECEIVE, Receive=receive)
    for name, attribute in SCALARS:
        setattr(old, name, getattr(_BLANK, attribute))
    for name, value in COMPUTED:
        setattr(old, name, value(_BLANK, 0))
    label = 250
    old.ppTitle, old.ulTitleBufferSizeInWCHARs, old.pulTitleBufferSizeInWCHARs = "\0" * label, label, label
    old.ppBody, old.ulBodyBufferSizeInBytes, old.ulAllocBodyBufferInBytes = bytes(sizes.body), sizes.body, sizes.body
    old.ppMsgExtension, old.ulMsgExtensionBufferInBytes = bytes(sizes.extension), sizes.extension
    old.pBodySize = old.pMsgExtensionSize = 0
    for size, member, _ in _GROWING[2:]:
        given: int = getattr(sizes, size)
        setattr(old, member.buffer, bytes(given) if isinstance(member, BytesMember) else "\0" * given)
        setattr(old, member.size, given)
        setattr(old, member.length, 0)
    if uow is not None:
        old.pUow = XACTUOW(uow)
    ptb = CACTransferBufferV2(old=old)
    for name, value in COMPUTED_V2:
        setattr(ptb, name, value(_BLANK, 0))
    return ptb


def message_from_receive(ptb: CACTransferBufferV2) -> Message:
    """Return the message in a filled buffer."""
    old, receive = ptb.old, ptb.old.Receive
    assert receive is not None

    identifier, transaction = (
        identifier_of(v) if isinstance(v, OBJECTID) else NULL_IDENTIFIER for v in (old.ppMessageID, ptb.ppXactID)
    )

    def text(owner: object, member: TextMember) -> str:
        value = getattr(owner, member.buffer)
        return value.partition("\0")[0] if value else ""

    def data(name: str, length: str) -> bytes:
        value = getattr(old, name)
        return value[: getattr(old, length)] if value else b""

    response, administration, destination, ordering = (text(receive, member) for member in FORMAT_NAMES)
    return Message(
        body=data("ppBody", "pBodySize"),
        label=text(old, TEXTS[0]),
        body_type=old.pulBodyType or 0,
        priority=old.pPriority or 0,
        delivery_guarantee=old.pDelivery or 0,
        acknowledgements_requested=old.pAcknowledge or 0,
        journaling_requested=old.pAuditing or 0,
        message_class=old.pClass or 0,
        application_tag=old.pApplicationTag or 0,
        correlation_identifier=_bytes(old.ppCorrelationID, NULL_IDENTIFIER),
        extension=data("ppMsgExtension", "pMsgExtensionSize"),
        time_to_reach_queue=_or_infinite(old.pulRelativeTimeToQueue),
        time_to_be_received=_or_infinite(old.pulRelativeTimeToLive),
        administration_queue_format_name=administration,
        response_queue_format_name=response,
        destination_queue_format_name=destination,
        transaction_status_queue_format_name=ordering,
        tracing_requested=old.pTrace or 0,
        privacy_level=old.pulPrivLevel or 0,
        authentication_level=old.pAuthenticated or 0,
        hash_algorithm=old.pulHashAlg or 0,
        encryption_algorithm=old.pulEncryptAlg or 0,
        sender_identifier_type=old.pulSenderIDType or 0,
        sender_identifier=data("ppSenderID", "pulSenderIDLenProp"),
        sender_certificate=data("ppSenderCert", "pulSenderCertLenProp"),
        symmetric_key=data("ppSymmKeys", "pulSymmKeysSizeProp"),
        signature=data("ppSignature", "pulSignatureSizeProp"),
        authentication_provider_type=old.pulProvType or 0,
        authentication_provider_name=text(old, TEXTS[1]),
        connector_type_identifier=_bytes(old.ppConnectorType, NULL_GUID),
        identifier=identifier,
        source_machine_identifier=_bytes(old.ppSrcQMID, NULL_GUID),
        sent_time=old.pSentTime or 0,
        arrival_time=old.pArrivedTime or 0,
        transaction_identifier=transaction,
        first_in_transaction=bool(ptb.pbFirstInXact),
        last_in_transaction=bool(ptb.pbLastInXact),
    )


def _bytes(value: bytes | Null | None, default: bytes) -> bytes:
    return value if isinstance(value, bytes) else default


def _or_infinite(seconds: int | None) -> int:
    return INFINITE if seconds is None else seconds


_BLANK = Message()
