"""Untrusted text (names, labels, bodies, text from a peer) for display: terminal, log, table, message."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from msrpc.text import is_visible, printable

__all__ = ["counted", "duration_text", "is_visible", "printable", "printable_json", "time_text"]


def printable_json(value: Any, default: Any = None) -> str:
    """Return `value` as one line of JSON. Characters that `printable` escapes are JSON escapes, so the value is
    unchanged."""
    text = json.dumps(value, default=default, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if is_visible(c) else json.dumps(c)[1:-1] if c != "\x7f" else "\\u007f" for c in text)


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 message`, `1,200 messages`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


_UNITS = ((86_400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s"))


def duration_text(seconds: float) -> str:
    """Return a duration as text with at most two units, rounded down: `4 s`, `2 min 3 s`, `3 h 5 min`, `2 d 4 h`."""
    total = max(0, int(seconds))
    for large, small, unit, rest_unit in _UNITS:
        if total >= large:
            rest = total % large // small
            return f"{total // large} {unit}" + (f" {rest} {rest_unit}" if rest else "")
    return f"{total} s"


def time_text(seconds: int) -> str:
    """Return a time in seconds since 1970 UTC as `2026-11-22 12:00:00 UTC`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ").replace("+00:00", " UTC")
