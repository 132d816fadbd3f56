"""Signing and sealing of messages with NTLM ([MS-NLMP] 3.4), after the exchange in `ntlm`."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext

from msrpc.errors import AuthenticationError
from msrpc.rpc.ntlm_messages import NegotiateFlags

SIGNATURE_SIZE: Final = 16
_VERSION: Final = b"\x01\0\0\0"  # of NTLMSSP_MESSAGE_SIGNATURE


class _HmacMd5:
    """HMAC-MD5 with one key for many messages: the key's two blocks are hashed once (RFC 2104 section 4)."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = key.ljust(64, b"\0")
        self._inner = hashlib.md5(bytes(octet ^ 0x36 for octet in block))
        self._outer = hashlib.md5(bytes(octet ^ 0x5C for octet in block))

    def digest(self, message: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()


def rc4_stream(key: bytes) -> CipherContext:
    """Return the RC4 stream of one direction; it both encrypts and decrypts."""
    return Cipher(ARC4(key), None).encryptor()


class NtlmSession:
    """Keys, cipher states and sequence numbers of both directions (3.4)."""

    # Whether or not it was negotiated ([MS-RPCE] 3.3.1.5.2.2).
    always_signs_headers: Final = True

    def __init__(self, exported_session_key: bytes, flags: int, *, is_client: bool) -> None:
        self.exported_session_key = exported_session_key
        self._encrypt_checksum = bool(flags & NegotiateFlags.KEY_EXCH)
        keys = [
            hashlib.md5(exported_session_key + b"session key to %s %s key magic constant\0" % (way, use)).digest()
            for way in (b"client-to-server", b"server-to-client")
            for use in (b"signing", b"sealing")
        ]
        self.client_signing_key, self.client_sealing_key, self.server_signing_key, self.server_sealing_key = keys
        if is_client:
            sign_key, self._seal_key, verify_key, self._unseal_key = keys
        else:
            verify_key, self._unseal_key, sign_key, self._seal_key = keys
        self._signer, self._verifier = _HmacMd5(sign_key), _HmacMd5(verify_key)
        self._sent = self._received = 0
        self.reset_ciphers()

    def reset_ciphers(self) -> None:
        """Restart both RC4 streams, as after a mechListMIC; sequence numbers continue ([MS-SPNG] 3.3.5.1)."""
        self._seal = rc4_stream(self._seal_key)
        self._unseal = rc4_stream(self._unseal_key)

    def signature_size(self, level: int) -> int:
        return SIGNATURE_SIZE

    def sign(self, message: bytes) -> bytes:
        """Return NTLMSSP_MESSAGE_SIGNATURE with extended session security (3.4.4.2)."""
        number = self._sent.to_bytes(4, "little")
        self._sent = (self._sent + 1) & 0xFFFFFFFF
        checksum = self._signer.digest(number + message)[:8]
        if self._encrypt_checksum:
            checksum = self._seal.update(checksum)
        return _VERSION + checksum + number

    def verify(self, message: bytes, signature: bytes) -> None:
        """Check the peer's next signature. Raises `AuthenticationError`."""
        number = self._received.to_bytes(4, "little")
        self._received = (self._received + 1) & 0xFFFFFFFF
        checksum = self._verifier.digest(number + message)[:8]
        if self._encrypt_checksum:
            checksum = self._unseal.update(checksum)
        if not hmac.compare_digest(_VERSION + checksum + number, signature):
            raise AuthenticationError("the signature is wrong")

    def wrap(self, prefix: bytes, body: bytes, suffix: bytes) -> tuple[bytes, bytes]:
        """Seal the body, then sign the plain text of all three (3.4.6): the cipher runs over the body first."""
        sealed = self._seal.update(body)
        return sealed, self.sign(prefix + body + suffix)

    def unwrap(self, prefix: bytes, body: bytes, suffix: bytes, signature: bytes) -> bytes:
        """Reverse `wrap` (3.4.7)."""
        plain = self._unseal.update(body)
        self.verify(prefix + plain + suffix, signature)
        return plain
