"""Filters that Spark pushes down: which are accepted, and the queues, positions and rows that remain.

A filter is accepted if it can be evaluated exactly as Spark does; Spark applies the others. So no filter makes a query
fail, except those that PySpark itself cannot convert: times outside the years 1 to 9999, UTC. Every accepted filter is
applied to the rows. Conditions on positions, and on columns that are constant for a queue, also reduce the messages
that are read.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from openmsmq.model.lookup_id import LAST_SEQUENCE

_TIME = pa.timestamp("us", tz="UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_SECOND = 1 << 32  # after any time that a message can have
#: Columns whose filters are accepted, and the Python types of their values.
_COLUMNS: dict[str, tuple[pa.DataType, type]] = {
    "host": (pa.string(), str),
    "queue": (pa.string(), str),
    "source": (pa.string(), str),
    "sequence": (pa.int64(), int),
    "arrival_time": (_TIME, datetime),
}
_NEVER_NULL = ("host", "queue", "source", "sequence")
#: Filter class -> its evaluation for a column and a value. Null where Spark has null; such a row is excluded.
_COMPARISONS: dict[type[Filter], Callable[[Any, Any], pa.Array]] = {
    EqualTo: pc.equal,
    EqualNullSafe: lambda column, value: pc.fill_null(pc.equal(column, value), False),
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
    # For values without null: whether a value equals one of them; null for null.
    In: lambda column, values: pc.if_else(pc.is_valid(column), pc.is_in(column, value_set=values), None),
    IsNull: lambda column, _: pc.is_null(column),
    IsNotNull: lambda column, _: pc.is_valid(column),
    StringStartsWith: lambda column, value: pc.starts_with(column, value.as_py()),
    StringEndsWith: lambda column, value: pc.ends_with(column, value.as_py()),
    StringContains: lambda column, value: pc.match_substring(column, value.as_py()),
}


class PushedFilters:
    """Conditions that remain after the filters are applied.

    Attributes:
        after, until: limits of positions: after < sequence <= until.
    """

    def __init__(self) -> None:
        self.after = 0
        self.until: int | None = None
        self._conditions: list[Filter] = []

    def take(self, condition: Filter) -> bool:
        """Accept a filter if possible. Return False if Spark must apply it."""
        if not _is_exact(condition):
            return False
        column = _column(condition)
        if isinstance(condition, IsNotNull) and column in _NEVER_NULL:
            return True
        if column != "sequence" or not self._limit(condition):
            self._conditions.append(condition)
        return True

    def _limit(self, condition: Filter) -> bool:
        """Use a filter's limit on positions. Return whether the filter has no other condition."""
        if isinstance(condition, GreaterThan):
            self._begin_after(condition.value)
        elif isinstance(condition, GreaterThanOrEqual):
            self._begin_after(condition.value - 1)
        elif isinstance(condition, LessThan):
            self._end_at(condition.value - 1)
        elif isinstance(condition, LessThanOrEqual):
            self._end_at(condition.value)
        elif isinstance(condition, EqualTo):
            self._begin_after(condition.value - 1)
            self._end_at(condition.value)
        elif isinstance(condition, In) and condition.value:
            self._begin_after(min(condition.value) - 1)
            self._end_at(max(condition.value))
            return False
        else:
            return False
        return True

    def _begin_after(self, value: int) -> None:
        self.after = max(self.after, value)

    def _end_at(self, value: int) -> None:
        if value <= LAST_SEQUENCE:
            self.until = value if self.until is None else min(self.until, value)

    def has_limits(self) -> bool:
        """Whether the filters limit positions."""
        return self.after > 0 or self.until is not None

    def concerns(self, column: str) -> bool:
        return any(_column(condition) == column for condition in self._conditions)

    def is_planned(self, condition: Filter) -> bool:
        """Whether all rows of a plan satisfy an accepted filter, if the server selects by `arrivals`: the filter limits
        positions or arrival times, or has the same result for all rows of a queue."""
        column = _column(condition)
        if isinstance(condition, IsNotNull):
            return column in _NEVER_NULL
        if column == "arrival_time":
            return _seconds(condition) is not None
        return column in ("host", "queue") or (column == "sequence" and condition not in self._conditions)

    def arrivals(self) -> tuple[int | None, int | None]:
        """Return the first and last second of arrival that the comparisons admit; None for no limit."""
        limits = [limit for one in self._conditions if _column(one) == "arrival_time" and (limit := _seconds(one))]
        first = [low for low, _ in limits if low is not None]
        last = [high for _, high in limits if high is not None]
        return max(first, default=None), min(last, default=None)

    def columns(self) -> list[str]:
        """Return the columns that `rows` needs."""
        return list(dict.fromkeys(map(_column, self._conditions)))

    def admits(self, **known: str) -> bool:
        """Whether rows with these values can pass. The columns are constant for a queue."""
        row = pa.RecordBatch.from_pydict({name: pa.array([text], pa.string()) for name, text in known.items()})
        return all(
            _evaluated(condition, row)[0].as_py() is True
            for condition in self._conditions
            if _column(condition) in known
        )

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that pass all filters."""
        for condition in self._conditions:
            batch = batch.filter(_evaluated(condition, batch))
        return batch


def _column(condition: Filter) -> str:
    """Return the column of a filter, spelled as in the table; empty for an unknown column or part of a structure."""
    path: tuple[str, ...] = getattr(condition.child if isinstance(condition, Not) else condition, "attribute", ())
    return path[0].lower() if len(path) == 1 else ""


def _seconds(condition: Filter) -> tuple[int | None, int | None] | None:
    """Return the first and last whole second that a comparison with a time admits; None for other filters."""
    kind = type(condition)
    if kind not in (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual):
        return None
    microseconds = (condition.value - _EPOCH) // timedelta(microseconds=1)  # type: ignore[attr-defined]
    second, rest = divmod(microseconds, 1_000_000)
    above = min(max(second + (kind is GreaterThan or rest > 0), 0), _NO_SECOND)
    below = min(max(second - (kind is LessThan and rest == 0), 0), _NO_SECOND)
    if kind is EqualTo:
        return (above, below)
    return (above, None) if kind in (GreaterThan, GreaterThanOrEqual) else (None, below)


def _is_exact(condition: Filter) -> bool:
    """Whether the filter can be evaluated exactly with its value."""
    plain = condition.child if isinstance(condition, Not) else condition
    kind, wanted = _COLUMNS.get(_column(condition), (None, None))
    if kind is None or wanted is None or type(plain) not in _COMPARISONS:
        return False
    if isinstance(plain, IsNull | IsNotNull):
        return True
    values = plain.value if isinstance(plain, In) else [plain.value]  # type: ignore[attr-defined]
    if not all(_is_plain(value, wanted) for value in values):
        return False
    try:
        _evaluated(condition, pa.RecordBatch.from_pydict({_column(condition): pa.array([], kind)}))
    except (ValueError, TypeError, OverflowError, pa.ArrowException):  # a value beyond the type's range, for example
        return False
    return True


def _is_plain(value: Any, wanted: type) -> bool:
    return type(value) is wanted and not (isinstance(value, datetime) and value.tzinfo is None)


def _evaluated(condition: Filter, batch: pa.RecordBatch) -> pa.Array:
    """Evaluate a filter per row: true, false or null."""
    if isinstance(condition, Not):
        return pc.invert(_evaluated(condition.child, batch))
    name = _column(condition)
    kind = _COLUMNS[name][0]
    value = getattr(condition, "value", None)
    given = pa.array(list(value), kind) if isinstance(condition, In) and value is not None else pa.scalar(value, kind)
    return _COMPARISONS[type(condition)](batch.column(name), given)
