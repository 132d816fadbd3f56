"""Conversion between Message and UserMessage packet ([MS-MQDMPR] 3.1.7.1.30 to 3.1.7.1.32, [MS-MQRR] 2.2.5).

Values that a packet cannot represent are left out: names of multicast addresses, machines, connectors and journals
(other than direct ones) as administration or response queue, and all but the low 20 bits of the number of a
transaction.
"""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

from openmsmq.model import names
from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import MsmqError
from openmsmq.model.message import NULL_GUID, Message
from openmsmq.packet.headers import (
    RC4,
    SHA1,
    BaseHeader,
    DebugHeader,
    MessagePropertiesHeader,
    MultiQueueFormatHeader,
    SecurityHeader,
    TransactionHeader,
    UserHeader,
)
from openmsmq.packet.message_packet import MessagePacket, SubqueueHeader
from openmsmq.packet.queue_names import ON_SOME_HOST, NameType, QueueName
from openmsmq.packet.user_message import UserMessage

NAMES_KEPT = 512  # cached parsed format names: most messages use the same few
_NEGATIVE, _POSITIVE = 1, 2  # journaling_requested
_TRANSACTION_BITS = 0xFFFFF
DEFAULT_PROVIDER_TYPE = 1  # PROV_RSA_FULL, AuthenticationProviderType in [MS-MQDMPR] 3.1.1.12


def packet_of(message: Message, subqueue: str = "") -> MessagePacket:
    """Return the packet of a message in a queue of this machine, or in one of its subqueues. Times to reach a queue
    become absolute, as in MS-MQRR.

    Deviation D-44: the source address is not stored, so the ExtendedAddressHeader is present and empty.
    """
    user_message = user_message_of(message, tells_level=True)
    if message.time_to_reach_queue != INFINITE:
        user_message.base.time_to_reach_queue = min(message.sent_time + message.time_to_reach_queue, INFINITE)
    return MessagePacket(
        user_message,
        SubqueueHeader(
            abort_count=message.abort_count,
            move_count=message.move_count,
            last_move_time=message.last_move_time * 1000 & 0xFFFFFFFF,  # deviation D-67
            subqueue=subqueue,
        ),
    )


def user_message_of(message: Message, *, tells_level: bool = False) -> UserMessage:
    """Return the UserMessage packet of a message in a queue of this machine, as in MS-MQQP and MS-MQQB.

    `tells_level` is for remote reads, which return the AuthenticationLevel. A packet in transfer claims none: its
    receiver verifies it (deviation D-143).
    """
    source = message.source_machine_identifier
    destination = _names(message.destination_queue_format_name)
    administration = _names(message.administration_queue_format_name)
    response = _names(message.response_queue_format_name)
    user = UserHeader(
        source_queue_manager=message.source_machine_identifier,
        queue_manager_address=_machine(message.destination_queue_format_name),
        time_to_be_received=message.time_to_be_received,
        sent_time=message.sent_time,
        message_id=int.from_bytes(message.identifier[16:], "little"),
        delivery=message.delivery_guarantee,
        negative_journaling=bool(message.journaling_requested & _NEGATIVE),
        positive_journaling=bool(message.journaling_requested & _POSITIVE),
        destination=_on_destination(destination),
        administration=_on_source(administration, source),
        response=_on_source(response, source),
        connector_type=_given(message.connector_type_identifier),
    )
    base = BaseHeader(
        message.priority, tracing=bool(message.tracing_requested), time_to_reach_queue=message.time_to_reach_queue
    )
    return UserMessage(
        base,
        user,
        _transaction_header(message),
        _security_header(message, message.authentication_level if tells_level else 0),
        _properties_header(message),
        DebugHeader() if message.tracing_requested else None,
        multi_queue=_multi_queue_header(
            _names(message.destination_multi_queue_format_name) or destination,
            administration,
            response,
            message.multiple_destination_signature,
        ),
    )


def _transaction_header(message: Message) -> TransactionHeader | None:
    """Return the header, without the parts that only connectors and SRMP use (D-239)."""
    if not message.is_transactional:
        return None
    number = int.from_bytes(message.transaction_identifier[16:], "little")
    return TransactionHeader(number & _TRANSACTION_BITS, message.first_in_transaction, message.last_in_transaction)


def _security_header(message: Message, level: int) -> SecurityHeader | None:
    is_signed = bool(message.signature or message.multiple_destination_signature)
    # [MS-MQMQ] 2.2.20.6: a signature has the name of its provider, or is of the default provider.
    by_default = is_signed and (message.default_provider or not message.authentication_provider_name)
    # Deviation D-45: present when it has content, regardless of AuthenticationLevel.
    if not (
        level or message.sender_identifier_type or message.privacy_level or by_default or message.sender_identifier
        or message.symmetric_key or message.signature or message.sender_certificate
        or message.authentication_provider_name
    ):  # fmt: skip
        return None
    header = SecurityHeader(
        sender_type=message.sender_identifier_type,
        encrypted=bool(message.privacy_level),
        default_provider=by_default,
        signature_type=level,
        sender=message.sender_identifier,
        encryption_key=message.symmetric_key,
        signature=message.signature,
        certificate=message.sender_certificate,
    )
    if message.authentication_provider_name and not by_default:
        header.provider_type = message.authentication_provider_type
        header.provider_name = message.authentication_provider_name
    return header


