"""Security requirements of this queue manager, as a table of switches. The defaults are secure (deviation D-130)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from openmsmq.protection import algorithms

LEAST_RSA_BITS = 512
MOST_RSA_BITS = 8192


def _switch(default: bool, text: str) -> bool:
    value: bool = field(default=default, metadata={"help": text})
    return value


@dataclass(frozen=True, slots=True)
class CryptoPolicy:
    """Settings of the table `[security]` of the configuration file."""

    allow_md2: bool = _switch(False, "verify signatures with MD2")
    allow_md4: bool = _switch(False, "verify signatures with MD4")
    allow_md5: bool = _switch(False, "verify signatures with MD5")
    allow_sha1: bool = _switch(False, "verify signatures with SHA-1")
    allow_signature_1: bool = _switch(
        False, "accept MSMQ 1.0 signatures, which bind neither destination, class nor sending queue manager"
    )
    allow_rc2: bool = _switch(False, "open and seal bodies with RC2 (privacy levels 1 and 3)")
    allow_rc4: bool = _switch(False, "open and seal bodies with RC4 (privacy levels 1 and 3)")
    reject_enhanced_rc2_using_40_bit_keys: bool = _switch(  # D-244
        True, "refuse RC2 keys of 128 bits of which only 40 are not zero"
    )
    external_certificates: bool = _switch(
        False, "deliver messages with a good signature and a certificate that is not registered, as unauthenticated"
    )
    unverified_local_signatures: bool = _switch(
        False, "take messages of clients whose signature cannot be verified, as unauthenticated"
    )
    send_insecure_nacks: bool = _switch(
        False, "acknowledge refusals for security to senders that are not authenticated"
    )
    minimum_rsa_bits: int = field(
        default=1024, metadata={"help": f"least RSA key of others, {LEAST_RSA_BITS} to {MOST_RSA_BITS} bits"}
    )
    own_rsa_bits: int = field(default=2048, metadata={"help": "RSA keys of this queue manager, 1024 to 4096 bits"})

    def __post_init__(self) -> None:
        """Check the values. Raises ValueError for a value outside its limits, TypeError for a wrong type."""
        for item in fields(self):
            value, kind = getattr(self, item.name), type(item.default)
            if type(value) is not kind:
                raise TypeError(
                    f"{item.name} is {value!r}; allowed: {'a whole number' if kind is int else 'a boolean'}"
                )
        for name, least, most in (
            ("minimum_rsa_bits", LEAST_RSA_BITS, MOST_RSA_BITS), ("own_rsa_bits", 1024, 4096),
        ):  # fmt: skip
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: {least} to {most}")

    def allows_hash(self, algorithm: int) -> bool:
        """Whether signatures with a hash (ALG_ID) are accepted."""
        allowed = {
            algorithms.MD2: self.allow_md2, algorithms.MD4: self.allow_md4, algorithms.MD5: self.allow_md5,
            algorithms.SHA1: self.allow_sha1, algorithms.SHA256: True, algorithms.SHA512: True,
        }  # fmt: skip
        return allowed.get(algorithm, False)

    def allows_cipher(self, algorithm: int) -> bool:
        """Whether bodies are encrypted and decrypted with a cipher (ALG_ID)."""
        allowed = {algorithms.RC2: self.allow_rc2, algorithms.RC4: self.allow_rc4}
        return allowed.get(algorithm, algorithm in algorithms.CIPHERS)

    def allows_level(self, level: int) -> bool:
        """Whether any cipher of a privacy level is allowed."""
        provider = algorithms.PROVIDERS.get(level)
        return provider is not None and any(map(self.allows_cipher, provider.key_bits))
