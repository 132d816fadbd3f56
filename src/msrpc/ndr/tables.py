"""Registers the tables of generated modules with the engine, if it has been compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Members = tuple[tuple[str, Any, Any, tuple[int, int] | None], ...]

try:
    from msrpc.ndr.engine import announce, codec, declare
except ImportError:  # the engine is not compiled

    def announce(kind: type, alignment: int, recursive: bool, has_pointers: bool, ndr64: bool, /) -> None:
        """Announce a structure to the engine before its members; this fallback does nothing."""

    def declare(kind: type, members: Members, absent: tuple[str, ...], ndr64: bool, /) -> None:
        """Declare the members of a structure to the engine; this fallback does nothing."""

    def codec(
        order: str,
        interpreted: Callable[[Any], Any],
        kind: type,
        members: Members,
        absent: tuple[str, ...],
        ndr64: bool = False,
        /,
    ) -> Callable[[Any], Any]:
        """Return a compiled codec; this fallback returns the interpreted one."""
        return interpreted


__all__ = ["announce", "codec", "declare"]
