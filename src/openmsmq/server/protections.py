"""The security of messages, with keys and certificates in files of the data directory."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from openmsmq.model.names import FormatName, PrivateFormatName
from openmsmq.protection.arrival import ArrivalProtection
from openmsmq.protection.departure import DepartureProtection
from openmsmq.protection.keyring import CertificatesFile, KeyFiles, PeerKeysFile
from openmsmq.protection.policy import Policy


class Protections:
    """Both directions: `arrival` judges what comes in, `departure` encrypts what goes out."""

    def __init__(self, data_dir: Path, policy: Policy) -> None:
        """Raises KeyringError for files that can't be used."""
        keys, certificates, peers = KeyFiles(data_dir), CertificatesFile(data_dir), PeerKeysFile(data_dir)
        keys.public_keys()
        certificates.all()
        peers.all()
        self.arrival: Final = ArrivalProtection(policy, keys, certificates, time.monotonic)
        self.departure: Final = DepartureProtection(policy, peers, os.urandom)

    def can_seal(self, name: FormatName, level: int) -> bool:
        """See `queueing.sending.CanSeal`. Of a private format name the queue manager is known."""
        return isinstance(name, PrivateFormatName) and self.departure.can_seal(name.guid.bytes_le, level)
