"""Names of queues as people type them."""

from __future__ import annotations

from typing import Final

from openmsmq.model.queue_names import SYSTEM_QUEUES, path_of

__all__ = ["DEAD_LETTER_QUEUES", "SYSTEM_QUEUES", "path_of", "public_path_of", "shown"]

DEAD_LETTER_QUEUES: Final = ("deadletter", "xactdeadletter")


def public_path_of(name: str) -> str:
    """`orders` is short for `.\\orders`, a public queue of the server; a path name stays what it is."""
    return name if "\\" in name else f".\\{name}"


def shown(name: str) -> str:
    """The short name of a system queue; any other as it is."""
    return next((short for short, full in SYSTEM_QUEUES.items() if full.lower() == name.lower()), name)
