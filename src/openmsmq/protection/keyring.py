"""Keys and certificates in files of the data directory, for a queue manager without a directory service.

`keys/level-5.pem` is the private key for a privacy level; `peer-keys.json` has public keys of other queue managers,
`certificates.json` the registered certificates of users and queue managers. All have mode 0600 and are replaced
atomically; a running daemon notices changes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from openmsmq.files.private import CachedFile, PrivateFileError, write_private
from openmsmq.model.security import sid_text
from openmsmq.protection import algorithms
from openmsmq.protection.certificates import UserCertificate, pack_certificates, unpack_certificates
from openmsmq.protection.directories import DirectoryUnavailable
from openmsmq.protection.keys import DirectoryKey, RsaPublicKey, pack_directory_keys, unpack_directory_keys
from openmsmq.protection.policy import CryptoPolicy

EXPONENT = 65537
_PATIENCE: Final = 10.0  # seconds that a command waits for the change of another one


class KeyringError(PrivateFileError, DirectoryUnavailable):
    """A file of keys or certificates is unusable."""


class KeyFiles:
    """The private keys of this queue manager: see `directories.OwnKeys`."""

    def __init__(self, data_dir: Path) -> None:
        self._files: Final = {
            level: CachedFile[rsa.RSAPrivateKey | None](
                data_dir / "keys" / f"level-{level}.pem", _private_key, None, error=KeyringError
            )
            for level in algorithms.PROVIDERS
        }

    def private_key(self, level: int) -> rsa.RSAPrivateKey | None:
        """Return the key for a privacy level; None if there is none. Raises KeyringError."""
        return self._files[level].value()

    def public_keys(self) -> list[DirectoryKey]:
        """Return the public parts of the existing keys. Raises KeyringError."""
        made = []
        for level, provider in algorithms.PROVIDERS.items():
            key = self.private_key(level)
            if key is not None:
                numbers = key.public_key().public_numbers()
                made.append(DirectoryKey(provider.name, provider.type, RsaPublicKey(numbers.n, numbers.e)))
        return made

    def ensure(self, policy: CryptoPolicy) -> list[DirectoryKey]:
        """Generate missing keys for the privacy levels that a policy allows (0.1 s each), and return the public keys.
        If two processes generate a key at the same time, both use the key that was stored first.

        Keys are generated on demand, because other queue managers need the public keys before they can encrypt. Raises
        KeyringError.
        """
        for level, file in self._files.items():
            if policy.allows_level(level) and file.value() is None:
                key = rsa.generate_private_key(EXPONENT, policy.own_rsa_bits)
                pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
                with suppress(FileExistsError):
                    write_private(file.path, pem, replace=False, error=KeyringError)
        return self.public_keys()


def _private_key(data: bytes) -> rsa.RSAPrivateKey:
    key = load_pem_private_key(data, None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ValueError("not an RSA key")
    return key


class PeerKeysFile:
    """Public keys of other queue managers: see `directories.KeyDirectory`."""

    def __init__(self, data_dir: Path) -> None:
        self._file: Final = CachedFile[Mapping[bytes, list[DirectoryKey]]](
            data_dir / "peer-keys.json", _peer_keys, {}, error=KeyringError
        )

    def public_keys_of(self, identifier: bytes) -> Sequence[DirectoryKey]:
        """Return the keys of a queue manager. Raises KeyringError."""
        return self._file.value().get(identifier, ())

    def all(self) -> Mapping[bytes, Sequence[DirectoryKey]]:
        """Return all keys by GUID. Raises KeyringError."""
        return self._file.value()

    def register(self, identifier: bytes, keys: Sequence[DirectoryKey]) -> None:
        """Set the keys of a queue manager. Raises KeyringError."""
        with self._file.changing(_PATIENCE) as known:
            self._save({**known, identifier: list(keys)})

    def remove(self, identifier: bytes) -> bool:
        """Remove the keys of a queue manager; return whether there were any. Raises KeyringError."""
        with self._file.changing(_PATIENCE) as known:
            if identifier not in known:
                return False
            self._save({name: keys for name, keys in known.items() if name != identifier})
        return True

    def _save(self, keys: Mapping[bytes, Sequence[DirectoryKey]]) -> None:
        _write_json(self._file.path, {
            str(UUID(bytes_le=identifier)): _text(pack_directory_keys(entries)) for identifier, entries in keys.items()
        })  # fmt: skip


def _peer_keys(data: bytes) -> dict[bytes, list[DirectoryKey]]:
    content = json.loads(data)
    return {UUID(name).bytes_le: unpack_directory_keys(_bytes(text)) for name, text in content.items()}


class CertificatesFile:
    """Registered certificates: see `directories.CertificateDirectory`. Owners are SIDs, or GUIDs of queue managers, as
    text."""

    def __init__(self, data_dir: Path) -> None:
        self._file: Final = CachedFile[Mapping[str, list[UserCertificate]]](
            data_dir / "certificates.json", _certificates, {}, error=KeyringError
        )

    def look_up(self, sid: bytes, certificate: bytes) -> None:
        """Return None: a file needs no query."""
        return None

    def look_up_machine(self, identifier: bytes, certificate: bytes) -> None:
        return None

    def forget(self, sid: bytes) -> None:
        """Do nothing: a changed file is reread."""

    def certificates_of_user(self, sid: bytes) -> Collection[bytes]:
        """Return the certificates of a user. Raises KeyringError."""
        try:
            return self._of(sid_text(sid))
        except ValueError:
            return ()

    def certificates_of_machine(self, identifier: bytes) -> Collection[bytes]:
        """Return the certificates of a queue manager. Raises KeyringError."""
        return self._of(str(UUID(bytes_le=identifier))) if len(identifier) == 16 else ()

    def _of(self, owner: str) -> Collection[bytes]:
        return frozenset(entry.certificate for entry in self._file.value().get(owner, ()))

    def all(self) -> Mapping[str, Sequence[UserCertificate]]:
        """Return all certificates by owner. Raises KeyringError."""
        return self._file.value()

    def register(self, owner: str, certificate: UserCertificate) -> None:
        """Add a certificate, unless it is already registered. Raises KeyringError."""
        with self._file.changing(_PATIENCE) as known:
            entries = known.get(owner, [])
            if all(entry.certificate != certificate.certificate for entry in entries):
                self._save({**known, owner: [*entries, certificate]})

    def remove(self, owner: str, digest: bytes) -> bool:
        """Remove a certificate; return whether it was registered. Raises KeyringError."""
        with self._file.changing(_PATIENCE) as known:
            entries = known.get(owner, [])
            remaining = [entry for entry in entries if entry.digest != digest]
            if len(remaining) == len(entries):
                return False
            kept = {name: found for name, found in known.items() if name != owner}
            self._save({**kept, owner: remaining} if remaining else kept)
        return True

    def _save(self, certificates: Mapping[str, Sequence[UserCertificate]]) -> None:
        _write_json(self._file.path, {owner: _text(pack_certificates(found)) for owner, found in certificates.items()})


def _certificates(data: bytes) -> dict[str, list[UserCertificate]]:
    return {str(owner): unpack_certificates(_bytes(text)) for owner, text in json.loads(data).items()}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_private(path, (json.dumps(content, indent=1) + "\n").encode(), error=KeyringError)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
