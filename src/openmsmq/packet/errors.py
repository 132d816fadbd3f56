"""Errors of parsing packets. A separate module, because compiled modules cannot define exceptions."""

from __future__ import annotations


class BadPacket(ValueError):
    """The bytes are not a valid packet; the message names the header and the missing part."""
