"""The headers of a UserMessage packet: one dataclass each, with `pack` and `unpack` ([MS-MQMQ] 2.2.19 and 2.2.20).

Reserved bits of flag fields are sent as 0 and ignored on receipt.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.queue_names import QueueName, pack_name, unpack_name
from openmsmq.packet.reader import Reader, padded, wchars

SIGNATURE = 0x524F494C  # "LIOR"
VERSION = 0x10
MAXIMUM_LABEL_LENGTH = 0xFA  # WCHARs with the terminator
NO_GUID = bytes(16)
# Defaults of HashAlgorithm and EncryptionAlgorithm ([MS-MQDMPR] 3.1.1.12)
SHA1, RC4 = 0x8004, 0x6801
_SOAP_HEADER, _SOAP_BODY = 0x0320, 0x0384  # sections of a SoapHeader

_BASE = struct.Struct("<BBHIII")
_USER = struct.Struct("<16s16sIIII")
_TRANSACTION = struct.Struct("<IIIII")
_SECURITY = struct.Struct("<HHHHII")
_PROPERTIES = struct.Struct("<BBH20s8I")
_SESSION = struct.Struct("<HHIHHHH")


@dataclass(slots=True)
class BaseHeader:
    """2.2.19.1. `packet_size` is the size of the packet without SessionHeader; if it is 0, the packet sets it."""

    priority: int = 3
    internal: bool = False
    has_session: bool = False
    has_debug: bool = False
    tracing: bool = False
    packet_size: int = 0
    time_to_reach_queue: int = 0xFFFFFFFF

    def pack(self) -> bytes:
        flags = (
            self.priority | self.internal << 3 | self.has_session << 4 | self.has_debug << 5 | self.tracing << 8
        )  # fmt: skip
        return _BASE.pack(VERSION, 0, flags, SIGNATURE, self.packet_size, self.time_to_reach_queue)

    @classmethod
    def unpack(cls, reader: Reader) -> BaseHeader:
        with reader.header("BaseHeader"):
            version, _, flags, signature, size, time_to_reach_queue = reader.unpack(_BASE)
        if version != VERSION or signature != SIGNATURE:
            raise BadPacket(f"BaseHeader: version {version:#x}, signature {signature:#x}")
        return cls(
            flags & 7, flags & 0x08 != 0, flags & 0x10 != 0, flags & 0x20 != 0, flags & 0x100 != 0, size,
            time_to_reach_queue,
        )  # fmt: skip


@dataclass(slots=True)
class UserHeader:
    """2.2.19.2. The `has_` flags tell which headers follow."""

    source_queue_manager: bytes = NO_GUID
    queue_manager_address: bytes = NO_GUID
    time_to_be_received: int = 0xFFFFFFFF
    sent_time: int = 0
    message_id: int = 0
    routing_count: int = 0
    delivery: int = 0
    negative_journaling: bool = False
    positive_journaling: bool = False
    destination: QueueName | None = None
    administration: QueueName | None = None
    response: QueueName | None = None
    has_security: bool = False
    has_transaction: bool = False
    has_properties: bool = True
    has_multi_queue: bool = False
    from_http: bool = False
    has_soap: bool = False
    connector_type: bytes | None = None

    def pack(self) -> bytes:
        names = b""
        kinds = []
        for name in (self.destination, self.administration, self.response):
            kind, data = pack_name(name)
            kinds.append(kind)
            names += data
        flags = (
            self.routing_count | self.delivery << 5 | self.negative_journaling << 8 | self.positive_journaling << 9
            | kinds[0] << 10 | kinds[1] << 13 | kinds[2] << 16 | self.has_security << 19 | self.has_transaction << 20
            | self.has_properties << 21 | (self.connector_type is not None) << 22 | self.has_multi_queue << 23
            | self.from_http << 25 | self.has_soap << 28
        )  # fmt: skip
        fixed = _USER.pack(
            self.source_queue_manager, self.queue_manager_address, self.time_to_be_received, self.sent_time,
            self.message_id, flags,
        )  # fmt: skip
        return fixed + names + (self.connector_type or b"")

    @classmethod
    def unpack(cls, reader: Reader) -> UserHeader:
        with reader.header("UserHeader"):
            source, address, time_to_be_received, sent_time, message_id, flags = _USER.unpack(reader.bytes(_USER.size))
            destination = unpack_name(reader, flags >> 10 & 7, "DestinationQueue", (0, 3, 5, 7))
            administration = unpack_name(reader, flags >> 13 & 7, "AdminQueue", (0, 2, 3, 5, 6, 7))
            response = unpack_name(reader, flags >> 16 & 7, "ResponseQueue", range(8))
            connector_type = reader.bytes(16) if flags >> 22 & 1 else None
        return cls(
            source, address, time_to_be_received, sent_time, message_id, flags & 0x1F, flags >> 5 & 3,
            bool(flags >> 8 & 1), bool(flags >> 9 & 1), destination, administration, response, bool(flags >> 19 & 1),
            bool(flags >> 20 & 1), bool(flags >> 21 & 1), bool(flags >> 23 & 1), bool(flags >> 25 & 1),
            bool(flags >> 28 & 1), connector_type,
        )  # fmt: skip


@dataclass(slots=True)
class TransactionHeader:
    """2.2.20.5. `identifier` has 20 bits; the sequence identifier is (timestamp, ordinal)."""

    identifier: int = 0
    first: bool = False
    last: bool = False
    final_ack_required: bool = False
    sequence_ordinal: int = 0
    sequence_timestamp: int = 0
    sequence_number: int = 1
    previous_sequence_number: int = 0
    connector_queue_manager: bytes | None = None

    def pack(self) -> bytes:
        flags = (
            (self.connector_queue_manager is not None) | self.final_ack_required << 1 | self.first << 2 | self.last << 3
            | (self.identifier & 0xFFFFF) << 4
        )  # fmt: skip
        fixed = _TRANSACTION.pack(
            flags, self.sequence_ordinal, self.sequence_timestamp, self.sequence_number, self.previous_sequence_number
        )
        return fixed + (self.connector_queue_manager or b"")

    @classmethod
    def unpack(cls, reader: Reader) -> TransactionHeader:
        with reader.header("TransactionHeader"):
            flags, ordinal, timestamp, number, previous = reader.unpack(_TRANSACTION)
            connector = reader.bytes(16) if flags & 1 else None
        return cls(
            flags >> 4 & 0xFFFFF, bool(flags & 4), bool(flags & 8), bool(flags & 2), ordinal, timestamp, number,
            previous, connector,
        )  # fmt: skip


@dataclass(slots=True)
class SecurityHeader:
    """2.2.20.6. Deviation D-31: the sizes determine which parts are present; the flag AI is ignored, because some
    senders omit it."""

    sender_type: int = 0
    authenticated: bool = False
    encrypted: bool = False
    default_provider: bool = False
    signature_type: int = 0
    sender: bytes = b""
    encryption_key: bytes = b""
    signature: bytes = b""
    certificate: bytes = b""
    provider_type: int | None = None
    provider_name: str = ""

    def pack(self) -> bytes:
        provider = b""
        if self.provider_type is not None:
            provider = self.provider_type.to_bytes(4, "little") + wchars(self.provider_name)
        parts = (self.sender, self.encryption_key, self.signature, self.certificate, provider)
        flags = (
            self.sender_type | self.authenticated << 4 | self.encrypted << 5 | self.default_provider << 6
            | any(parts) << 7 | self.signature_type << 8
        )  # fmt: skip
        return _SECURITY.pack(flags, *map(len, parts)) + b"".join(map(padded, parts))

    @classmethod
    def unpack(cls, reader: Reader) -> SecurityHeader:
        with reader.header("SecurityHeader"):
            flags, *sizes = reader.unpack(_SECURITY)
            parts = []
            for size in sizes:
                reader.align()
                parts.append(reader.bytes(size))
            reader.align()
        provider_type, provider_name = None, ""
        if parts[4]:
            provider = Reader(parts[4], "ProviderInfo")
            provider_type = provider.u32()
            provider_name = provider.terminated(provider.remaining)
        return cls(
            flags & 0xF, bool(flags >> 4 & 1), bool(flags >> 5 & 1), bool(flags >> 6 & 1), flags >> 8 & 0xF,
            parts[0], parts[1], parts[2], parts[3], provider_type, provider_name,
        )  # fmt: skip


@dataclass(slots=True)
class MessagePropertiesHeader:
    """2.2.19.3. If `allocated_size` is 0, it is the size of the body. The packet adds the padding after the body."""

    acknowledge: int = 0
    label: str = ""
    message_class: int = 0
    correlation_id: bytes = bytes(20)
    body_type: int = 0
    application_tag: int = 0
    allocated_size: int = 0
    privacy_level: int = 0
    hash_algorithm: int = 0
    encryption_algorithm: int = RC4
    extension: bytes = b""
    body: bytes = b""

    def pack(self) -> bytes:
        label = wchars(self.label) if self.label else b""
        if len(label) > 2 * MAXIMUM_LABEL_LENGTH:
            raise ValueError(f"the label has {len(label) // 2 - 1} characters, at most {MAXIMUM_LABEL_LENGTH - 1}")
        fixed = _PROPERTIES.pack(
            self.acknowledge, len(label) // 2, self.message_class, self.correlation_id, self.body_type,
            self.application_tag, len(self.body), self.allocated_size or len(self.body), self.privacy_level,
            self.hash_algorithm, self.encryption_algorithm, len(self.extension),
        )  # fmt: skip
        return fixed + label + self.extension + self.body

    @classmethod
    def unpack(cls, reader: Reader, partial: bool = False) -> MessagePropertiesHeader:
        """Parse the header. `partial`: the body may be truncated, as in the first section of MS-MQRR. Raises
        BadPacket."""
        with reader.header("MessagePropertiesHeader"):
            values = _PROPERTIES.unpack(reader.bytes(_PROPERTIES.size))
            acknowledge, length, message_class, correlation_id, body_type, application_tag = values[:6]
            body_size, allocated_size, privacy_level, hash_algorithm, encryption_algorithm, extension_size = values[6:]
            if length > MAXIMUM_LABEL_LENGTH:
                raise BadPacket(f"MessagePropertiesHeader: LabelLength is {length}, at most {MAXIMUM_LABEL_LENGTH}")
            if allocated_size < body_size:
                raise BadPacket(
                    f"MessagePropertiesHeader: AllocationBodySize is {allocated_size}, below MessageSize, {body_size}"
                )
            label = reader.terminated(2 * length) if length else ""
            extension = reader.bytes(extension_size)
            body = reader.bytes(min(body_size, reader.remaining) if partial else body_size)
            reader.align()
        return cls(
            acknowledge, label, message_class, correlation_id, body_type, application_tag, allocated_size,
            privacy_level, hash_algorithm, encryption_algorithm, extension, body,
        )  # fmt: skip


@dataclass(slots=True)
class DebugHeader:
    """2.2.20.8. `queue` is the GUID of a public queue for trace messages, or None."""

    queue: bytes | None = None

    def pack(self) -> bytes:
        return (b"\0\0\0\0" if self.queue is None else b"\1\0\0\0") + (self.queue or b"")

    @classmethod
    def unpack(cls, reader: Reader) -> DebugHeader:
        with reader.header("DebugHeader"):
            kind = reader.u32() & 3
            if kind > 1:
                raise BadPacket(f"DebugHeader: queue type {kind}, allowed: 0 and 1")
            return cls(reader.bytes(16) if kind else None)


@dataclass(slots=True)
class SoapHeader:
    """2.2.20.7. Lengths count WCHARs with the terminator; both texts are padded (deviation D-154)."""

    header: str = ""
    body: str = ""

    def pack(self) -> bytes:
        data = b""
        for section, text in ((_SOAP_HEADER, self.header), (_SOAP_BODY, self.body)):
            encoded = wchars(text)
            data += struct.pack("<HHI", section, 0, len(encoded) // 2) + padded(encoded)
        return data

    @classmethod
    def unpack(cls, reader: Reader) -> SoapHeader:
        texts = []
        with reader.header("SoapHeader"):
            for expected in (_SOAP_HEADER, _SOAP_BODY):
                section = reader.u16()
                if section != expected:
                    raise BadPacket(f"SoapHeader: section {section:#06x}, expected {expected:#06x}")
                reader.u16()
                texts.append(reader.terminated(2 * reader.u32()))
                reader.align()
        return cls(*texts)


@dataclass(slots=True)
class SessionHeader:
    """2.2.20.4."""

    ack_sequence_number: int = 0
    recoverable_ack_sequence_number: int = 0
    recoverable_ack_flags: int = 0
    user_sequence_number: int = 0
    recoverable_sequence_number: int = 0
    window_size: int = 0x40

    def pack(self) -> bytes:
        return _SESSION.pack(
            self.ack_sequence_number, self.recoverable_ack_sequence_number, self.recoverable_ack_flags,
            self.user_sequence_number, self.recoverable_sequence_number, self.window_size, 0,
        )  # fmt: skip

    @classmethod
    def unpack(cls, reader: Reader) -> SessionHeader:
        with reader.header("SessionHeader"):
            return cls(*reader.unpack(_SESSION)[:6])


@dataclass(slots=True)
class MultiQueueFormatHeader:
    """2.2.20.1: all destination queues of a message, and its administration and response queues."""

    destination: list[QueueName] = field(default_factory=list)
    administration: list[QueueName] = field(default_factory=list)
    response: list[QueueName] = field(default_factory=list)
    signature: bytes = b""
