"""Text for terminals, logs and exceptions: untrusted text (names, text from a peer) made safe, and the reasons of the
operating system."""

from __future__ import annotations

import os
import re
import unicodedata

_LINE_ENDS = re.compile("\r\n?")


def printable(text: str, *, multiline: bool = False) -> str:
    """Return `text` with escapes such as \\x1b and \\u202e for characters that control a terminal or are invisible.

    These are control characters (C0, DEL, C1), format characters (bidirectional controls, zero-width ones), line and
    paragraph separators, unpaired surrogates, and unassigned characters. With `multiline`, line feeds and tabs are
    kept, and other line ends become line feeds. Programs that generate HTML or markup must also escape the result.
    """
    if text.isprintable():
        return text
    if multiline:
        text = _LINE_ENDS.sub("\n", text)
    kept = "\n\t" if multiline else ""
    return "".join(c if is_visible(c) or c in kept else c.encode("unicode_escape").decode() for c in text)


def is_visible(character: str) -> bool:
    """Whether a character is visible, or a space with a width, and has no other effect."""
    return character.isprintable() or unicodedata.category(character) == "Zs"


def reason_of(error: Exception) -> str:
    """Return why a connection failed: for an OSError the operating system's description, without its number; for an
    error of urllib, that of its cause."""
    if isinstance(cause := getattr(error, "reason", None), Exception):
        return reason_of(cause)
    if isinstance(error, UnicodeError) and not isinstance(error, UnicodeDecodeError):  # of IDNA
        return "no host can have this name"
    if isinstance(error, OSError) and error.errno:
        is_of_system = type(error).__module__ == "builtins"  # socket and ssl have errors with numbers of their own
        return os.strerror(error.errno) if is_of_system else str(error.strerror)
    return str(error) or type(error).__name__
