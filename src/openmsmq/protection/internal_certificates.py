"""InternalCertificateCollection ([MS-MQDMPR] 3.1.1.19): certificates that the queue manager creates for users, with the
keys with which it signs for them.

`keys/users/S-1-5-....pem` in the data directory has the private key and the certificate of one user, mode 0600.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from openmsmq.files.private import CachedFile, write_private
from openmsmq.model.security import sid_bytes
from openmsmq.protection.keyring import EXPONENT, KeyringError

VALID: Final = timedelta(days=8 * 365)  # not checked here, but other queue managers may check it


@dataclass(frozen=True, slots=True)
class InternalCertificate:
    """A self-signed certificate (X.509, DER) and its private key."""

    encoded: bytes
    key: rsa.RSAPrivateKey


def make_certificate(sid: str, bits: int, now: datetime) -> InternalCertificate:
    """Generate a key (0.1 s for 2048 bits) and a certificate valid from `now` (UTC). Its subject is the SID."""
    key = rsa.generate_private_key(EXPONENT, bits)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, sid)])
    serial = x509.random_serial_number()
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), serial, now, now + VALID)
    return InternalCertificate(builder.sign(key, SHA256()).public_bytes(Encoding.DER), key)


class InternalCertificates:
    """See the module."""

    def __init__(self, data_dir: Path) -> None:
        self._directory: Final = data_dir / "keys" / "users"
        self._files: Final[dict[str, CachedFile[InternalCertificate | None]]] = {}

    def of_user(self, sid: str) -> InternalCertificate | None:
        """Return the certificate of a user; None if there is none. Raises KeyringError."""
        return self._file(sid).value()

    def save(self, sid: str, certificate: InternalCertificate) -> None:
        """Store the certificate of a user, replacing an existing one. Raises KeyringError."""
        key = certificate.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        encoded = x509.load_der_x509_certificate(certificate.encoded).public_bytes(Encoding.PEM)
        write_private(self._file(sid).path, key + encoded, error=KeyringError)

    def _file(self, sid: str) -> CachedFile[InternalCertificate | None]:
        file = self._files.get(sid)
        if file is None:
            sid_bytes(sid)  # raises ValueError for an invalid SID, which is unsafe as a file name
            file = self._files[sid] = CachedFile(self._directory / f"{sid}.pem", _parsed, None, error=KeyringError)
        return file


def _parsed(data: bytes) -> InternalCertificate:
    key = load_pem_private_key(data, None)
    certificate = x509.load_pem_x509_certificate(data)
    if not isinstance(key, rsa.RSAPrivateKey) or certificate.public_key() != key.public_key():
        raise ValueError("the certificate is not that of the RSA key")
    return InternalCertificate(certificate.public_bytes(Encoding.DER), key)
