"""Registers the tables of generated modules with the engine, if it has been compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Members = tuple[tuple[str, Any, str | None, tuple[int, int] | None], ...]

try:
    from msrpc.ndr.engine import announce, codec, declare
except ImportError:  # not built here

    def announce(kind: type, alignment: int, recursive: bool, has_pointers: bool, ndr64: bool, /) -> None:
        """No-op without the compiled engine, which is told of a structure before its members."""

    def declare(kind: type, members: Members, absent: tuple[str, ...], ndr64: bool, /) -> None:
        """No-op without the compiled engine, which is told the members of a structure."""

    def codec(
        order: str,
        interpreted: Callable[[Any], Any],
        kind: type,
        members: Members,
        absent: tuple[str, ...],
        ndr64: bool = False,
        /,
    ) -> Callable[[Any], Any]:
        """The interpreted codec itself."""
        return interpreted


__all__ = ["announce", "codec", "declare"]
