"""Errors of reading packets. A module of its own: no exception is declared in a compiled one."""

from __future__ import annotations


class BadPacket(ValueError):
    """The bytes are not a valid packet; the message names the header and the missing part."""
