"""Text from outside (names, labels, bodies, what a peer says) for whatever shows it: terminal, log, table, message."""

from __future__ import annotations

import json
import re
import unicodedata
from datetime import UTC, datetime
from typing import Any

_LINE_ENDS = re.compile("\r\n?")


def printable(text: str, *, multiline: bool = False) -> str:
    """`text` with escapes such as \\x1b and \\u202e for all that a terminal obeys or that is not seen.

    These are control characters (C0, DEL, C1), format characters (bidirectional controls, zero-width ones), line and
    paragraph separators, halves of surrogate pairs, and what Unicode has not assigned. With `multiline` line feeds and
    tabs stay, and other ends of lines become line feeds. Programs that make HTML or markup escape the result of this.
    """
    if text.isprintable():
        return text
    if multiline:
        text = _LINE_ENDS.sub("\n", text)
    kept = "\n\t" if multiline else ""
    return "".join(c if is_visible(c) or c in kept else c.encode("unicode_escape").decode() for c in text)


def printable_json(value: Any, default: Any = None) -> str:
    """`value` as one line of JSON, in which what `printable` escapes is JSON's escape: the same value to a parser."""
    text = json.dumps(value, default=default, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if is_visible(c) else json.dumps(c)[1:-1] if c != "\x7f" else "\\u007f" for c in text)


def is_visible(character: str) -> bool:
    """Whether a character shows itself, or is a space of some width, and does nothing else."""
    return character.isprintable() or unicodedata.category(character) == "Zs"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 message`, `1,200 messages`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def time_text(seconds: int) -> str:
    """Seconds since 1970 as `2026-11-22 12:00:00 UTC`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ").replace("+00:00", " UTC")
