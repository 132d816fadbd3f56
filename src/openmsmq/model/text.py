"""Untrusted text (names, labels, bodies, text from a peer) for display: terminal, log, table, message."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from msrpc.text import is_visible, printable, reason_of

__all__ = [
    "as_unicode", "counted", "duration_text", "is_visible", "json_line", "printable", "printable_json", "reason_of",
    "some_of", "time_text",
]  # fmt: skip


def as_unicode(text: str) -> str:
    """Replace unpaired surrogates, which names and labels in UTF-16 may contain, with U+FFFD: Arrow, HTTP and strict
    JSON parsers reject them."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def json_line(value: Any) -> bytes:
    """Return `value` as one line of JSON that every parser accepts; see `as_unicode`."""
    return as_unicode(json.dumps(value, ensure_ascii=False)).encode()


def printable_json(value: Any, default: Any = None, indent: int | None = None) -> str:
    """Return `value` as JSON, without `indent` in one line. Characters that `printable` escapes are JSON escapes, so
    the value is unchanged."""
    text = json.dumps(value, default=default, ensure_ascii=False, indent=indent)
    if text.isprintable():
        return text
    return "".join(c if is_visible(c) or c == "\n" else json.dumps(c)[1:-1] if c != "\x7f" else "\\u007f" for c in text)


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 message`, `1,200 messages`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def some_of(names: Collection[str], most: int = 10) -> str:
    """Return the first names, and how many more there are: `a, b and 2,000 more`."""
    shown = ", ".join(islice(names, most))
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


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
