"""The tables of algorithms: hashes, ciphers, and the cryptographic providers for privacy levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MD2, MD4, MD5, SHA1, SHA256, SHA512 = 0x8001, 0x8002, 0x8003, 0x8004, 0x800C, 0x800E
RC2, RC4, AES128, AES192, AES256 = 0x6602, 0x6801, 0x660E, 0x660F, 0x6610
BASE, ENHANCED, ADVANCED = 1, 3, 5  # MessagePropertiesHeader.PrivacyLevel, [MS-MQMQ] 2.2.19.3

#: HashAlgorithm ([MS-MQMQ] 2.2.19.3) -> its name.
HASHES: Final = {MD2: "MD2", MD4: "MD4", MD5: "MD5", SHA1: "SHA-1", SHA256: "SHA-256", SHA512: "SHA-512"}
#: EncryptionAlgorithm -> its name.
CIPHERS: Final = {RC2: "RC2", RC4: "RC4", AES128: "AES-128", AES192: "AES-192", AES256: "AES-256"}


@dataclass(frozen=True, slots=True)
class Provider:
    """A cryptographic service provider: privacy level, name ([MS-MQQB] 3.1.7.1.5), `type` as in MQDSPUBLICKEY
    ([MS-MQMQ] 2.2.1), and the symmetric key length in bits for each of its ciphers."""

    level: int
    name: str
    type: int
    key_bits: dict[int, int]


PROVIDERS: Final = {
    provider.level: provider
    for provider in (
        Provider(BASE, "Microsoft Base Cryptographic Provider v1.0", 1, {RC2: 40, RC4: 40}),
        Provider(ENHANCED, "Microsoft Enhanced Cryptographic Provider v1.0", 1, {RC2: 128, RC4: 128}),
        Provider(
            ADVANCED, "Microsoft Enhanced RSA and AES Cryptographic Provider", 0x18,
            {AES128: 128, AES192: 192, AES256: 256},
        ),
    )
}  # fmt: skip


def level_of(provider_name: str) -> int | None:
    """Return the privacy level of a provider; None if it is unknown. Deviation D-132: names may be written with a
    comma, and with or without `v`."""
    return _LEVELS.get(_plain(provider_name))


def _plain(name: str) -> str:
    return name.replace(",", "").replace(" v1.0", "").replace(" 1.0", "").strip().lower()


_LEVELS: Final = {_plain(provider.name): provider.level for provider in PROVIDERS.values()}
