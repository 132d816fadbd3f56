"""Values of JSON that somebody else sent, as values of the types that are expected, or an error."""

from __future__ import annotations

import json
import math
from types import NoneType, UnionType
from typing import Any, Final, NewType, NoReturn, Union, get_args, get_origin, get_type_hints

#: Seconds since 1970, of a time that can be shown; whole ones, and with fractions.
Time = NewType("Time", int)
ExactTime = NewType("ExactTime", float)

_YEAR_10000: Final = 253_402_300_800  # in seconds since 1970
_LARGEST: Final = 1 << 64
_TIMES: Final[dict[Any, type]] = {Time: int, ExactTime: float}


class Unexpected(ValueError):
    """A value is of another type; the message is the name of the member, empty for the whole."""


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


def converted(value: Any, wanted: Any, name: str = "") -> Any:
    """`value` as `wanted`, which is a type of JSON (`dict` is any object), a time, a NamedTuple of such types (an
    object that may have other members, too), a list of one, several, or Any. Raises Unexpected."""
    if wanted is Any:
        return value
    if get_origin(wanted) in (Union, UnionType):
        kinds = [kind for kind in get_args(wanted) if (kind is NoneType) == (value is None)]
        if len(kinds) != 1:  # None, or the one other type
            raise Unexpected(name)
        return converted(value, kinds[0], name)
    if get_origin(wanted) is list:
        (kind,) = get_args(wanted)
        return [converted(each, kind, name) for each in _of(list, value, name)]
    if hasattr(wanted, "_fields"):
        given = _of(dict, value, name)
        members = get_type_hints(wanted)
        if missing := members.keys() - given.keys():
            raise Unexpected(min(missing))
        return wanted(**{member: converted(given[member], kind, member) for member, kind in members.items()})
    if wanted in _TIMES:
        time = _of(_TIMES[wanted], value, name)
        if not 0 <= time < _YEAR_10000:
            raise Unexpected(name)
        return time
    return _of(get_origin(wanted) or wanted, value, name)


def _of(kind: type, value: Any, name: str) -> Any:
    if isinstance(value, bool):
        fits = kind is bool
    elif isinstance(value, int):
        fits = kind in (int, float) and abs(value) < _LARGEST
    else:
        fits = isinstance(value, kind)
    if not fits:
        raise Unexpected(name)
    return value


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refused(text)
