"""Shorten queue names for display by removing their common prefix."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

_WORTH = 6  # minimum length of a common prefix that is removed
_BREAK = re.compile(r"[\\/;:=]")


def common_beginning(names: Collection[str]) -> str:
    """Return the common prefix of all names, up to a separator; empty if it is short, or a name would become empty."""
    different = set(names)
    if len(different) < 2:
        return ""
    first, last = min(different), max(different)  # the common prefix of the first and the last name is common to all
    shared = first[: next((n for n, pair in enumerate(zip(first, last, strict=False)) if len({*pair}) > 1), len(first))]
    breaks = [found.end() for found in _BREAK.finditer(shared)]
    prefix = shared[: breaks[-1]] if breaks else ""
    return prefix if len(prefix) >= _WORTH and all(len(name) > len(prefix) for name in different) else ""


def without_beginning(names: Collection[str]) -> tuple[Callable[[str], str], str]:
    """Return a mapping to shortened names, and a sentence about the removed prefix, empty if there is none."""
    prefix = common_beginning(names)
    if not prefix:
        return str, ""
    return (lambda name: name.removeprefix(prefix)), f"All names begin with {prefix}"
