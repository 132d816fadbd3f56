"""Short queue names, for commands and client calls."""

from __future__ import annotations

from typing import Final

from openmsmq.model.names import is_format_name

#: System queues of this machine, case-insensitive: dead letters, transactional dead letters, the machine journal.
SYSTEM_QUEUES: Final = {
    "deadletter": "DIRECT=OS:.\\SYSTEM$;DEADLETTER",
    "xactdeadletter": "DIRECT=OS:.\\SYSTEM$;DEADXACT",
    "deadxact": "DIRECT=OS:.\\SYSTEM$;DEADXACT",
    "journal": "DIRECT=OS:.\\SYSTEM$;JOURNAL",
}


def path_of(name: str) -> str:
    """Return the path name or format name of a queue. `orders` is short for `.\\private$\\orders`, `orders;journal` for
    its journal, and `deadletter`, `xactdeadletter` and `journal` for the system queues. A path name or format name is
    returned unchanged. A private queue with the name `journal` needs its path name."""
    if name.lower() in SYSTEM_QUEUES:
        return SYSTEM_QUEUES[name.lower()]
    return full_name(name)


def full_name(name: str) -> str:
    """Return the path name for the short name of a private queue; a path name or format name is returned unchanged."""
    return name if "\\" in name or is_format_name(name) else f".\\private$\\{name}"


def format_name_of(name: str) -> str:
    """Return the format name for a name in any of the forms of `path_of`."""
    path = path_of(name)
    return path if is_format_name(path) else f"DIRECT=OS:{path}"
