"""Keys and certificates in files of the data directory, for a queue manager without a directory service.

`keys/level-5.pem` is the private key for a privacy level; `peer-keys.json` has public keys of other queue managers,
`certificates.json` the certificates that users and queue managers have registered. All have mode 0600 and are replaced
atomically; a running daemon notices changes.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from openmsmq.model.security import sid_text
from openmsmq.protection import algorithms
from openmsmq.protection.certificates import UserCertificate, pack_certificates, unpack_certificates
from openmsmq.protection.directories import DirectoryUnavailable
from openmsmq.protection.keys import DirectoryKey, RsaPublicKey, pack_directory_keys, unpack_directory_keys
from openmsmq.protection.policy import CryptoPolicy

logger = logging.getLogger(__name__)
T = TypeVar("T")
EXPONENT = 65537


class KeyringError(DirectoryUnavailable):
    """A file can't be used; the message names it and says what to do."""


class CachedFile(Generic[T]):
    """What a file holds, read again when it has changed; `absent` without a file."""

    def __init__(self, path: Path, parse: Callable[[bytes], T], absent: T) -> None:
        self.path: Final = path
        self._parse: Final = parse
        self._absent: Final = absent
        self._seen: tuple[int, int, int] | None = None
        self._value = absent
        self._logged = ""

    def value(self) -> T:
        """Raises KeyringError, which is logged: the sender of a message learns little of it."""
        try:
            value = self._read()
        except KeyringError as error:
            if str(error) != self._logged:  # at each message it would be the same line
                self._logged = str(error)
                logger.error("%s", error)
            raise
        self._logged = ""
        return value

    def _read(self) -> T:
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                seen = (status.st_ino, status.st_mtime_ns, status.st_size)
                if seen == self._seen:
                    return self._value
                if status.st_mode & 0o077:
                    raise KeyringError(f"{self.path} is open to others; make its mode 0600")
                self._value, self._seen = self._parse(file.read()), seen
        except FileNotFoundError:
            self._value, self._seen = self._absent, None
        except OSError as error:
            raise KeyringError(f"{self.path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # BadPacket is a ValueError
            raise KeyringError(f"{self.path} can't be read: {error!r}") from error
        return self._value


def write_private(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Write a file that nobody else may read, not even for a moment; it is there whole or not at all.

    Raises FileExistsError where there is one and it is not to be replaced, KeyringError.
    """
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _give_to(path.parent, path.parent.parent.stat())
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                _give_to(file.fileno(), (path if path.exists() else path.parent).stat())
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                os.replace(temporary, path)
            else:
                os.link(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except FileExistsError:
        raise
    except OSError as error:
        raise KeyringError(f"{path}: {error.strerror}") from error


def _give_to(file: int | Path, owner: os.stat_result) -> None:
    """Root may act for a daemon that runs as another user: what it makes belongs to whom the file belonged to, and what
    is new to the owner of its directory."""
    if os.geteuid() == 0:
        os.chown(file, owner.st_uid, owner.st_gid)


class KeyFiles:
    """The private keys of this queue manager: see `directories.OwnKeys`."""

    def __init__(self, data_dir: Path) -> None:
        self._files: Final = {
            level: CachedFile[rsa.RSAPrivateKey | None](data_dir / "keys" / f"level-{level}.pem", _private_key, None)
            for level in algorithms.PROVIDERS
        }

    def private_key(self, level: int) -> rsa.RSAPrivateKey | None:
        """Raises KeyringError."""
        return self._files[level].value()

    def public_keys(self) -> list[DirectoryKey]:
        """What others may know of the keys that are there. Raises KeyringError."""
        made = []
        for level, provider in algorithms.PROVIDERS.items():
            key = self.private_key(level)
            if key is not None:
                numbers = key.public_key().public_numbers()
                made.append(DirectoryKey(provider.name, provider.type, RsaPublicKey(numbers.n, numbers.e)))
        return made

    def ensure(self, policy: CryptoPolicy) -> list[DirectoryKey]:
        """Make the keys that are missing for the privacy levels that a policy allows, 0.1 s each; then as
        `public_keys`. Of two processes that make one at the same time, one wins, and both use its key.

        Nobody can encrypt for this queue manager before these keys were given to others, so they are made when they are
        asked for. Raises KeyringError.
        """
        for level, file in self._files.items():
            if policy.allows_level(level) and file.value() is None:
                key = rsa.generate_private_key(EXPONENT, policy.own_rsa_bits)
                pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
                with suppress(FileExistsError):
                    write_private(file.path, pem, replace=False)
        return self.public_keys()


def _private_key(data: bytes) -> rsa.RSAPrivateKey:
    key = load_pem_private_key(data, None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ValueError("not an RSA key")
    return key


class PeerKeysFile:
    """Public keys of other queue managers: see `directories.KeyDirectory`."""

    def __init__(self, data_dir: Path) -> None:
        self._file: Final = CachedFile[Mapping[bytes, list[DirectoryKey]]](data_dir / "peer-keys.json", _peer_keys, {})

    def public_keys_of(self, identifier: bytes) -> Sequence[DirectoryKey]:
        """Raises KeyringError."""
        return self._file.value().get(identifier, ())

    def all(self) -> Mapping[bytes, Sequence[DirectoryKey]]:
        """By GUID. Raises KeyringError."""
        return self._file.value()

    def register(self, identifier: bytes, keys: Sequence[DirectoryKey]) -> None:
        """These are the keys of a queue manager from now on. Raises KeyringError."""
        self._save({**self.all(), identifier: list(keys)})

    def remove(self, identifier: bytes) -> bool:
        """Whether there were any. Raises KeyringError."""
        remaining = dict(self.all())
        found = remaining.pop(identifier, None) is not None
        if found:
            self._save(remaining)
        return found

    def _save(self, keys: Mapping[bytes, Sequence[DirectoryKey]]) -> None:
        _write_json(self._file.path, {
            str(UUID(bytes_le=identifier)): _text(pack_directory_keys(entries)) for identifier, entries in keys.items()
        })  # fmt: skip


def _peer_keys(data: bytes) -> dict[bytes, list[DirectoryKey]]:
    content = json.loads(data)
    return {UUID(name).bytes_le: unpack_directory_keys(_bytes(text)) for name, text in content.items()}


class CertificatesFile:
    """Registered certificates: see `directories.CertificateDirectory`. Owners are SIDs, and GUIDs of queue managers, as
    text."""

    def __init__(self, data_dir: Path) -> None:
        self._file: Final = CachedFile[Mapping[str, list[UserCertificate]]](
            data_dir / "certificates.json", _certificates, {}
        )

    def look_up(self, sid: bytes, certificate: bytes) -> None:
        """A file is read at once."""
        return None

    def look_up_machine(self, identifier: bytes, certificate: bytes) -> None:
        return None

    def forget(self, sid: bytes) -> None:
        """A file that has changed is read again anyway."""

    def certificates_of_user(self, sid: bytes) -> Collection[bytes]:
        """Raises KeyringError."""
        try:
            return self._of(sid_text(sid))
        except ValueError:
            return ()

    def certificates_of_machine(self, identifier: bytes) -> Collection[bytes]:
        """Raises KeyringError."""
        return self._of(str(UUID(bytes_le=identifier))) if len(identifier) == 16 else ()

    def _of(self, owner: str) -> Collection[bytes]:
        return frozenset(entry.certificate for entry in self._file.value().get(owner, ()))

    def all(self) -> Mapping[str, Sequence[UserCertificate]]:
        """By owner. Raises KeyringError."""
        return self._file.value()

    def register(self, owner: str, certificate: UserCertificate) -> None:
        """Once is enough: a certificate that is there already stays as it is. Raises KeyringError."""
        entries = list(self.all().get(owner, ()))
        if all(entry.certificate != certificate.certificate for entry in entries):
            self._save({**self.all(), owner: [*entries, certificate]})

    def remove(self, owner: str, digest: bytes) -> bool:
        """Whether there was such a certificate. Raises KeyringError."""
        entries = list(self.all().get(owner, ()))
        remaining = [entry for entry in entries if entry.digest != digest]
        if len(remaining) == len(entries):
            return False
        kept = {name: found for name, found in self.all().items() if name != owner}
        self._save({**kept, owner: remaining} if remaining else kept)
        return True

    def _save(self, certificates: Mapping[str, Sequence[UserCertificate]]) -> None:
        _write_json(self._file.path, {owner: _text(pack_certificates(found)) for owner, found in certificates.items()})


def _certificates(data: bytes) -> dict[str, list[UserCertificate]]:
    return {str(owner): unpack_certificates(_bytes(text)) for owner, text in json.loads(data).items()}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_private(path, (json.dumps(content, indent=1) + "\n").encode())


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
