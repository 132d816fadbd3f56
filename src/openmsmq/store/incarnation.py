"""Which life of a store this is. A restore from a backup begins a new one: numbers that were given after the backup are
given again, to other messages, so nobody may go on with what they remember of the earlier one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from openmsmq.store.log import Store

#: File in the data directory: random text of the last restore.
RESTORED: Final = "restored"


def incarnation(store: Store) -> str:
    """Text that changes with a restore, and with nothing else. It does not disclose the identity of the store."""
    try:
        restored = (Path(store.directory).parent / RESTORED).read_bytes().strip()
    except FileNotFoundError:
        restored = b""
    return hashlib.sha256(bytes.fromhex(store.layout["identity"]) + restored).hexdigest()[:16]
