"""Text from outside (names, labels, bodies, what a peer says) for whatever shows it: terminal, log, table, message."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from msrpc.text import is_visible, printable

__all__ = ["counted", "is_visible", "printable", "printable_json", "time_text"]


def printable_json(value: Any, default: Any = None) -> str:
    """`value` as one line of JSON, in which what `printable` escapes is JSON's escape: the same value to a parser."""
    text = json.dumps(value, default=default, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if is_visible(c) else json.dumps(c)[1:-1] if c != "\x7f" else "\\u007f" for c in text)


def counted(number: int, one: str, many: str = "") -> str:
    """`1 message`, `1,200 messages`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def time_text(seconds: int) -> str:
    """Seconds since 1970 as `2026-11-22 12:00:00 UTC`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ").replace("+00:00", " UTC")
