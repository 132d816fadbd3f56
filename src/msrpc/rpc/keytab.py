"""Derivation of the keys of an account from its password, and encoding of a keytab file.

The keys are those of RFC 3962 (AES with SHA-1), with the salt that Active Directory uses for computers ([MS-KILE]
3.1.1.2). The file has version 0x0502 of the MIT format (MIT documentation, "keytab file format").
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from Cryptodome.Cipher import AES

AES128, AES256 = 17, 18  # RFC 3962 7
_KEY_SIZES: Final = {AES256: 32, AES128: 16}
_ITERATIONS: Final = 4096  # RFC 3962 4: 00 00 10 00
_FOLDED: Final = bytes.fromhex("6b65726265726f737b9b5b2b93132b93")  # n-fold of "kerberos", RFC 3961 5.1
_VERSION: Final = b"\x05\x02"
_PRINCIPAL: Final = 1  # KRB5_NT_PRINCIPAL


class Key(NamedTuple):
    """`kind` is AES128 or AES256."""

    kind: int
    octets: bytes


def computer_salt(realm: str, computer_name: str) -> str:
    """Return the salt of an account `computer_name`$; it does not depend on the services."""
    return f"{realm.upper()}host{computer_name.lower()}.{realm.lower()}"


def keys_of(password: str, salt: str, iterations: int = _ITERATIONS) -> list[Key]:
    """Derive the keys with string-to-key of RFC 3962 4, strongest first."""
    return [Key(kind, _string_to_key(password, salt, size, iterations)) for kind, size in _KEY_SIZES.items()]


def _string_to_key(password: str, salt: str, size: int, iterations: int) -> bytes:
    seed = hashlib.pbkdf2_hmac("sha1", password.encode(), salt.encode(), iterations, size)
    derived, block = b"", _FOLDED
    while len(derived) < size:  # DR of RFC 3961 5.1: each output is the next input
        block = AES.new(seed, AES.MODE_ECB).encrypt(block)
        derived += block
    return derived[:size]


def pack_keytab(principals: Sequence[str], realm: str, version: int, keys: Sequence[Key], time: int) -> bytes:
    """Encode a keytab with each key for each principal, such as `MQ1$` or `host/mq1.example.com`. `version` is
    msDS-KeyVersionNumber, `time` is in seconds since 1970."""
    entries = [_entry(principal, realm, version, key, time) for principal in principals for key in keys]
    return _VERSION + b"".join(struct.pack(">i", len(entry)) + entry for entry in entries)


def _entry(principal: str, realm: str, version: int, key: Key, time: int) -> bytes:
    components = principal.split("/")
    names = b"".join(_counted(text.encode()) for text in (realm, *components))
    head = struct.pack(">H", len(components)) + names + struct.pack(">IIB", _PRINCIPAL, time, version & 0xFF)
    return head + struct.pack(">H", key.kind) + _counted(key.octets) + struct.pack(">I", version)


def _counted(octets: bytes) -> bytes:
    return struct.pack(">H", len(octets)) + octets
