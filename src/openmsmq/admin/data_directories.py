"""Check that a directory is the data directory of a daemon. Commands must not report an empty result for a wrong
directory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from openmsmq.admin.settings import SETTINGS_FILE

STORE: Final = "store"
USERS_FILE: Final = "users.json"
_REMEDY: Final = "--data-dir or OPENMSMQ_DATA_DIR names the data directory of the daemon"


class NoDataDirectory(OSError):
    """The path is not a data directory; the message names it and says how to specify the right one."""


def is_started(data_dir: Path) -> bool:
    """Whether a daemon has been started with this directory. Raises OSError."""
    return (data_dir / SETTINGS_FILE).exists() or (data_dir / STORE).exists()


def demand(data_dir: Path) -> Path:
    """Return the directory if a daemon has been started with it, or if users were added to it before the first start.
    Raises NoDataDirectory, OSError."""
    if not data_dir.is_dir():
        problem = "is not a directory" if data_dir.exists() else "does not exist"
        raise NoDataDirectory(f"{data_dir} {problem}; {_REMEDY}")
    if not is_started(data_dir) and not (data_dir / USERS_FILE).exists():
        raise NoDataDirectory(f"{data_dir} is not a data directory: no daemon has started with it; {_REMEDY}")
    return data_dir
