"""Limits, each with the last allowed value and the first refused one; and all fields that a signature covers."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.headers import MultiQueueFormatHeader
from openmsmq.packet.queue_names import NameType, QueueName
from openmsmq.packet.reader import wchars
from openmsmq.protection import algorithms
from openmsmq.protection.certificates import UserCertificate, pack_certificates, public_key_of, unpack_certificates
from openmsmq.protection.faults import ProtectionError
from openmsmq.protection.keys import (
    DirectoryKey,
    RsaPublicKey,
    pack_directory_keys,
    pack_public_key,
    pack_sealed_key,
    unpack_directory_keys,
    unpack_public_key,
    unpack_sealed_key,
)
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.protection.sign import Version, signed_bytes
from openmsmq.protection.verify import is_signed, verify
from protection.material import HERE, key_of, public_of, signed_packet, vector_packet

MODULUS = 1 << 1023 | 1


@pytest.mark.parametrize(
    ("modulus", "exponent", "allowed"),
    [
        (1 << 511 | 1, 3, True), (1 << 510 | 1, 3, False), (1 << 8191 | 1, 3, True), (1 << 8192 | 1, 3, False),
        (1 << 1023, 3, False), (MODULUS, 1, False), (MODULUS, 2, False), (MODULUS, 4, False), (MODULUS, 5, True),
        (MODULUS, 0xFFFFFFFF, True), (MODULUS, (1 << 32) + 1, False),
    ],
)  # fmt: skip
def test_the_valid_range_of_key_numbers_is_checked(modulus: int, exponent: int, allowed: bool) -> None:
    if allowed:
        key = RsaPublicKey(modulus, exponent)
        assert unpack_public_key(pack_public_key(key)) == key
    else:
        with pytest.raises(BadPacket):
            RsaPublicKey(modulus, exponent)


def test_the_size_of_a_key_is_in_whole_bytes() -> None:
    assert [RsaPublicKey(1 << bits - 1 | 1, 3).size for bits in (1016, 1017, 1023, 1024)] == [127, 128, 128, 128]


def test_each_part_of_a_public_key_blob_is_checked() -> None:
    blob = pack_public_key(RsaPublicKey(MODULUS, 3))
    for damaged in (blob[:8] + b"RSA2" + blob[12:], blob[:12] + struct.pack("<I", 1023) + blob[16:],
                    blob[:12] + struct.pack("<I", 1016) + blob[16:], blob[:4] + b"\0\x24\0\0" + blob[8:]):  # fmt: skip
        with pytest.raises(BadPacket):
            unpack_public_key(damaged)


def test_sizes_of_sealed_keys() -> None:
    assert unpack_sealed_key(pack_sealed_key(algorithms.RC4, b"a")) == (algorithms.RC4, b"a")
    assert len(unpack_sealed_key(pack_sealed_key(algorithms.RC4, bytes(1024)))[1]) == 1024
    for size in (0, 1025):
        with pytest.raises(BadPacket):
            unpack_sealed_key(pack_sealed_key(algorithms.RC4, bytes(size)))
    good = pack_sealed_key(algorithms.RC4, b"a")
    for damaged in (b"\2" + good[1:], good[:8] + b"\0\x24\0\0" + good[12:]):
        with pytest.raises(BadPacket, match="header"):
            unpack_sealed_key(damaged)


def test_numbers_of_directory_keys_and_lengths_of_names() -> None:
    key = RsaPublicKey(MODULUS, 3)
    sixteen = [DirectoryKey("p", 1, key)] * 16
    assert unpack_directory_keys(pack_directory_keys(sixteen)) == sixteen
    with pytest.raises(BadPacket):
        unpack_directory_keys(pack_directory_keys([*sixteen, sixteen[0]]))
    longest = [DirectoryKey("p" * 511, 1, key)]
    assert unpack_directory_keys(pack_directory_keys(longest)) == longest
    with pytest.raises(BadPacket):
        unpack_directory_keys(pack_directory_keys([DirectoryKey("p" * 512, 1, key)]))


def test_sizes_and_numbers_of_certificates() -> None:
    largest, empty = UserCertificate(bytes(16), bytes(0xFFFF)), UserCertificate(bytes(16), b"")
    assert unpack_certificates(pack_certificates([largest])) == [largest]
    assert len(unpack_certificates(pack_certificates([empty] * 1024))) == 1024
    for refused in ([UserCertificate(bytes(16), bytes(0x10000))], [empty] * 1025):
        with pytest.raises(BadPacket, match="at most"):
            unpack_certificates(pack_certificates(refused))
    with pytest.raises(ProtectionError, match="65535"):
        public_key_of(bytes(0x10000))
    with pytest.raises(ProtectionError) as error:
        public_key_of(bytes(0xFFFF))
    assert "at most" not in error.value.detail


@pytest.mark.parametrize(
    ("setting", "least", "most"), [("minimum_rsa_bits", 512, 8192), ("own_rsa_bits", 1024, 4096)]
)  # fmt: skip
def test_settings_of_key_lengths(setting: str, least: int, most: int) -> None:
    for allowed in (least, most):
        assert getattr(CryptoPolicy(**{setting: allowed}), setting) == allowed
    for refused in (least - 1, most + 1):
        with pytest.raises(ValueError, match=setting):
            CryptoPolicy(**{setting: refused})


def test_a_key_of_the_least_allowed_length_is_enough() -> None:
    assert verify(signed_packet(), b"hello", CryptoPolicy(minimum_rsa_bits=1024)) is Version.MSMQ_2
    with pytest.raises(ProtectionError, match="1024 bits"):
        verify(signed_packet(), b"hello", CryptoPolicy(minimum_rsa_bits=1025))
    assert public_of(key_of()).bits == 1024


def test_the_table_of_what_is_allowed() -> None:
    default, everything = CryptoPolicy(), CryptoPolicy(
        allow_md2=True, allow_md4=True, allow_md5=True, allow_sha1=True, allow_rc2=True, allow_rc4=True
    )  # fmt: skip
    assert [a for a in algorithms.HASHES if default.allows_hash(a)] == [algorithms.SHA256, algorithms.SHA512]
    assert [a for a in algorithms.CIPHERS if default.allows_cipher(a)] == [0x660E, 0x660F, 0x6610]
    assert [level for level in range(7) if default.allows_level(level)] == [5]
    assert all(map(everything.allows_hash, algorithms.HASHES)) and all(
        map(everything.allows_cipher, algorithms.CIPHERS)
    )
    assert [level for level in range(7) if everything.allows_level(level)] == [1, 3, 5]
    assert not everything.allows_hash(0x800D) and not everything.allows_cipher(0x6601)


def test_spellings_of_providers() -> None:
    for name, level in (
        ("Microsoft Base Cryptographic Provider v1.0", 1), ("Microsoft Base Cryptographic Provider, v1.0", 1),
        ("Microsoft Enhanced Cryptographic Provider 1.0", 3), ("another", None),
        ("microsoft enhanced rsa and aes cryptographic provider", 5),
    ):  # fmt: skip
        assert algorithms.level_of(name) == level


def test_each_field_of_a_3_0_signature_in_its_place() -> None:
    """Written by hand from [MS-MQMQ] 2.5.3, with a different value in each field."""
    packet = vector_packet()
    packet.properties.correlation_id, packet.properties.extension = b"c" * 20, b"extension"
    packet.properties.message_class, packet.properties.acknowledge = 0x1234, 0xFA
    packet.properties.body_type, packet.user.connector_type = 0x55667788, b"k" * 16
    packet.user.administration = QueueName(NameType.PRIVATE_ON_SOURCE, number=9)
    packet.user.delivery, packet.base.priority = 1, 5
    packet.multi_queue = MultiQueueFormatHeader([QueueName(NameType.DIRECT, direct="OS:a\\b")])
    before = (
        b"c" * 20 + bytes.fromhex("04030201") + b"plain" + wchars("L") + b"\x10\0" + wchars("OS:ab\\q") + b"\x09\0\0\0"
    )
    element = b"\x03\0" + wchars("OS:a\\b")
    for positive, negative, journaling in ((False, True, 1), (True, False, 2), (True, True, 3)):
        packet.user.positive_journaling, packet.user.negative_journaling = positive, negative
        after = HERE + bytes([1, 5, journaling, 0x0A]) + b"\x34\x12" + b"\x88\x77\x66\x55" + b"k" * 16
        assert signed_bytes(packet, Version.MSMQ_3, b"plain") == before + b"extension" + element + after
        assert signed_bytes(packet, Version.MSMQ_2, b"plain") == before + after + b"\7\0\0\0"
    assert signed_bytes(packet, Version.MSMQ_1, b"plain") == before


@pytest.mark.parametrize(("label", "expected"), [("", b""), ("L", b"L\0\0\0")])
def test_labels_are_signed_with_their_terminators(label: str, expected: bytes) -> None:
    packet = vector_packet()
    packet.properties.label, packet.user.response = label, None
    assert signed_bytes(packet, Version.MSMQ_1, b"")[24:] == expected


def test_a_packet_is_signed_by_either_signature() -> None:
    packet: Any = vector_packet()
    assert not is_signed(packet)
    packet.multi_queue = MultiQueueFormatHeader()
    assert not is_signed(packet)
    packet.multi_queue.signature = b"s"
    assert is_signed(packet)
    packet.properties.hash_algorithm = algorithms.SHA512
    with pytest.raises(ProtectionError, match="no certificate"):
        verify(packet, b"", CryptoPolicy())
    assert is_signed(signed_packet())
