"""Security of messages to other queue managers ([MS-MQQB] 3.1.7.1.5).

Bodies are encrypted if the sender requests it. Nothing is signed: signatures are created by applications and preserved
(deviation D-141).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from openmsmq.packet.headers import SecurityHeader
from openmsmq.packet.queue_names import NameType
from openmsmq.packet.user_message import UserMessage
from openmsmq.protection import algorithms
from openmsmq.protection.directories import DirectoryUnavailable, KeyDirectory
from openmsmq.protection.faults import CryptoFault, ProtectionError
from openmsmq.protection.keys import DirectoryKey, RsaPublicKey
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.protection.seal import key_size, seal

_NAMED: Final = (NameType.PUBLIC, NameType.PRIVATE, NameType.PRIVATE_ON_DESTINATION)
# Best provider first, each with its ciphers in order of preference (PreferredAdvancedAlgorithm and similar).
_PREFERENCES: Final = (
    (algorithms.ADVANCED, (algorithms.AES256,)),
    (algorithms.ENHANCED, (algorithms.RC4, algorithms.RC2)),
    (algorithms.BASE, (algorithms.RC4, algorithms.RC2)),
)  # fmt: skip


class Choice(NamedTuple):
    """Provider level, cipher and key for encrypting a body for a queue manager."""

    level: int
    algorithm: int
    key: RsaPublicKey


class DepartureProtection:
    """Encrypts the bodies of packets. One per queue manager; `random(n)` returns n random bytes."""

    def __init__(self, policy: CryptoPolicy, directory: KeyDirectory, random: Callable[[int], bytes]) -> None:
        self._policy: Final = policy
        self._directory: Final = directory
        self._random: Final = random

    def can_seal(self, machine: bytes, level: int) -> bool:
        """Whether bodies for a queue manager (GUID of 16 bytes) can be encrypted with at least this privacy level."""
        try:
            self.choose(machine, level)
        except ProtectionError:
            return False
        return True

    def protect(self, packet: UserMessage, machine: bytes) -> None:
        """Prepare a packet for a queue manager (GUID of 16 bytes), in place: encrypt its body if its PrivacyLevel
        requires it and its sender has not done so, and remove authentication claims.

        Each call generates a new key: a reused key would reveal bodies with the same beginning (deviation D-142).

        Raises ProtectionError NO_KEY or COULD_NOT_ENCRYPT; then the packet must not be sent ([MS-MQQB] 3.1.7.1.5.1).
        """
        properties, security = packet.properties, packet.security
        if security is not None:
            security.authenticated, security.signature_type, security.encrypted = False, 0, False
        if not properties.privacy_level:
            return
        destination = packet.user.destination
        if destination is None or destination.type not in _NAMED:
            raise ProtectionError(
                CryptoFault.COULD_NOT_ENCRYPT, "bodies are encrypted for public and private format names only"
            )
        security = packet.security = security or SecurityHeader()
        if not security.encryption_key:
            choice = self.choose(machine, properties.privacy_level)
            size = key_size(choice.level, choice.algorithm)
            assert size is not None  # the cipher belongs to the provider
            sealed = seal(properties.body, choice.level, choice.algorithm, self._random(size), choice.key)
            properties.privacy_level, properties.encryption_algorithm = sealed.level, sealed.algorithm
            properties.body, properties.allocated_size = sealed.body, len(sealed.body)
            security.encryption_key = sealed.key
        security.encrypted = True

    def choose(self, machine: bytes, level: int) -> Choice:
        """Return the best provider, cipher and key of a queue manager with at least this privacy level. Raises
        ProtectionError."""
        try:
            keys = self._directory.public_keys_of(machine)
        except DirectoryUnavailable as error:
            raise ProtectionError(CryptoFault.NO_KEY, f"no directory answers: {error}") from error
        if not keys:
            raise ProtectionError(CryptoFault.NO_KEY, "no key of the destination's queue manager is known")
        for offered, ciphers in _PREFERENCES:
            key = _key_for(keys, offered)
            allowed = [cipher for cipher in ciphers if self._policy.allows_cipher(cipher)]
            if offered >= level and allowed and key is not None and key.bits >= self._policy.minimum_rsa_bits:
                return Choice(offered, allowed[0], key)
        raise ProtectionError(
            CryptoFault.COULD_NOT_ENCRYPT,
            f"the destination has no key for privacy level {level} and a cipher allowed here",
        )


def _key_for(keys: Sequence[DirectoryKey], level: int) -> RsaPublicKey | None:
    return next((entry.key for entry in keys if algorithms.level_of(entry.provider) == level), None)
