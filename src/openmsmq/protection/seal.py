"""Encrypting a body ([MS-MQQB] 3.1.7.1.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from Cryptodome.Cipher import ARC2
from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from openmsmq.protection import algorithms
from openmsmq.protection.faults import CryptoFault, ProtectionError
from openmsmq.protection.keys import RsaPublicKey, pack_sealed_key

_ZERO_IV = bytes(16)
#: Block size in bytes; RC4 has none.
BLOCK: Final = {
    algorithms.RC2: 8, algorithms.RC4: 0, algorithms.AES128: 16, algorithms.AES192: 16, algorithms.AES256: 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted body: values for PrivacyLevel, EncryptionAlgorithm, EncryptionKey and MessageBody."""

    level: int
    algorithm: int
    key: bytes
    body: bytes


def seal(body: bytes, level: int, algorithm: int, symmetric: bytes, key: RsaPublicKey) -> Sealed:
    """Encrypt a body for the owner of `key`.

    Args:
        level: 1, 3 or 5; `algorithm` is a cipher of its provider.
        symmetric: a new random key of `key_size` bytes. A reused key would reveal bodies with the same beginning,
            because the initialization vector is always zero.

    Raises ProtectionError COULD_NOT_ENCRYPT if OpenSSL rejects the key.
    """
    try:
        public = RSAPublicNumbers(key.exponent, key.modulus).public_key()
        encrypted = public.encrypt(symmetric, PKCS1v15())
    except ValueError as error:
        raise ProtectionError(
            CryptoFault.COULD_NOT_ENCRYPT, f"cannot use the key of the destination: {error}"
        ) from None
    return Sealed(level, algorithm, pack_sealed_key(algorithm, encrypted), encipher(body, algorithm, symmetric))


def key_size(level: int, algorithm: int) -> int | None:
    """Return the size of a symmetric key in bytes; None if the provider of a privacy level does not have the cipher."""
    provider = algorithms.PROVIDERS.get(level)
    bits = provider.key_bits.get(algorithm) if provider is not None else None
    return None if bits is None else bits // 8


def encipher(body: bytes, algorithm: int, symmetric: bytes) -> bytes:
    """Encrypt a body. Block ciphers add PKCS #5 padding: a whole block if the body already fills its blocks."""
    block = BLOCK[algorithm]
    if block:
        missing = block - len(body) % block
        body += bytes([missing]) * missing
    return _run(body, algorithm, symmetric, decrypting=False)


def decipher(body: bytes, algorithm: int, symmetric: bytes) -> bytes:
    """Decrypt a body, including its padding. Its size must be a multiple of the block size."""
    return _run(body, algorithm, symmetric, decrypting=True)


def _run(data: bytes, algorithm: int, symmetric: bytes, decrypting: bool) -> bytes:
    if algorithm == algorithms.RC2:
        # OpenSSL does not reduce the effective key length below 128 bits. Deviation D-137: it is the length of the key.
        options: dict[str, Any] = {"effective_keylen": 8 * len(symmetric)}
        rc2 = ARC2.new(symmetric, ARC2.MODE_CBC, iv=bytes(8), **options)
        return rc2.decrypt(data) if decrypting else rc2.encrypt(data)
    if algorithm == algorithms.RC4:
        cipher: Cipher[None] | Cipher[CBC] = Cipher(ARC4(symmetric), None)
    else:
        cipher = Cipher(AES(symmetric), CBC(_ZERO_IV))
    context = cipher.decryptor() if decrypting else cipher.encryptor()
    return context.update(data) + context.finalize()
