"""One-time links for console logins, valid for 15 minutes. The data directory has the hash of the secret.

A user who can write the data directory creates a link; the daemon redeems it. The secret is in the fragment of the
link, so that it is in no request line and no log; it reaches the server in the body of a form.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from openmsmq.files.private import write_private

LINK_FILE: Final = "login-link.json"
SECONDS: Final = 900  # lifetime of a link


def create_link(data_dir: Path, user: str, clock: Callable[[], float] = time.time) -> str:
    """Create a link for a user and return its secret; the previous link becomes invalid. Raises PrivateFileError."""
    secret = secrets.token_urlsafe(32)
    known = {"user": user, "hash": _hashed(secret), "until": clock() + SECONDS}
    write_private(data_dir / LINK_FILE, (json.dumps(known) + "\n").encode())
    return secret


def redeem_link(data_dir: Path, secret: str, clock: Callable[[], float] = time.time) -> str | None:
    """Use up a link and return its user; None for a wrong secret, or a used or expired link."""
    path = data_dir / LINK_FILE
    try:
        known = json.loads(path.read_bytes())
        user, expected, until = str(known["user"]), str(known["hash"]), float(known["until"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not hmac.compare_digest(_hashed(secret).encode(), expected.encode()) or clock() >= until:
        return None
    try:
        path.unlink()
    except OSError:  # used concurrently, or the file cannot be removed
        return None
    return user


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
