"""Incarnation of a store. A restore from a backup begins a new one: numbers assigned after the backup are assigned
again, to other messages, so positions from the earlier incarnation are invalid."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from openmsmq.store.log import Store

#: File in the data directory: random text of the last restore.
RESTORED: Final = "restored"
RESTORING: Final = "restoring"  # while a backup is being restored


def incarnation(store: Store) -> str:
    """Return a text that changes only with a restore. It does not disclose the identity of the store."""
    try:
        restored = (Path(store.directory).parent / RESTORED).read_bytes().strip()
    except FileNotFoundError:
        restored = b""
    return hashlib.sha256(bytes.fromhex(store.layout["identity"]) + restored).hexdigest()[:16]