def _properties_header(message: Message) -> MessagePropertiesHeader:
    """Return the MessagePropertiesHeader. Unset hash and cipher become the defaults (deviation D-184)."""
    return MessagePropertiesHeader(
        message.acknowledgements_requested,
        message.label,
        message.message_class,
        message.correlation_identifier,
        message.body_type,
        message.application_tag,
        0,
        message.privacy_level,
        message.hash_algorithm or SHA1,
        message.encryption_algorithm or RC4,
        message.extension,
        message.body,
    )


def message_of(
    packet: MessagePacket, *, absolute: bool = True, tells_level: bool = False, here: bytes = NULL_GUID
) -> Message:
    """Return the message in a packet, without arrival time and lookup identifier.

    Args:
        here: identifier of the destination queue manager, which a packet to a direct format name does not contain.
        absolute: whether the time to reach the queue is a point in time (MS-MQRR) or a duration.
        tells_level: whether to trust the AuthenticationLevel in the packet: for remote reads only (deviation D-143).
    """
    packed = packet.message
    base, user, properties = packed.base, packed.user, packed.properties
    source = user.source_queue_manager
    message = Message(
        body=properties.body,
        label=properties.label,
        body_type=properties.body_type,
        priority=0 if packed.transaction else base.priority,
        # [MS-MQMQ] 2.2.19.2: 0 or 1, and 1 in a transaction; a message that counts as recoverable is stored
        delivery_guarantee=int(bool(user.delivery or packed.transaction)),
        acknowledgements_requested=properties.acknowledge & 0xF,
        journaling_requested=user.negative_journaling * _NEGATIVE | user.positive_journaling * _POSITIVE,
        message_class=properties.message_class,
        application_tag=properties.application_tag,
        correlation_identifier=properties.correlation_id,
        extension=properties.extension,
        time_to_reach_queue=base.time_to_reach_queue,
        time_to_be_received=user.time_to_be_received,
        tracing_requested=int(base.tracing),
        privacy_level=properties.privacy_level,
        hash_algorithm=properties.hash_algorithm,
        encryption_algorithm=properties.encryption_algorithm,
        connector_type_identifier=user.connector_type or NULL_GUID,
        identifier=source + user.message_id.to_bytes(4, "little"),
        source_machine_identifier=source,
        sent_time=user.sent_time,
    )
    if absolute and base.time_to_reach_queue != INFINITE:
        message.time_to_reach_queue = max(base.time_to_reach_queue - user.sent_time, 0)
    if packed.transaction is not None:
        header = packed.transaction
        message.transaction_identifier = source + header.identifier.to_bytes(4, "little")
        message.first_in_transaction, message.last_in_transaction = header.first, header.last
    if packed.security is not None:
        _read_security(message, packed.security)
        if tells_level:
            message.authentication_level = packed.security.signature_type
    if packed.multi_queue is not None:
        message.multiple_destination_signature = packed.multi_queue.signature
    _read_names(message, packed, here)
    if packet.subqueue is not None:
        message.abort_count, message.move_count = packet.subqueue.abort_count, packet.subqueue.move_count
    return message


def _read_security(message: Message, header: SecurityHeader) -> None:
    message.sender_identifier_type, message.sender_identifier = header.sender_type, header.sender
    message.symmetric_key, message.signature = header.encryption_key, header.signature
    message.sender_certificate = header.certificate
    message.default_provider = header.default_provider
    message.authentication_provider_type = (
        DEFAULT_PROVIDER_TYPE if header.default_provider else header.provider_type or 0
    )
    message.authentication_provider_name = header.provider_name


