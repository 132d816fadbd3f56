"""Interfaces to directories: certificates of senders, keys of other queue managers, keys of this one.

Methods return immediately, from local data, because they run on the event loop. Remote data is fetched in advance by
`CertificateDirectory.look_up`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from openmsmq.protection.keys import DirectoryKey

if TYPE_CHECKING:  # the command line needs only the error
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey


class DirectoryUnavailable(LookupError):
    """A directory cannot be queried, as opposed to having no entry."""


class CertificateDirectory(Protocol):
    """Registered certificates per user. Certificates are DER. Methods raise DirectoryUnavailable."""

    def look_up(self, sid: bytes, certificate: bytes) -> Awaitable[None] | None:
        """Return an awaitable that must end before `certificates_of_user` knows whether this certificate is registered;
        None if it already knows. Raises nothing, neither now nor when awaited."""

    def look_up_machine(self, identifier: bytes, certificate: bytes) -> Awaitable[None] | None:
        """Same as `look_up` for a queue manager that signs, by a GUID of 16 bytes."""

    def forget(self, sid: bytes) -> None:
        """Drop cached certificates of a user, because one was removed. Raises nothing."""

    def certificates_of_user(self, sid: bytes) -> Collection[bytes]:
        """Return User.Certificates ([MS-MQDMPR] 3.1.1.19) of a SID in its packet form."""

    def certificates_of_machine(self, identifier: bytes) -> Collection[bytes]:
        """Return QueueManager.PublicSigningKeyList of a GUID of 16 bytes, as certificates (see deviation D-138)."""


class KeyDirectory(Protocol):
    """The public keys of queue managers. Methods raise DirectoryUnavailable."""

    def public_keys_of(self, identifier: bytes) -> Sequence[DirectoryKey]:
        """Return QueueManager.PublicEncryptionKeyList of a GUID of 16 bytes."""


class OwnKeys(Protocol):
    """The private keys of this queue manager."""

    def private_key(self, level: int) -> RSAPrivateKey | None:
        """Return the key of the provider of a privacy level; None if there is none."""


class NullDirectory:
    """Implements the three interfaces for a queue manager without certificates and keys."""

    def look_up(self, sid: bytes, certificate: bytes) -> None:
        return None

    def look_up_machine(self, identifier: bytes, certificate: bytes) -> None:
        return None

    def forget(self, sid: bytes) -> None:
        pass

    def certificates_of_user(self, sid: bytes) -> Collection[bytes]:
        return ()

    def certificates_of_machine(self, identifier: bytes) -> Collection[bytes]:
        return ()

    def public_keys_of(self, identifier: bytes) -> Sequence[DirectoryKey]:
        return ()

    def private_key(self, level: int) -> RSAPrivateKey | None:
        return None
