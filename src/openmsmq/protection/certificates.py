"""Certificates: MQUSERSIGNCERTS ([MS-MQMQ] 2.2.21, 2.2.22), and the RSA key in an X.509 certificate."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.reader import Reader
from openmsmq.protection.faults import CryptoFault, ProtectionError
from openmsmq.protection.keys import RsaPublicKey

MAXIMUM_CERTIFICATE = 0xFFFF  # bytes, SenderCertSize in [MS-MQMQ] 2.2.20.6
MAXIMUM_CERTIFICATES = 1024  # per user
_ENTRY = struct.Struct("<16s16sI")


@dataclass(frozen=True, slots=True)
class UserCertificate:
    """MQUSERSIGNCERT: `identifier` is a GUID (16 bytes) generated at registration, `certificate` is DER."""

    identifier: bytes
    certificate: bytes

    @property
    def digest(self) -> bytes:
        """MD5 of the certificate: the key for directory lookups, not a security property."""
        return digest_of(self.certificate)


def digest_of(certificate: bytes) -> bytes:
    """Return the 16-byte digest by which directories identify a certificate ([MS-MQMQ] 2.2.22)."""
    return hashlib.md5(certificate, usedforsecurity=False).digest()


def pack_certificates(entries: Iterable[UserCertificate]) -> bytes:
    """Encode MQUSERSIGNCERTS; entries have no padding."""
    packed = [
        _ENTRY.pack(entry.digest, entry.identifier, len(entry.certificate)) + entry.certificate for entry in entries
    ]
    return struct.pack("<I", len(packed)) + b"".join(packed)


def unpack_certificates(data: bytes) -> list[UserCertificate]:
    """Decode MQUSERSIGNCERTS. Raises BadPacket, also if a digest does not match its certificate."""
    reader = Reader(data, "MQUSERSIGNCERTS")
    count = reader.u32()
    if count > MAXIMUM_CERTIFICATES:
        raise BadPacket(f"MQUSERSIGNCERTS: {count} certificates, at most {MAXIMUM_CERTIFICATES}")
    entries = []
    for _ in range(count):
        digest, identifier, size = _ENTRY.unpack(reader.bytes(_ENTRY.size))
        if size > MAXIMUM_CERTIFICATE:
            raise BadPacket(f"MQUSERSIGNCERT: a certificate of {size} bytes, at most {MAXIMUM_CERTIFICATE}")
        entry = UserCertificate(identifier, reader.bytes(size))
        if entry.digest != digest:
            raise BadPacket(f"MQUSERSIGNCERT: the digest is {digest.hex()}, the certificate's {entry.digest.hex()}")
        entries.append(entry)
    if reader.remaining:
        raise BadPacket(f"MQUSERSIGNCERTS: {reader.remaining} bytes follow the last certificate")
    return entries


def public_key_of(certificate: bytes) -> RsaPublicKey:
    """Return the key in a certificate (X.509, DER). Chain, validity and revocation are not checked, since no section
    requires it: a certificate is trusted because it is registered for its user.

    Raises ProtectionError NO_CERTIFICATE, BAD_CERTIFICATE.
    """
    if not certificate:
        raise ProtectionError(
            CryptoFault.NO_CERTIFICATE, "the message has a signature, but no certificate to verify it"
        )
    if len(certificate) > MAXIMUM_CERTIFICATE:
        raise _bad(f"it has {len(certificate)} bytes, at most {MAXIMUM_CERTIFICATE}")
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
    except Exception as error:  # several types without a common base class
        raise _bad(str(error)) from None
    if not isinstance(key, RSAPublicKey):
        raise _bad("its key is not an RSA key")
    numbers = key.public_numbers()
    try:
        return RsaPublicKey(numbers.n, numbers.e)
    except BadPacket as error:
        raise _bad(str(error)) from None


def certificate_of(data: bytes) -> bytes:
    """Convert a certificate in DER or PEM to DER. Raises ProtectionError if it cannot be used to verify signatures."""
    if b"-----BEGIN CERTIFICATE-----" in data:
        try:
            data = x509.load_pem_x509_certificate(data).public_bytes(Encoding.DER)
        except Exception as error:  # as in `public_key_of`
            raise _bad(str(error)) from None
    public_key_of(data)
    return data


def pem_of(certificate: bytes) -> str:
    """Convert a registered certificate to PEM."""
    return x509.load_der_x509_certificate(certificate).public_bytes(Encoding.PEM).decode("ascii")


def describe(certificate: bytes) -> tuple[str, int, str]:
    """Return subject, key length in bits and end of validity of a registered certificate, for display."""
    parsed = x509.load_der_x509_certificate(certificate)
    until = parsed.not_valid_after_utc.date().isoformat()
    return parsed.subject.rfc4514_string(), public_key_of(certificate).bits, until


def _bad(reason: str) -> ProtectionError:
    return ProtectionError(CryptoFault.BAD_CERTIFICATE, f"cannot use the certificate of the sender: {reason}")
