"""The security of messages, with keys and certificates in files of the data directory and in the directory."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Final

from openmsmq.directory.connection import DirectoryConnection
from openmsmq.protection.arrival import ArrivalProtection
from openmsmq.protection.departure import DepartureProtection
from openmsmq.protection.directories import CertificateDirectory
from openmsmq.protection.directory_certificates import DirectoryCertificates
from openmsmq.protection.internal_certificates import InternalCertificates
from openmsmq.protection.keyring import CertificatesFile, KeyFiles, PeerKeysFile
from openmsmq.protection.policy import Policy
from openmsmq.protocols.certificates import certificates_of


class Protections:
    """Both directions: `arrival` judges what comes in, `departure` encrypts what goes out; `internal` has the keys by
    which the queue manager signs for users."""

    def __init__(self, data_dir: Path, policy: Policy, directory: DirectoryConnection) -> None:
        """Raises KeyringError for files that can't be used."""
        keys, files, peers = KeyFiles(data_dir), CertificatesFile(data_dir), PeerKeysFile(data_dir)
        keys.public_keys()
        files.all()
        peers.all()
        certificates: CertificateDirectory = files
        if directory.exists:
            certificates = DirectoryCertificates(files, partial(certificates_of, directory), time.monotonic)
        self.arrival: Final = ArrivalProtection(policy, keys, certificates, time.monotonic)
        self.internal: Final = InternalCertificates(data_dir)
        self.departure: Final = DepartureProtection(policy, peers, os.urandom)
