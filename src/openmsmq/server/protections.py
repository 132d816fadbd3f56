"""The security of messages, with keys and certificates in files of the data directory and in the directory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from openmsmq.directory.active.provider import ActiveDirectory
from openmsmq.directory.connection import DirectoryConnection
from openmsmq.model.security import sid_bytes
from openmsmq.protection.arrival import ArrivalProtection
from openmsmq.protection.departure import DepartureProtection
from openmsmq.protection.directories import CertificateDirectory
from openmsmq.protection.directory_certificates import DirectoryCertificates
from openmsmq.protection.directory_keys import DirectoryKeys
from openmsmq.protection.internal_certificates import InternalCertificates
from openmsmq.protection.keyring import CertificatesFile, KeyFiles, PeerKeysFile
from openmsmq.protection.keys import pack_directory_keys
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.protocols.certificates import machine_of, user_of


class Protections:
    """Both directions: `arrival` checks incoming messages, `departure` encrypts outgoing ones. `internal` has the keys
    with which the queue manager signs for users."""

    def __init__(self, data_dir: Path, policy: CryptoPolicy, directory: DirectoryConnection) -> None:
        """Raises KeyringError if a file can't be used."""
        keys, files, peers = KeyFiles(data_dir), CertificatesFile(data_dir), PeerKeysFile(data_dir)
        keys.public_keys()
        files.all()
        peers.all()
        certificates: CertificateDirectory = files
        self.groups_of: Callable[[str], frozenset[str]] = _no_groups
        self._keys, self._policy = keys, policy
        self.peer_keys: Final = DirectoryKeys(peers, time.monotonic)
        self._makes_keys = isinstance(directory.provider, ActiveDirectory)
        if directory.exists:
            directory.on_machine = lambda record: self.peer_keys.learn(record.identifier.bytes_le, record.public_keys)
            known = DirectoryCertificates(
                files, partial(user_of, directory), partial(machine_of, directory), time.monotonic,
                has_groups=self._makes_keys,
            )  # fmt: skip
            self.groups_of = lambda sid: known.groups_of(sid_bytes(sid))
            certificates = known
        self.arrival: Final = ArrivalProtection(policy, keys, certificates, time.monotonic)
        self.internal: Final = InternalCertificates(data_dir)
        self.departure: Final = DepartureProtection(policy, self.peer_keys, os.urandom)

    def published_keys(self) -> bytes:
        """Return MQDSPUBLICKEYS for the directory, which may be empty. In Active Directory, other machines expect keys,
        so they are generated, which takes a second. Raises KeyringError."""
        keys = self._keys.ensure(self._policy) if self._makes_keys else self._keys.public_keys()
        return pack_directory_keys(keys) if keys else b""


def _no_groups(sid: str) -> frozenset[str]:
    return frozenset()
