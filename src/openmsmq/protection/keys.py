"""Key structures: PUBLICKEYBLOB and SIMPLEBLOB ([MS-MQQB] 2.4), MQDSPUBLICKEY and MQDSPUBLICKEYS ([MS-MQMQ] 2.2.1,
2.2.2).

RSA numbers are little-endian in these structures, as in CryptoAPI; RFC 8017 and OpenSSL use big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.reader import Reader, wchars
from openmsmq.protection.policy import LEAST_RSA_BITS, MOST_RSA_BITS

_PUBLIC_HEADER = bytes.fromhex("0602000000a40000")  # BLOBHEADER: PUBLICKEYBLOB, version 2, CALG_RSA_KEYX
_SIMPLE_HEADER = struct.Struct("<4sI4s")
_SIMPLE, _KEY_EXCHANGE = bytes.fromhex("01020000"), bytes.fromhex("00a40000")
_RSAPUBKEY = struct.Struct("<4sII")
_MAGIC = b"RSA1"
_DIRECTORY_KEY = struct.Struct("<III")
_DIRECTORY_KEYS = struct.Struct("<II")
MAXIMUM_ENTRIES = 16  # three are specified
MAXIMUM_PROVIDER = 1024  # bytes of a provider name


@dataclass(frozen=True, slots=True)
class RsaPublicKey:
    """An RSA public key."""

    modulus: int
    exponent: int

    def __post_init__(self) -> None:
        """Check the numbers. Raises BadPacket if they are invalid or would be slow to use."""
        if not LEAST_RSA_BITS <= self.bits <= MOST_RSA_BITS or not self.modulus & 1:
            raise BadPacket(f"RSA key: a modulus of {self.bits} bits, allowed: {LEAST_RSA_BITS} to {MOST_RSA_BITS}")
        if not 3 <= self.exponent <= 0xFFFFFFFF or not self.exponent & 1:
            raise BadPacket("RSA key: the exponent is even, below 3 or longer than 32 bits")

    @property
    def bits(self) -> int:
        return self.modulus.bit_length()

    @property
    def size(self) -> int:
        """Size in bytes of the modulus, of encrypted data and of signatures."""
        return (self.bits + 7) // 8


def pack_public_key(key: RsaPublicKey) -> bytes:
    """Encode PUBLICKEYBLOB: 20 bytes and the modulus ([MS-MQQB] 2.4.1)."""
    fixed = _RSAPUBKEY.pack(_MAGIC, 8 * key.size, key.exponent)
    return _PUBLIC_HEADER + fixed + key.modulus.to_bytes(key.size, "little")


def unpack_public_key(data: bytes) -> RsaPublicKey:
    """Decode a PUBLICKEYBLOB. Deviation D-133: also an RSAPUBKEY without the header ([MS-MQDS] 3.1.4.13).

    Raises BadPacket.
    """
    reader = Reader(data, "PUBLICKEYBLOB")
    if data[:4] != _MAGIC and reader.bytes(len(_PUBLIC_HEADER)) != _PUBLIC_HEADER:
        raise BadPacket(f"PUBLICKEYBLOB: the header is {data[:8].hex()}, not {_PUBLIC_HEADER.hex()}")
    magic, bits, exponent = _RSAPUBKEY.unpack(reader.bytes(_RSAPUBKEY.size))
    if magic != _MAGIC or bits % 8 or bits // 8 != reader.remaining:
        raise BadPacket(f"PUBLICKEYBLOB: {magic!r} with {bits} bits, {reader.remaining} bytes of modulus")
    return RsaPublicKey(int.from_bytes(reader.bytes(bits // 8), "little"), exponent)


def pack_sealed_key(algorithm: int, encrypted: bytes) -> bytes:
    """Encode SIMPLEBLOB ([MS-MQQB] 2.4.2); `encrypted` is in the order of RFC 8017, most significant byte first.

    Deviation D-134: encryptedKey has the length of the modulus, not 256 bytes.
    """
    return _SIMPLE_HEADER.pack(_SIMPLE, algorithm, _KEY_EXCHANGE) + encrypted[::-1]


def unpack_sealed_key(data: bytes) -> tuple[int, bytes]:
    """Decode a SIMPLEBLOB: algorithm, and encrypted key with the most significant byte first. Raises BadPacket."""
    if not _SIMPLE_HEADER.size < len(data) <= _SIMPLE_HEADER.size + MOST_RSA_BITS // 8:
        raise BadPacket(f"SIMPLEBLOB: {len(data)} bytes")
    kind, algorithm, exchange = _SIMPLE_HEADER.unpack_from(data)
    if kind != _SIMPLE or exchange != _KEY_EXCHANGE:
        raise BadPacket(f"SIMPLEBLOB: the header is {data[: _SIMPLE_HEADER.size].hex()}")
    return algorithm, data[_SIMPLE_HEADER.size :][::-1]


@dataclass(frozen=True, slots=True)
class DirectoryKey:
    """MQDSPUBLICKEY: the key of a queue manager for one provider."""

    provider: str
    provider_type: int
    key: RsaPublicKey


def pack_directory_keys(entries: Iterable[DirectoryKey]) -> bytes:
    """Encode MQDSPUBLICKEYS ([MS-MQMQ] 2.2.2); entries have no padding."""
    packed = []
    for entry in entries:
        name, blob = wchars(entry.provider), pack_public_key(entry.key)
        packed.append(_DIRECTORY_KEY.pack(len(blob), len(name), entry.provider_type) + name + blob)
    data = b"".join(packed)
    return _DIRECTORY_KEYS.pack(_DIRECTORY_KEYS.size + len(data), len(packed)) + data


def unpack_directory_keys(data: bytes) -> list[DirectoryKey]:
    """Decode MQDSPUBLICKEYS. Raises BadPacket."""
    reader = Reader(data, "MQDSPUBLICKEYS")
    size, count = reader.unpack(_DIRECTORY_KEYS)
    if size != len(data) or count > MAXIMUM_ENTRIES:
        raise BadPacket(f"MQDSPUBLICKEYS: {count} keys in {size} bytes, there are {len(data)}")
    entries = []
    for _ in range(count):
        key_size, name_size, provider_type = reader.unpack(_DIRECTORY_KEY)
        if name_size > MAXIMUM_PROVIDER:
            raise BadPacket(f"MQDSPUBLICKEY: a provider's name of {name_size} bytes, at most {MAXIMUM_PROVIDER}")
        name = reader.text(name_size)
        entries.append(DirectoryKey(name, provider_type, unpack_public_key(reader.bytes(key_size))))
    if reader.remaining:
        raise BadPacket(f"MQDSPUBLICKEYS: {reader.remaining} bytes follow the last key")
    return entries
