"""Queue names as users type them."""

from __future__ import annotations

from typing import Final

from openmsmq.model.queue_names import SYSTEM_QUEUES, format_name_of, path_of

__all__ = ["DEAD_LETTER_QUEUES", "SYSTEM_QUEUES", "format_name_of", "path_of", "public_path_of", "shown"]

DEAD_LETTER_QUEUES: Final = ("deadletter", "xactdeadletter")


def public_path_of(name: str) -> str:
    """Return the path name of a public queue: `.\\orders` for `orders`; a path name is returned unchanged."""
    return name if "\\" in name else f".\\{name}"


def shown(name: str) -> str:
    """Return the short name of a system queue; any other name unchanged."""
    return next((short for short, full in SYSTEM_QUEUES.items() if full.lower() == name.lower()), name)
