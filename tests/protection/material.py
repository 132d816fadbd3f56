"""Keys, certificates and packets for tests. The RSA key is that of the vectors and can be reproduced."""

from __future__ import annotations

import datetime
import hashlib
import math
from functools import cache
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from openmsmq.model.security import sid_bytes
from openmsmq.packet.headers import (
    BaseHeader,
    MessagePropertiesHeader,
    MultiQueueFormatHeader,
    SecurityHeader,
    TransactionHeader,
    UserHeader,
)
from openmsmq.packet.queue_names import NameType, QueueName
from openmsmq.packet.reader import Reader
from openmsmq.packet.user_message import UserMessage
from openmsmq.protection.algorithms import SHA512
from openmsmq.protection.keys import RsaPublicKey
from openmsmq.protection.sign import Version, sign, signed_bytes

HERE = UUID("00112233-4455-6677-8899-aabbccddeeff").bytes_le
THERE = UUID("aaaaaaaa-0000-0000-0000-000000000001").bytes_le
ALICE = sid_bytes("S-1-5-21-1-2-3-1001")
BOB = sid_bytes("S-1-5-21-1-2-3-1002")

_SMALL_PRIMES = math.prod(n for n in range(3, 1000, 2) if all(n % divisor for divisor in range(3, n, 2)))


def _is_prime(number: int) -> bool:
    if math.gcd(number, _SMALL_PRIMES) != 1:  # most candidates, without a power
        return False
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        value = pow(base, odd, number)
        if value in (1, number - 1):
            continue
        for _ in range(twos - 1):
            value = value * value % number
            if value == number - 1:
                break
        else:
            return False
    return True


def _prime(seed: str, exponent: int) -> int:
    number = int.from_bytes(hashlib.sha512(seed.encode()).digest(), "big") | 3 << 510 | 1
    while not _is_prime(number) or (number - 1) % exponent == 0:
        number += 2
    return number


@cache
def key_of(name: str = "openmsmq") -> rsa.RSAPrivateKey:
    """Return a 1024-bit RSA key whose primes are derived from a text."""
    e = 65537
    p, q = _prime(f"{name} p", e), _prime(f"{name} q", e)
    d = pow(e, -1, (p - 1) * (q - 1))
    public = rsa.RSAPublicNumbers(e, p * q)
    numbers = rsa.RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), public)
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


def public_of(key: rsa.RSAPrivateKey) -> RsaPublicKey:
    numbers = key.public_key().public_numbers()
    return RsaPublicKey(numbers.n, numbers.e)


@cache
def certificate_of(name: str = "openmsmq") -> bytes:
    """Return a self-signed certificate of a key, in DER."""
    key, subject = key_of(name), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 7, start, start.replace(year=2040))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def vector_packet() -> UserMessage:
    """Return the message of the vectors."""
    return UserMessage(
        BaseHeader(priority=3),
        UserHeader(
            source_queue_manager=HERE, queue_manager_address=HERE, delivery=1, negative_journaling=True,
            destination=QueueName(NameType.PRIVATE_ON_DESTINATION, number=7),
            response=QueueName(NameType.DIRECT, direct="OS:ab\\q"),
        ),
        properties=MessagePropertiesHeader(acknowledge=5, label="L", body_type=8, application_tag=0x01020304,
                                           body=b"hello"),
    )  # fmt: skip


def signed_packet(
    version: Version = Version.MSMQ_2,
    *,
    name: str = "openmsmq",
    algorithm: int = SHA512,
    sender: bytes = ALICE,
    transactional: bool = False,
) -> UserMessage:
    """Return the message of the vectors, signed by its sender."""
    packet = vector_packet()
    packet.properties.hash_algorithm = algorithm
    packet.security = SecurityHeader(
        sender_type=1 if sender else 0, sender=sender, certificate=certificate_of(name), default_provider=True
    )
    if transactional:
        packet.base.priority, packet.transaction = 0, TransactionHeader()
    if version is Version.MSMQ_3:
        elements = [QueueName(NameType.DIRECT, direct=f"OS:here\\private$\\{queue}") for queue in ("a", "b")]
        packet.multi_queue = MultiQueueFormatHeader(elements)
    signature = sign(signed_bytes(packet, version, packet.properties.body), algorithm, key_of(name))
    if packet.multi_queue is not None:
        packet.multi_queue.signature = signature
    else:
        packet.security.signature = signature
    return packet


def over_the_wire(packet: UserMessage) -> UserMessage:
    """Return the packet as decoded by its receiver."""
    return UserMessage.unpack(Reader(packet.pack()))