def _read_names(message: Message, packed: UserMessage, here: bytes) -> None:
    user = packed.user
    destination = user.destination
    is_usual = packed.multi_queue is None and user.administration is None and user.response is None
    if is_usual and destination is not None and destination.type is NameType.DIRECT:
        message.destination_queue_format_name = f"DIRECT={destination.direct}"
        return
    several = packed.multi_queue or MultiQueueFormatHeader()
    hosts = {
        NameType.PRIVATE_ON_SOURCE: user.source_queue_manager,
        NameType.PRIVATE_ON_DESTINATION: user.queue_manager_address
        if user.queue_manager_address != NULL_GUID
        else here,
    }
    # Deviation D-180: a public or direct format name does not say which queue manager hosts the administration queue.
    administration = user.administration
    if administration is not None:
        of_administration = hosts.get(administration.type)
        if of_administration is None and administration.type is NameType.PRIVATE:
            of_administration = administration.guid
        hosts[NameType.PRIVATE_ON_ADMINISTRATION] = of_administration or NULL_GUID
    if user.destination is not None:  # the element of the list to which this packet is addressed
        message.destination_queue_format_name = _text(user.destination, hosts)
    if len(several.destination) > 1:
        message.destination_multi_queue_format_name = ",".join(_text(element, hosts) for element in several.destination)
    for attribute, name, elements in (
        ("administration_queue_format_name", user.administration, several.administration),
        ("response_queue_format_name", user.response, several.response),
    ):
        if name is not None and name.type is NameType.SAME_AS_ADMINISTRATION:
            name = user.administration
        listed = elements or ([name] if name is not None else [])
        known = [each for each in listed if not _has_unknown_host(each, hosts)]
        setattr(message, attribute, ",".join([_text(element, hosts) for element in known]))


def _has_unknown_host(name: QueueName, hosts: dict[NameType, bytes]) -> bool:
    """Whether a private queue is named only by its number and the packet does not identify the queue manager."""
    return name.type in ON_SOME_HOST and hosts.get(name.type, NULL_GUID) == NULL_GUID


def _text(name: QueueName, hosts: dict[NameType, bytes]) -> str:
    """Return the text of a format name; one that cannot be parsed is returned unchanged."""
    if name.is_distribution_list:
        return str(names.DistributionListFormatName(UUID(bytes_le=name.guid)))
    match name.type:
        case NameType.PUBLIC:
            return str(names.PublicFormatName(UUID(bytes_le=name.guid)))
        case NameType.DIRECT:
            return f"DIRECT={name.direct}"
    return str(names.PrivateFormatName(UUID(bytes_le=hosts.get(name.type, name.guid)), name.number))


@lru_cache(NAMES_KEPT)
def _names(text: str) -> list[QueueName]:
    """Return the names in a format name that packets can represent. The list is cached and must not be changed."""
    if not text:
        return []
    try:
        parsed = names.parse_format_name(text)
    except MsmqError:  # not a valid format name
        return [QueueName(NameType.DIRECT, direct=text.partition("=")[2] or text)]
    elements = parsed.elements if isinstance(parsed, names.MultipleElementFormatName) else (parsed,)
    return [name for element in elements if (name := _queue_name(element)) is not None]


def _queue_name(name: names.SingleFormatName) -> QueueName | None:
    match name:
        case names.PublicFormatName(guid=guid, suffix=names.Suffix.NONE):
            return QueueName(NameType.PUBLIC, guid.bytes_le)
        case names.PrivateFormatName(guid=guid, number=number, suffix=names.Suffix.NONE):
            return QueueName(NameType.PRIVATE, guid.bytes_le, number)
        case names.DirectFormatName():
            return QueueName(NameType.DIRECT, direct=name.direct_id)
        case names.DistributionListFormatName(guid=guid):
            return QueueName(NameType.PUBLIC, guid.bytes_le, is_distribution_list=True)
    return None


def _on_destination(destination: list[QueueName]) -> QueueName | None:
    """Return the name of the destination. A private queue is named only by its number; QueueManagerAddress identifies
    its queue manager."""
    if not destination:
        return None
    name = destination[0]
    if name.type is NameType.PRIVATE:
        return QueueName(NameType.PRIVATE_ON_DESTINATION, number=name.number)
    return name


def _on_source(listed: list[QueueName], source: bytes) -> QueueName | None:
    """Return the first name. A private queue of the sender's machine is named only by its number."""
    if not listed:
        return None
    name = listed[0]
    if name.type is NameType.PRIVATE and name.guid == source:
        return QueueName(NameType.PRIVATE_ON_SOURCE, number=name.number)
    return name


def _multi_queue_header(
    destination: list[QueueName], administration: list[QueueName], response: list[QueueName], signature: bytes
) -> MultiQueueFormatHeader | None:
    """Return the header if a list has several names or a distribution list, or a signature requires it; otherwise
    None."""
    if not (signature or _is_several(destination) or _is_several(administration) or _is_several(response)):
        return None
    return MultiQueueFormatHeader(destination, administration, response, signature)


def _is_several(listed: list[QueueName]) -> bool:
    return len(listed) > 1 or (len(listed) == 1 and listed[0].is_distribution_list)


@lru_cache(NAMES_KEPT)
def _machine(destination: str) -> bytes:
    """Return QueueManagerAddress: the owner of a private destination; the address of a direct one is not stored, and a
    public one has none here (D-226)."""
    try:
        parsed = names.parse_format_name(destination)
    except MsmqError:
        return NULL_GUID
    return parsed.guid.bytes_le if isinstance(parsed, names.PrivateFormatName) else NULL_GUID


def _given(guid: bytes) -> bytes | None:
    return guid if guid != NULL_GUID else None
