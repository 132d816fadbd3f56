"""Interfaces to directories: certificates of senders, keys of other queue managers, keys of this one.

Answers are immediate and come from local data: these methods are called while a packet waits on the event loop. Remote
data is fetched before, by `CertificateDirectory.look_up`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from openmsmq.protection.keys import DirectoryKey

if TYPE_CHECKING:  # the command line needs only the error
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey


class DirectoryUnavailable(LookupError):
    """A directory can't be asked, which is not the same as that it has nothing."""


class CertificateDirectory(Protocol):
    """Registered certificates per user. Certificates are DER. Methods raise DirectoryUnavailable."""

    def look_up(self, sid: bytes, certificate: bytes) -> Awaitable[None] | None:
        """Return an awaitable that must end before `certificates_of_user` knows whether this certificate is registered;
        None if it already knows. Raises nothing, neither now nor when awaited."""

    def look_up_machine(self, identifier: bytes, certificate: bytes) -> Awaitable[None] | None:
        """Do the same for a queue manager that signs, by a GUID of 16 bytes."""

    def forget(self, sid: bytes) -> None:
        """A certificate of a user is not registered any more. Raises nothing."""

    def certificates_of_user(self, sid: bytes) -> Collection[bytes]:
        """User.Certificates ([MS-MQDMPR] 3.1.1.19) of a SID in its packet form."""

    def certificates_of_machine(self, identifier: bytes) -> Collection[bytes]:
        """QueueManager.PublicSigningKeyList of a GUID of 16 bytes; deviation D-138 says why these are certificates."""


class KeyDirectory(Protocol):
    """The public keys of queue managers. Methods raise DirectoryUnavailable."""

    def public_keys_of(self, identifier: bytes) -> Sequence[DirectoryKey]:
        """QueueManager.PublicEncryptionKeyList of a GUID of 16 bytes."""


class OwnKeys(Protocol):
    """The private keys of this queue manager."""

    def private_key(self, level: int) -> RSAPrivateKey | None:
        """The key of the provider of a privacy level; None where none was made."""


class NullDirectory:
    """All three, of a queue manager that knows no certificate and has no key."""

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
