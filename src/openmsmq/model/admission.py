"""Check of messages, which every entry point calls before a message is put into a queue.

A message that passes can be read through every protocol, peeked at, moved, journaled, dead-lettered and exported: each
part fits into its header, and the largest packet for a reader fits into BaseHeader.PacketSize ([MS-MQMQ] 2.2.19.1;
deviation D-19 from [MS-MQDMPR] 3.1.7.1.27). Texts are counted in UTF-16 code units, as on the wire.
"""

from __future__ import annotations

from openmsmq.model.constants import MAXIMUM_LABEL, MAXIMUM_MESSAGE_SIZE
from openmsmq.model.errors import HResult, IllegalFormatName, IllegalPropertyValue, InsufficientResources, MsmqError
from openmsmq.model.message import Message

# WCHARs of a format name without its terminator: a reader's buffer holds 1024 ([MS-MQMP] 2.2.3.2, range of
# ulResponseFormatNameLen and its like).
MAXIMUM_MESSAGE_FORMAT_NAME = 1023
MAXIMUM_PROVIDER_NAME = 1023  # WCHARs; not specified, but longer than any real name
MAXIMUM_SECURITY_PART = 0xFFFF  # bytes: the size fields of SecurityHeader have 16 bits ([MS-MQMQ] 2.2.20.6)
_ALL_NAMES = (
    "destination_queue_format_name", "administration_queue_format_name", "response_queue_format_name",
    "transaction_status_queue_format_name",
)  # fmt: skip
_SECURITY_PARTS = ("sender_identifier", "symmetric_key", "signature", "multiple_destination_signature")
_BYTES = (
    "priority", "delivery_guarantee", "acknowledgements_requested", "journaling_requested", "tracing_requested",
    "authentication_level",
)  # fmt: skip
_WORDS = ("message_class",)
_LONGS = (
    "application_tag", "body_type", "time_to_reach_queue", "time_to_be_received", "privacy_level", "hash_algorithm",
    "encryption_algorithm", "sender_identifier_type", "authentication_provider_type",
)  # fmt: skip
_FIXED_PARTS = (
    ("correlation_identifier", 20), ("connector_type_identifier", 16),
)  # fmt: skip
# Bytes of all headers that a packet can have, without their texts and variable parts: BaseHeader 16, UserHeader 64 with
# a connector type, three names with length, terminator and padding 21, TransactionHeader 36, SecurityHeader 16 with
# padding 15, provider 6, MessagePropertiesHeader 58 with padding 3, DebugHeader 20, MultiQueueFormatHeader 66,
# SessionHeader 16.
_HEADERS = 337
_ELEMENT = 8  # maximum bytes of an MQFFormatNameElement in addition to its text
# Messages up to this size need no exact measurement, because names are counted at most four times.
CLEARLY_SMALL = MAXIMUM_MESSAGE_SIZE - (1 << 15)


