"""Attribute-filter expressions ([MS-MQDMPR] 3.1.7.1.20) in queries for queues.

An absent attribute compares as in a directory ([RFC 4511] 4.5.1.7, where LESS-THAN is `(&(a<=v)(!(a=v)))`): it is not
equal to any value, and neither less nor greater. An empty text is an absent attribute, so EQUALS "" finds queues
without the attribute, and NOT-EQUALS "" those with it. Texts are compared case-insensitively. GUIDs are compared by
their 16 octets in transfer order ([MS-DTYP] 2.3.4.2).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final
from uuid import UUID


class Relation(IntEnum):
    """The operators, numbered as in RELOPS ([MC-MQAC] 2.2.2.20)."""

    EQUALS = 1
    NOT_EQUALS = 2
    LESS_THAN = 3
    GREATER_THAN = 4
    LESS_THAN_OR_EQUAL = 5
    GREATER_THAN_OR_EQUAL = 6


Key = str | int | bytes


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator. `symbol` is its SQL operator; `compare` compares two present keys; `of_absent` is the result if
    exactly one key is absent."""

    symbol: str
    compare: Callable[[Any, Any], bool]
    of_absent: bool = False


OPERATORS: Final[dict[Relation, Operator]] = {
    Relation.EQUALS: Operator("=", operator.eq),
    Relation.NOT_EQUALS: Operator("<>", operator.ne, of_absent=True),
    Relation.LESS_THAN: Operator("<", operator.lt),
    Relation.GREATER_THAN: Operator(">", operator.gt),
    Relation.LESS_THAN_OR_EQUAL: Operator("<=", operator.le),
    Relation.GREATER_THAN_OR_EQUAL: Operator(">=", operator.ge),
}


def _text(value: str) -> Key | None:
    return value.casefold() or None


def _guid(value: UUID) -> Key | None:
    return value.bytes_le


def _number(value: int) -> Key | None:
    return value


#: Attribute that queries may use -> function that returns the key to compare, None if absent.
KEYS: Final[dict[str, Callable[[Any], Key | None]]] = {
    "identifier": _guid,
    "type": _guid,
    "label": _text,
    "create_time": _number,
    "modify_time": _number,
    "multicast_address": _text,
    "path_name": _text,
    "machine": _guid,
}


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition: an attribute of QueueRecord, an operator, and the value on the right-hand side."""

    attribute: str
    relation: Relation
    value: Any

    @property
    def key(self) -> Key | None:
        """Key of the value on the right-hand side; None if absent."""
        return KEYS[self.attribute](self.value)


def holds(condition: Filter, key: Key | None) -> bool:
    """Whether an attribute with this key satisfies a filter."""
    wanted, found = condition.key, OPERATORS[condition.relation]
    if wanted is None and key is None:
        return condition.relation is Relation.EQUALS
    if wanted is None or key is None:
        return found.of_absent
    return bool(found.compare(key, wanted))


def matches(record: object, filters: Iterable[Filter]) -> bool:
    """Whether a record satisfies all filters."""
    return all(holds(f, KEYS[f.attribute](getattr(record, f.attribute))) for f in filters)
