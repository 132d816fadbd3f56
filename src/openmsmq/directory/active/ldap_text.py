"""Quoting of names and values in filters (RFC 4515) and distinguished names (RFC 4514)."""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

_FILTER_SPECIAL: Final = re.compile(r"[\\*()\0]")
_NAME_SPECIAL: Final = re.compile(r'[\\,+"<>;=#\x00-\x1f\x7f]')  # controls: libraries treat line breaks as spaces
_ESCAPED: Final = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)


def filter_text(value: str) -> str:
    """Quote a text as a value in a filter."""
    return _FILTER_SPECIAL.sub(lambda found: f"\\{ord(found[0]):02x}", value)


def filter_octets(value: bytes) -> str:
    """Quote octets as a value in a filter."""
    return "".join(f"\\{octet:02x}" for octet in value)


def child(name: str, parent: str) -> str:
    """Return the distinguished name of the object `name` below `parent`."""
    escaped = _NAME_SPECIAL.sub(lambda found: f"\\{ord(found[0]):02X}", name)
    if escaped.startswith(" "):
        escaped = "\\20" + escaped[1:]
    if escaped.endswith(" "):
        escaped = escaped[:-1] + "\\20"
    return f"CN={escaped},{parent}"


def parent_of(name: str) -> str:
    """Return a distinguished name without its first element; empty if it has only one."""
    return name[len(_first(name)) + 1 :]


def name_of(name: str) -> str:
    """Return the value of the first element of a distinguished name. Raises ValueError."""
    _, separator, value = _first(name).partition("=")
    if not separator:
        raise ValueError(f"{name!r} is not a distinguished name")
    octets = _ESCAPED.sub(lambda found: _plain(found[1]), value.encode())
    return octets.decode()


def _plain(escaped: bytes) -> bytes:
    return bytes.fromhex(escaped.decode()) if len(escaped) == 2 and escaped.isalnum() else escaped


def _first(name: str) -> str:
    at = 0
    while at < len(name) and name[at] != ",":
        at += 2 if name[at] == "\\" else 1
    return name[:at]


def by_identifier(identifier: UUID) -> str:
    """Return a name for the object with this objectGUID, regardless of its location ([MS-ADTS] 3.1.1.3.1.2.4)."""
    return f"<GUID={identifier}>"
