"""Verifying the signature of a packet ([MS-MQQB] 3.1.5.8.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from Cryptodome.Hash import MD2, MD4
from Cryptodome.PublicKey import RSA
from Cryptodome.Signature import pkcs1_15
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

from openmsmq.packet.user_message import UserMessage
from openmsmq.protection import algorithms
from openmsmq.protection.certificates import public_key_of
from openmsmq.protection.faults import CryptoFault, ProtectionError
from openmsmq.protection.keys import RsaPublicKey
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.protection.sign import Version, signed_bytes

#: Verifies a signature (most significant byte first) of bytes with a key.
Check = Callable[[RsaPublicKey, bytes, bytes], bool]


def _openssl(algorithm: hashes.HashAlgorithm) -> Check:
    def check(key: RsaPublicKey, signature: bytes, data: bytes) -> bool:
        try:
            public = RSAPublicNumbers(key.exponent, key.modulus).public_key()
            public.verify(signature, data, PKCS1v15(), algorithm)
        except (InvalidSignature, ValueError):  # ValueError: OpenSSL rejects the key
            return False
        return True

    return check


def _cryptodome(algorithm: Any) -> Check:
    """Return a check for hashes that OpenSSL no longer supports."""

    def check(key: RsaPublicKey, signature: bytes, data: bytes) -> bool:
        try:
            pkcs1_15.new(RSA.construct((key.modulus, key.exponent))).verify(algorithm.new(data), signature)
        except ValueError:
            return False
        return True

    return check


_CHECKS: Final[dict[int, Check]] = {
    algorithms.MD2: _cryptodome(MD2), algorithms.MD4: _cryptodome(MD4), algorithms.MD5: _openssl(hashes.MD5()),
    algorithms.SHA1: _openssl(hashes.SHA1()), algorithms.SHA256: _openssl(hashes.SHA256()),
    algorithms.SHA512: _openssl(hashes.SHA512()),
}  # fmt: skip


def is_signed(packet: UserMessage) -> bool:
    """Whether a packet has a signature to verify."""
    single = packet.security is not None and packet.security.signature
    return bool(single or (packet.multi_queue is not None and packet.multi_queue.signature))


def verify(packet: UserMessage, body: bytes, policy: CryptoPolicy) -> Version:
    """Verify the signature of a packet with the key of the certificate in it, and return its version. The caller must
    check whose certificate it is.

    Args:
        packet: a packet for which `is_signed` is true.
        body: the plain body, which applications sign.

    Raises ProtectionError.
    """
    security = packet.security
    check = _check_of(packet.properties.hash_algorithm, policy)
    key = public_key_of(security.certificate if security is not None else b"")
    if key.bits < policy.minimum_rsa_bits:
        raise ProtectionError(
            CryptoFault.BAD_CERTIFICATE,
            f"the key of the sender has {key.bits} bits, less than minimum_rsa_bits, {policy.minimum_rsa_bits}",
        )
    if security is not None and security.signature:
        signature, versions = security.signature, [Version.MSMQ_2, Version.MSMQ_1]
    else:
        assert packet.multi_queue is not None
        signature, versions = packet.multi_queue.signature, [Version.MSMQ_3]
    if len(signature) != key.size:
        raise ProtectionError(CryptoFault.BAD_SIGNATURE, f"it has {len(signature)} bytes, the sender's key {key.size}")
    for version in versions:
        if version is Version.MSMQ_1 and not policy.allow_signature_1:
            continue
        if check(key, signature[::-1], signed_bytes(packet, version, body)):
            return version
    raise ProtectionError(
        CryptoFault.BAD_SIGNATURE, "the signature does not match the message and the sender's certificate"
    )


def _check_of(algorithm: int, policy: CryptoPolicy) -> Check:
    check = _CHECKS.get(algorithm)
    if check is None:
        raise ProtectionError(CryptoFault.UNKNOWN_HASH, f"HashAlgorithm is {algorithm:#x}, which no signature has")
    if not policy.allows_hash(algorithm):
        name = algorithms.HASHES[algorithm]
        raise ProtectionError(CryptoFault.HASH_IS_OFF, f"signatures with {name} are switched off here")
    return check
