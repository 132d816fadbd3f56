"""Input of an attacker: forged messages, padding and key oracles, and expensive requests."""

from __future__ import annotations

import datetime
import struct
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.reader import Reader
from openmsmq.packet.user_message import UserMessage
from openmsmq.protection import algorithms
from openmsmq.protection.arrival import Accepted, ArrivalProtection, Demands, Rejected
from openmsmq.protection.certificates import (
    UserCertificate,
    certificate_of,
    pack_certificates,
    public_key_of,
    unpack_certificates,
)
from openmsmq.protection.faults import CryptoFault, ProtectionError
from openmsmq.protection.keys import pack_directory_keys, unpack_directory_keys, unpack_sealed_key
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.protection.seal import decipher, encipher
from openmsmq.protection.sign import Version, signed_bytes
from openmsmq.protection.unseal import unseal_body, unseal_key
from protection import material
from protection.material import key_of, signed_packet, vector_packet
from protection.test_vectors import SEALED_KEY
from protection.world import Directory, SenderAndReceiver, published

SIGNED = {version: signed_packet(version).pack() for version in Version}
COVERED = {version: signed_bytes(signed_packet(version), version, b"hello") for version in Version}
LENIENT = CryptoPolicy(allow_signature_1=True, allow_sha1=True, allow_md5=True, allow_md2=True, allow_md4=True)
DIRECTORY = Directory()


@given(st.sampled_from(Version), st.integers(0, 2000), st.integers(1, 255))
def test_authentic_messages_are_exactly_the_signed_ones(version: Version, place: int, change: int) -> None:
    """After a change of any byte of the packet, the authentication level is 0 or the bytes that the signature covers
    are unchanged."""
    data = bytearray(SIGNED[version])
    data[place % len(data)] ^= change
    try:
        packet = UserMessage.unpack(Reader(bytes(data)))
    except BadPacket:
        return
    verdict = ArrivalProtection(LENIENT, DIRECTORY, DIRECTORY, lambda: 0.0).judge(packet, Demands())
    if isinstance(verdict, Accepted) and verdict.authentication_level:
        found = Version(verdict.authentication_level)
        assert signed_bytes(packet, found, verdict.body) == COVERED[version][: None if found is version else 51]


