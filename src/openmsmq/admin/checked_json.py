"""Documents of JSON that somebody else sent: read more strictly than `json` does."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


class RepeatedMember(ValueError):
    """An object has a member twice; the message names it."""


def parsed(data: bytes) -> Any:
    """A document; None for what is no JSON, which has neither NaN nor numbers without end."""
    try:
        return strict(data)
    except ValueError:
        return None


def strict(data: bytes | str) -> Any:
    """A document. Raises ValueError for what is no JSON, and for an object that has a member twice."""
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
    raise ValueError(f"{text} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refused(text)
