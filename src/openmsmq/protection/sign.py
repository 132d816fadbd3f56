"""Signed data of a message ([MS-MQMQ] 2.5), and signing ([MS-MQQB] 3.1.7.1.4).

This queue manager signs nothing on transfer; applications sign. `sign` is for clients and tests.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from openmsmq.packet.headers import NO_GUID, MultiQueueFormatHeader
from openmsmq.packet.queue_names import NameType, QueueName, pack_element, pack_name
from openmsmq.packet.reader import padded, wchars
from openmsmq.packet.user_message import UserMessage
from openmsmq.protection import algorithms
from openmsmq.protection.reading import STANDARD, Reading

#: Hashes for new signatures; `verify` also supports older ones.
SIGNING_HASHES: Final[dict[int, hashes.HashAlgorithm]] = {
    algorithms.SHA256: hashes.SHA256(), algorithms.SHA512: hashes.SHA512(),
}  # fmt: skip


class Version(IntEnum):
    """MSMQ 1.0, 2.0 and 3.0 signatures, numbered by the resulting AuthenticationLevel ([MS-MQMP] 2.2.3.2)."""

    MSMQ_1 = 1
    MSMQ_2 = 3
    MSMQ_3 = 5


def signed_bytes(packet: UserMessage, version: Version, body: bytes, reading: Reading = STANDARD) -> bytes:
    """Return the bytes to hash for the signature of a packet, [MS-MQMQ] 2.5.1 to 2.5.3.

    `body` is the plain body, even if the packet contains the encrypted one.
    """
    user, properties = packet.user, packet.properties
    data = properties.correlation_id + struct.pack("<I", properties.application_tag) + body
    data += _label(properties.label, reading)
    data += _name(user.response, reading) + _name(user.administration, reading)
    if version is Version.MSMQ_1:
        return data
    if version is Version.MSMQ_3:
        data += properties.extension + _lists(packet.multi_queue or MultiQueueFormatHeader(), reading)
    journaling = user.positive_journaling << 1 | user.negative_journaling
    data += user.source_queue_manager
    data += bytes([user.delivery, packet.base.priority, journaling, properties.acknowledge & 0x0F])
    data += struct.pack("<H", properties.message_class) + bytes(2 if reading.record_padding else 0)
    data += struct.pack("<I", properties.body_type)
    data += user.connector_type or (NO_GUID if reading.absent_connector == "null" else b"")
    return data if version is Version.MSMQ_3 else data + _name(user.destination, reading)


def sign(data: bytes, hash_algorithm: int, key: RSAPrivateKey) -> bytes:
    """Return the field Signature for `signed_bytes`: RSASSA-PKCS1-v1_5, least significant byte first (deviation D-136).

    Raises KeyError for a hash that is not in `SIGNING_HASHES`, ValueError if the key is too short.
    """
    return key.sign(data, PKCS1v15(), SIGNING_HASHES[hash_algorithm])[::-1]


def _label(label: str, reading: Reading) -> bytes:
    if not label:  # LabelLength is 0, and the packet contains no label
        return b""
    return wchars(label) if reading.label_terminator else wchars(label)[:-2]


def _name(name: QueueName | None, reading: Reading) -> bytes:
    if name is None or name.type is not NameType.DIRECT:
        return pack_name(name)[1]
    text = wchars(name.direct)
    if reading.names == "text":
        return text
    data = struct.pack("<H", len(text)) + text
    return padded(data) if reading.name_padding else data


def _lists(header: MultiQueueFormatHeader, reading: Reading) -> bytes:
    lists = [header.destination]
    if reading.list == "all":
        lists += [header.administration, header.response]
    return b"".join(_list(names) for names in lists)


def _list(names: list[QueueName]) -> bytes:
    data = b""
    for name in names:
        data += pack_element(name, len(data))
    return data
