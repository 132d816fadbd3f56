"""Queue property values as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from openmsmq.model.constants import INFINITE
from openmsmq.model.text import time_text

#: Numbers with a special meaning: property -> number -> word ([MS-MQMQ] 2.3.1).
_WORDS: Final[Mapping[str, Mapping[int, str]]] = {
    "quota": {INFINITE: "none"},
    "journal_quota": {INFINITE: "none"},
    "delivery_limit": {0: "none"},
    "priv_level": {0: "none", 1: "optional", 2: "body"},
}
_UNITS: Final = {"quota": "KB", "journal_quota": "KB"}


def in_words(name: str, value: Any) -> str:
    """Return the value of a queue property as text for users: flags and special values as words, numbers with their
    unit, times in UTC."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, UUID):
        return str(value) if value.int else "none"
    if name.endswith("_time"):
        return time_text(value)
    word = _WORDS.get(name, {}).get(value) if isinstance(value, int) else None
    if word is not None:
        return word
    return f"{value} {_UNITS[name]}" if name in _UNITS else str(value)
