"""What reading packets raises. A module of its own: no exception is declared in a compiled one."""

from __future__ import annotations


class BadPacket(ValueError):
    """The bytes are no packet; the message says which header lacks what."""
