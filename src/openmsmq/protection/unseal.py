"""Decrypting a body ([MS-MQQB] 3.1.5.8.3).

The sender sees whether a body could be decrypted, so distinguishable failures would create a padding oracle. After the
checks of lengths and algorithms, which the sender knows, all packets are therefore processed the same way: a key that
cannot be decrypted is replaced by a secret one, and there is a single failure at the end.
"""

from __future__ import annotations

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from openmsmq.packet.errors import BadPacket
from openmsmq.protection import algorithms
from openmsmq.protection.faults import CryptoFault, ProtectionError
from openmsmq.protection.keys import unpack_sealed_key
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.protection.seal import BLOCK, decipher, key_size

_REDUCED = 5  # bytes of a 40-bit RC2 key, which is padded with zeros to 16


def check_sealed(level: int, algorithm: int, sealed_key: bytes, body: bytes, policy: CryptoPolicy) -> int:
    """Check the public part of an encrypted body. Returns the length of the symmetric key in bytes.

    Raises ProtectionError BAD_ENCRYPTION, CIPHER_IS_OFF.
    """
    size = key_size(level, algorithm)
    if size is None:
        raise _bad(f"PrivacyLevel {level} has no EncryptionAlgorithm {algorithm:#x}")
    if not policy.allows_cipher(algorithm):
        raise ProtectionError(CryptoFault.CIPHER_IS_OFF, f"{algorithms.CIPHERS[algorithm]} is switched off here")
    try:
        named, _ = unpack_sealed_key(sealed_key)
    except BadPacket as error:
        raise _bad(str(error)) from None
    if named != algorithm:
        raise _bad(f"the key is for {named:#x}, EncryptionAlgorithm is {algorithm:#x}")
    block = BLOCK[algorithm]
    if block and (not body or len(body) % block):
        raise _bad(f"a body of {len(body)} bytes does not fill blocks of {block}")
    return size


def unseal_key(sealed_key: bytes, size: int, key: RSAPrivateKey) -> tuple[bytes, bool]:
    """Decrypt the symmetric key in a SIMPLEBLOB. Returns the key and whether it is valid, with `size` bytes; if not,
    the key is a substitute.

    Raises ProtectionError BAD_ENCRYPTION if the length of the encrypted key differs from that of the modulus.
    """
    _, encrypted = unpack_sealed_key(sealed_key)
    if len(encrypted) != (key.key_size + 7) // 8:
        raise _bad(f"an encrypted key of {len(encrypted)} bytes, this queue manager's has {key.key_size} bits")
    # Secret, but the same each time for the same packet.
    stand_in = hmac.digest(_secret_of(key), encrypted, hashlib.sha512)[:size]
    try:
        found = key.decrypt(encrypted, PKCS1v15())  # OpenSSL returns random bytes for bad padding
    except ValueError:
        found = b""
    right = len(found) == size
    return (found if right else stand_in), right


def unseal_body(body: bytes, algorithm: int, symmetric: bytes, right: bool) -> bytes:
    """Decrypt a body. `right` is the second result of `unseal_key`. Raises ProtectionError BAD_ENCRYPTION."""
    plain = decipher(body, algorithm, symmetric)
    block, padding = BLOCK[algorithm], 0
    if block:
        padding, last = plain[-1], plain[-block:]
        wanted = bytes(padding if block - place <= padding else last[place] for place in range(block))
        right = hmac.compare_digest(last, wanted) & (1 <= padding <= block) & right  # no short circuit: constant time
    if not right:
        raise _bad("the body can't be decrypted")
    return plain[: len(plain) - padding]


def check_reduced(level: int, algorithm: int, symmetric: bytes, right: bool, policy: CryptoPolicy) -> bool:
    """Return `right`, or false for a refused key: RC2 of the enhanced provider with the last 88 bits zero."""
    reduced = level == algorithms.ENHANCED and algorithm == algorithms.RC2 and not any(symmetric[_REDUCED:])
    return right and not (reduced and policy.reject_enhanced_rc2_using_40_bit_keys)


def _secret_of(key: RSAPrivateKey) -> bytes:
    return key.private_numbers().d.to_bytes((key.key_size + 7) // 8, "big")


def _bad(detail: str) -> ProtectionError:
    return ProtectionError(CryptoFault.BAD_ENCRYPTION, detail)
