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
from openmsmq.packet.reader import wchars
from openmsmq.packet.user_message import UserMessage
from openmsmq.protection import algorithms

#: Hashes for new signatures; `verify` also supports older ones.
SIGNING_HASHES: Final[dict[int, hashes.HashAlgorithm]] = {
    algorithms.SHA256: hashes.SHA256(), algorithms.SHA512: hashes.SHA512(),
}  # fmt: skip


class Version(IntEnum):
    """MSMQ 1.0, 2.0 and 3.0 signatures, numbered by the resulting AuthenticationLevel ([MS-MQMP] 2.2.3.2)."""

    MSMQ_1 = 1
    MSMQ_2 = 3
    MSMQ_3 = 5


def signed_bytes(packet: UserMessage, version: Version, body: bytes) -> bytes:
    """Return the bytes to hash for the signature of a packet, [MS-MQMQ] 2.5.1 to 2.5.3 (deviation D-135).

    `body` is the plain body, even if the packet contains the encrypted one.
    """
    user, properties = packet.user, packet.properties
    data = properties.correlation_id + struct.pack("<I", properties.application_tag) + body
    data += wchars(properties.label) if properties.label else b""  # without a label, the packet has no terminator
    data += _name(user.response) + _name(user.administration)
    if version is Version.MSMQ_1:
        return data
    if version is Version.MSMQ_3:
        data += properties.extension + _list((packet.multi_queue or MultiQueueFormatHeader()).destination)
    journaling = user.positive_journaling << 1 | user.negative_journaling
    data += user.source_queue_manager
    data += bytes([user.delivery, packet.base.priority, journaling, properties.acknowledge & 0x0F])
    data += struct.pack("<HI", properties.message_class, properties.body_type)
    data += user.connector_type or NO_GUID
    return data if version is Version.MSMQ_3 else data + _name(user.destination)


def sign(data: bytes, hash_algorithm: int, key: RSAPrivateKey) -> bytes:
    """Return the field Signature for `signed_bytes`: RSASSA-PKCS1-v1_5, least significant byte first (deviation D-136).

    Raises KeyError for a hash that is not in `SIGNING_HASHES`, ValueError if the key is too short.
    """
    return key.sign(data, PKCS1v15(), SIGNING_HASHES[hash_algorithm])[::-1]


def _name(name: QueueName | None) -> bytes:
    """Return a name as in the UserHeader, a direct one without its padding."""
    if name is None or name.type is not NameType.DIRECT:
        return pack_name(name)[1]
    text = wchars(name.direct)
    return struct.pack("<H", len(text)) + text


def _list(names: list[QueueName]) -> bytes:
    data = b""
    for name in names:
        data += pack_element(name, len(data))
    return data
