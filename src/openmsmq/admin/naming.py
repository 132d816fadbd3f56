"""Names of queues as people type them."""

from __future__ import annotations

from typing import Final

#: Of this machine, without regard to case: dead letters, transactional dead letters, the machine journal.
SYSTEM_QUEUES: Final = {
    "deadletter": "DIRECT=OS:.\\SYSTEM$;DEADLETTER",
    "xactdeadletter": "DIRECT=OS:.\\SYSTEM$;DEADXACT",
    "deadxact": "DIRECT=OS:.\\SYSTEM$;DEADXACT",
    "journal": "DIRECT=OS:.\\SYSTEM$;JOURNAL",
}
DEAD_LETTER_QUEUES: Final = ("deadletter", "xactdeadletter")


def path_of(name: str) -> str:
    """`orders` is short for `.\\private$\\orders`, `orders;journal` for its journal, and `deadletter`,
    `xactdeadletter` and `journal` for the system queues; a path name or a format name stays what it is. A private queue
    that is called `journal` needs its path name."""
    if name.lower() in SYSTEM_QUEUES:
        return SYSTEM_QUEUES[name.lower()]
    return name if "\\" in name or "=" in name else f".\\private$\\{name}"


def public_path_of(name: str) -> str:
    """`orders` is short for `.\\orders`, a public queue of the server; a path name stays what it is."""
    return name if "\\" in name else f".\\{name}"


def shown(name: str) -> str:
    """The short name of a system queue; any other as it is."""
    return next((short for short, full in SYSTEM_QUEUES.items() if full.lower() == name.lower()), name)