@given(st.binary(min_size=16, max_size=64).map(lambda data: data[: len(data) // 16 * 16]), st.booleans())
def test_padding_is_stripped_exactly(plain: bytes, right: bool) -> None:
    """Compared with a second implementation of PKCS #5."""
    key = bytes(range(16))
    body = encipher(plain, algorithms.AES128, key)[: len(plain)]  # without the padding block
    assert decipher(body, algorithms.AES128, key) == plain
    count = plain[-1]
    if right and 1 <= count <= 16 and plain.endswith(bytes([count]) * count):
        assert unseal_body(body, algorithms.AES128, key, right) == plain[:-count]
    else:
        with pytest.raises(ProtectionError):
            unseal_body(body, algorithms.AES128, key, right)


@pytest.mark.parametrize("count", range(18))
def test_each_length_of_padding(count: int) -> None:
    key, plain = bytes(16), b"x" * (32 - count) + bytes([count]) * count
    body = encipher(plain, algorithms.AES128, key)[:32]
    if 1 <= count <= 16:
        assert unseal_body(body, algorithms.AES128, key, True) == b"x" * (32 - count)
        wrong = encipher(b"x" * (32 - count) + b"y" + bytes([count]) * (count - 1), algorithms.AES128, key)[:32]
        if count > 1:
            with pytest.raises(ProtectionError):
                unseal_body(wrong, algorithms.AES128, key, True)
    else:
        with pytest.raises(ProtectionError):
            unseal_body(body, algorithms.AES128, key, True)


def test_a_key_of_another_length_is_replaced_by_one_that_nobody_knows() -> None:
    first, right = unseal_key(SEALED_KEY, 32, key_of())  # the key has 16 bytes
    again, _ = unseal_key(SEALED_KEY, 32, key_of())
    assert (len(first), right, first == again) == (32, False, True)
    assert first[:16] != bytes(range(16))
    number = (key_of().public_key().public_numbers().n + 5).to_bytes(128, "little")  # greater than the modulus
    stand_in, right = unseal_key(SEALED_KEY[:12] + number, 16, key_of())
    assert (len(stand_in), right) == (16, False)


def test_failures_take_equally_long() -> None:
    """Bad keys and bad padding alternate; the medians of 200 times differ by less than a third. RSA dominates."""
    good = SenderAndReceiver().sent(vector_packet(), algorithms.ADVANCED)
    assert good.security is not None
    blob, body = good.security.encryption_key, good.properties.body
    # Change the lowest byte: a number above the public modulus would be refused without RSA.
    bad_key, bad_padding = blob[:12] + bytes([blob[12] ^ 1]) + blob[13:], body[:-1] + bytes([body[-1] ^ 1])
    times: dict[str, list[float]] = {"key": [], "padding": []}
    for _ in range(200):
        for name, key, sent in (("key", bad_key, body), ("padding", blob, bad_padding)):
            good.security.encryption_key, good.properties.body = key, sent
            arrival = ArrivalProtection(CryptoPolicy(), DIRECTORY, DIRECTORY, lambda: 0.0)
            started = time.perf_counter()
            assert isinstance(arrival.judge(good, Demands()), Rejected)
            times[name].append(time.perf_counter() - started)
    medians = [sorted(values)[100] for values in times.values()]
    assert max(medians) < 1.33 * min(medians), medians


def made_certificate(public: object) -> bytes:
    """Return a certificate of any key, signed with a test key."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "any")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(name, name, public, 7, start, start.replace(year=2040))  # type: ignore[arg-type]
    return builder.sign(key_of(), hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def test_keys_that_would_take_long_are_not_used() -> None:
    modulus = key_of().public_key().public_numbers().n
    long = rsa.RSAPublicNumbers((1 << 40) + 1, modulus).public_key()
    huge = rsa.RSAPublicNumbers(65537, (1 << 9000) | 1).public_key()
    for public in (long, huge, ec.generate_private_key(ec.SECP256R1()).public_key()):
        with pytest.raises(ProtectionError, check=lambda error: error.fault is CryptoFault.BAD_CERTIFICATE):
            public_key_of(made_certificate(public))


@pytest.mark.parametrize("place", range(0, len(material.certificate_of()), 7))
def test_a_damaged_certificate_has_a_key_or_cannot_be_used(place: int) -> None:
    data = bytearray(material.certificate_of())
    data[place] ^= 0x51
    fault = CryptoFault.BAD_CERTIFICATE
    try:
        assert public_key_of(bytes(data)).bits
    except ProtectionError as error:
        fault = error.fault
    assert fault is CryptoFault.BAD_CERTIFICATE


def test_a_certificate_of_an_impossible_size_is_not_parsed() -> None:
    with pytest.raises(ProtectionError, check=lambda error: error.fault is CryptoFault.BAD_CERTIFICATE):
        public_key_of(bytes(0x10000))


@pytest.mark.parametrize("damaged", [b"", b"\1\0\0\0", struct.pack("<I", 1 << 31), bytes(5)])
def test_damaged_lists_of_certificates_are_refused(damaged: bytes) -> None:
    with pytest.raises(BadPacket):
        unpack_certificates(damaged)


def test_a_digest_of_another_certificate_is_refused() -> None:
    packed = pack_certificates([UserCertificate(bytes(16), material.certificate_of())])
    assert unpack_certificates(packed)[0].certificate == material.certificate_of()
    with pytest.raises(BadPacket, match="digest"):
        unpack_certificates(packed[:4] + bytes(16) + packed[20:])
    with pytest.raises(BadPacket, match="follow"):
        unpack_certificates(packed + b"\0")


def test_damaged_lists_of_keys_are_refused() -> None:
    packed = pack_directory_keys(published(1, 3, 5))
    assert unpack_directory_keys(packed) == published(1, 3, 5)
    for damaged in (b"", packed[:-1], packed + b"\0", packed[:4] + b"\xff" * 4 + packed[8:],
                    packed[:8] + b"\xff" * 8 + packed[16:]):  # fmt: skip
        with pytest.raises(BadPacket):
            unpack_directory_keys(damaged)
    with pytest.raises(BadPacket):
        unpack_sealed_key(SEALED_KEY[:12] + bytes(2000))


def test_a_certificate_is_read_from_pem_and_der() -> None:
    der = material.certificate_of()
    pem = x509.load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM)
    assert certificate_of(pem) == certificate_of(der) == der
    with pytest.raises(ProtectionError):
        certificate_of(pem[:100])
