"""Untrusted text (names, text from a peer) for display: terminal, log, message of an exception."""

from __future__ import annotations

import re
import unicodedata

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


def is_visible(character: str) -> bool:
    """Whether a character shows itself, or is a space of some width, and does nothing else."""
    return character.isprintable() or unicodedata.category(character) == "Zs"