def utf16_units(text: str) -> int:
    """Return the number of UTF-16 code units of a text; an unpaired surrogate counts as one."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def check_message(message: Message, overhead: int = 0, size: int = 0) -> None:
    """Check a message.

    Args:
        message: a message with destination and sender.
        overhead: bytes that will be added to the packet later, for example by encrypting the body.
        size: `message.size`, if known.

    Raises:
        MsmqError MQ_ERROR_LABEL_TOO_LONG, IllegalFormatName, IllegalPropertyValue, InsufficientResources (the packet
        is larger than 4 MiB); the text contains the part, its size and the limit.
    """
    m = message
    if len(m.label) > MAXIMUM_LABEL // 2 or "\0" in m.label:
        check_label(m.label)
    names = (
        len(m.destination_queue_format_name) | len(m.administration_queue_format_name)
        | len(m.response_queue_format_name) | len(m.transaction_status_queue_format_name)
    )  # fmt: skip
    if names > MAXIMUM_MESSAGE_FORMAT_NAME // 2:
        _check_names(m)
    signatures = len(m.signature) | len(m.multiple_destination_signature)
    if len(m.sender_identifier) | len(m.symmetric_key) | signatures > MAXIMUM_SECURITY_PART:
        _check_security_parts(m)
    if m.authentication_provider_name:
        _check_provider(m.authentication_provider_name)
    _check_numbers(m)
    size = (size or m.size) + overhead
    is_small = size <= CLEARLY_SMALL and not m.destination_multi_queue_format_name
    if not is_small and (packed := max(size, packed_size(m) + overhead)) > MAXIMUM_MESSAGE_SIZE:
        raise too_large(packed)


def check_label(label: str) -> None:
    """Check a label. Raises MsmqError MQ_ERROR_LABEL_TOO_LONG, IllegalPropertyValue for a NUL, which would end it on
    the wire."""
    units = utf16_units(label)
    if units > MAXIMUM_LABEL:
        raise label_too_long(units)
    if "\0" in label:
        raise IllegalPropertyValue(detail=f"the label has a NUL at character {label.index(chr(0))}, which would end it")


def label_too_long(units: int) -> MsmqError:
    """Return the error for a label of `units` UTF-16 code units."""
    return MsmqError(
        HResult.MQ_ERROR_LABEL_TOO_LONG,
        f"a label has at most {MAXIMUM_LABEL} characters (UTF-16 code units, an emoji is two), this one {units}",
    )


def too_large(size: int) -> MsmqError:
    """Return the error for a message of `size` bytes."""
    return InsufficientResources(
        detail=f"the message has {size} bytes with its headers, at most {MAXIMUM_MESSAGE_SIZE}"
    )


def packed_size(message: Message) -> int:
    """Return an upper bound of the bytes of the largest UserMessage packet with the message ([MS-MQMQ] 2.2.20)."""
    names = 0
    for attribute in _ALL_NAMES:
        text: str = getattr(message, attribute)
        if text:  # in the UserHeader and in the MultiQueueFormatHeader
            names += 4 * utf16_units(text) + _ELEMENT * (text.count(",") + 1)
    parts = (
        message.body, message.extension, message.sender_identifier, message.sender_certificate, message.symmetric_key,
        message.signature, message.multiple_destination_signature,
    )  # fmt: skip
    several = message.destination_multi_queue_format_name
    if several:
        names += 2 * utf16_units(several) + _ELEMENT * (several.count(",") + 1)
    texts = 2 * (utf16_units(message.label) + utf16_units(message.authentication_provider_name))
    return _HEADERS + names + texts + sum(map(len, parts))


def _check_names(message: Message) -> None:
    for attribute in _ALL_NAMES:
        units = utf16_units(getattr(message, attribute))
        if units > MAXIMUM_MESSAGE_FORMAT_NAME:
            raise IllegalFormatName(
                detail=f"the {attribute.replace('_', ' ')} has {units} characters, at most "
                f"{MAXIMUM_MESSAGE_FORMAT_NAME}: a reader could not ask for it"
            )


def _check_provider(name: str) -> None:
    units = utf16_units(name)
    if units > MAXIMUM_PROVIDER_NAME or "\0" in name:
        raise IllegalPropertyValue(
            detail=f"the name of the cryptographic provider has {units} characters, allowed: at most "
            f"{MAXIMUM_PROVIDER_NAME}, without NUL, which would end it"
        )


def _check_security_parts(message: Message) -> None:
    for attribute in _SECURITY_PARTS:
        size = len(getattr(message, attribute))
        if size > MAXIMUM_SECURITY_PART:
            raise MsmqError(
                HResult.MQ_ERROR_ILLEGAL_PROPERTY_SIZE,
                f"the {attribute.replace('_', ' ')} has {size} bytes, at most {MAXIMUM_SECURITY_PART}",
            )


def _check_numbers(m: Message) -> None:
    bits = (
        m.application_tag | m.body_type | m.time_to_reach_queue | m.time_to_be_received | m.privacy_level
        | m.hash_algorithm | m.encryption_algorithm | m.sender_identifier_type | m.authentication_provider_type
    )  # fmt: skip
    octets = (
        m.priority | m.delivery_guarantee | m.acknowledgements_requested | m.journaling_requested
        | m.tracing_requested | m.authentication_level
    )  # fmt: skip
    if bits >> 32 or octets >> 8 or m.message_class >> 16:  # also true for negative numbers
        for attributes, maximum in ((_BYTES, 0xFF), (_WORDS, 0xFFFF), (_LONGS, 0xFFFFFFFF)):
            for attribute in attributes:
                value = getattr(m, attribute)
                if not 0 <= value <= maximum:
                    raise IllegalPropertyValue(
                        detail=f"the {attribute.replace('_', ' ')} is {value}, allowed: 0 to {maximum:#x}"
                    )
    if len(m.correlation_identifier) != 20 or len(m.connector_type_identifier) != 16:
        for attribute, size in _FIXED_PARTS:
            if len(getattr(m, attribute)) != size:
                raise MsmqError(
                    HResult.MQ_ERROR_ILLEGAL_PROPERTY_SIZE,
                    f"the {attribute.replace('_', ' ')} has {len(getattr(m, attribute))} bytes, not {size}",
                )
