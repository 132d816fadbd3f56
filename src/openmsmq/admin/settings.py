"""The effective settings of a daemon with their sources. The daemon saves them when it starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from openmsmq.files.private import write_private

SETTINGS_FILE: Final = "settings.json"


def settings_in_force(data_dir: Path) -> dict[str, Any]:
    """Return the settings of the last start: name -> value and source (default, file, environment, option). Empty
    before the first start. Raises OSError."""
    try:
        content = json.loads((data_dir / SETTINGS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise OSError(f"{data_dir / SETTINGS_FILE} can't be read: {error}") from None
    return dict(content)


def write_settings(data_dir: Path, settings: Mapping[str, Any]) -> None:
    """Save the settings in a data directory. Raises PrivateFileError."""
    text = json.dumps(settings, indent=1, sort_keys=True, default=str)
    write_private(data_dir / SETTINGS_FILE, (text + "\n").encode())
