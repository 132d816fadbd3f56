"""A certificate for this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate of localhost and 127.0.0.1, and its key. Returns both files."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    made = subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate),
            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2",
        ],
        capture_output=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return certificate, key
