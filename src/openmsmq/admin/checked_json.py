"""Strict parsing of untrusted JSON."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


class RepeatedMember(ValueError):
    """An object has a duplicate member; the message names it."""


def parsed(data: bytes) -> Any:
    """Parse a document; None if it is not valid JSON, which has neither NaN nor infinity."""
    try:
        return strict(data)
    except ValueError:
        return None


def strict(data: bytes | str) -> Any:
    """Parse a document. Raises ValueError for invalid JSON and for duplicate members."""
    try:
        return json.loads(data, parse_constant=_refused, parse_float=_finite, object_pairs_hook=_members)
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RepeatedMember(f"{twice[:60]!r} is given twice")
    return members


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text} is not valid JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refused(text)
