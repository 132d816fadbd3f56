"""Times and sizes as users type them."""

from __future__ import annotations

import re
from typing import Final

_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_age(text: str) -> float:
    """Parse a time such as `90`, `10m`, `2h` or `3d`; return seconds. Raises ValueError."""
    return _quantity(text, _SECONDS, "a time such as 90, 10m, 2h or 3d")


def parse_size(text: str) -> int:
    """Parse a size such as `4096`, `64k` or `2m`; return bytes. Raises ValueError."""
    return int(_quantity(text, _BYTES, "a size in bytes such as 4096, 64k or 2m"))


def _quantity(text: str, units: dict[str, int], what: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([a-z]?)", text.strip().lower())
    if found is None or found.group(2) not in units:
        raise ValueError(f"{text!r} is not {what}")
    return float(found.group(1)) * units[found.group(2)]
