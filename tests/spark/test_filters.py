"""Pushed-down filters give the same rows as filters applied by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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

from daemon import Daemon
from openmsmq.bulk.client import BulkClient
from openmsmq.spark.filters import PushedFilters
from openmsmq.spark.options import BATCH_READ, parse
from openmsmq.spark.reading import FilteringReader, QueueRange
from openmsmq.spark.schema import spark_schema
from spark import lake

_QUEUES = ("filter-a", "filter-b", "filter-x")
_COLUMNS = ("queue", "source", "sequence", "arrival_time", "label")


@pytest.fixture(scope="module")
def rows(service: Daemon) -> Iterator[list[dict[str, Any]]]:
    """The rows up to the last stable position of each queue; the third queue has a message after its position."""
    lake.create(service, *_QUEUES[:2])
    lake.create(service, _QUEUES[2], transactional=True)
    lake.put(service, _QUEUES[0], "abc")
    with service.connect() as manager, manager.open(f".\\private$\\{_QUEUES[2]}", "send") as sender:
        lake.put_together(manager, _QUEUES[2], "de")
        lake.put(service, _QUEUES[1], "fgh")
        late = manager.transaction()
        sender.send("late", label="late", transaction=late)
        lake.put_together(manager, _QUEUES[2], ["above"])
        yield [row for queue in _QUEUES for row in read(service, [queue], [])]
        late.abort()


def read(service: Daemon, queues: list[str], filters: list[Filter], **options: str) -> list[dict[str, Any]]:
    """Return the rows read with pushed-down filters; the remaining filters are applied as in Spark."""
    given_ = lake.reach(service, queue=",".join(queues), pushFilters="true", **options)
    reader = FilteringReader(parse(given_, BATCH_READ), spark_schema("none"))
    left = list(reader.pushFilters(filters))
    found = []
    for part in reader.partitions():
        assert isinstance(part, QueueRange)
        for batch in reader.read(part):
            found += [{name: row[name] for name in _COLUMNS} for row in batch.to_pylist()]
    return [row for row in found if all(holds(condition, row) is True for condition in left)]


def holds(condition: Filter, row: dict[str, Any]) -> bool | None:
    """Return the value of a filter in Spark; None is null."""
    if isinstance(condition, Not):
        inner = holds(condition.child, row)
        return None if inner is None else not inner
    found, value = row[condition.attribute[0].lower()], getattr(condition, "value", None)  # type: ignore[attr-defined]
    if isinstance(condition, IsNull | IsNotNull):
        return (found is None) is isinstance(condition, IsNull)
    if isinstance(condition, EqualNullSafe):
        return bool(found == value)
    if isinstance(condition, In):
        assert value is not None
        return True if found in value else None if None in value else False
    if value is None:
        return None
    made: bool = {
        EqualTo: lambda: found == value,
        GreaterThan: lambda: found > value,
        GreaterThanOrEqual: lambda: found >= value,
        LessThan: lambda: found < value,
        LessThanOrEqual: lambda: found <= value,
        StringStartsWith: lambda: found.startswith(value),
        StringEndsWith: lambda: found.endswith(value),
        StringContains: lambda: value in found,
    }[type(condition)]()
    return made


def values_of(column: str, rows: list[dict[str, Any]]) -> st.SearchStrategy[Any]:
    known = sorted({row[column] for row in rows})
    near = {
        "sequence": st.sampled_from([-(2**63), -1, 0, 2**56 - 1, 2**56, 2**63 - 1])
        | st.builds(lambda value, step: value + step, st.sampled_from(known), st.integers(-2, 2)),
        "arrival_time": st.builds(
            lambda value, step: value + timedelta(seconds=step),
            st.sampled_from(known), st.sampled_from([-86400, -1, -0.5, 0, 0.000001, 1, 10**9]),
        ),
    }.get(column, st.sampled_from(["", "filter", "FILTER-A", ".\\private$\\", "que", "none", "\0", "é"]))  # fmt: skip
    return near | st.sampled_from(known)


def conditions(rows: list[dict[str, Any]]) -> st.SearchStrategy[Filter]:
    def of(column: str) -> st.SearchStrategy[Filter]:
        values, path = values_of(column, rows), st.just((column.upper(),)) | st.just((column,))
        kinds = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
        if isinstance(rows[0][column], str):
            kinds += [StringStartsWith, StringEndsWith, StringContains]
        plain: st.SearchStrategy[Filter] = st.one_of(
            *[st.builds(kind, path, values) for kind in kinds],
            st.builds(In, path, st.lists(values | st.none(), min_size=1, max_size=3)),
            st.builds(EqualTo, path, st.none()),
            st.builds(IsNull, path), st.builds(IsNotNull, path),
        )  # fmt: skip
        return plain | st.builds(Not, plain)

    return st.sampled_from(_COLUMNS).flatmap(of)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_rows_are_the_same_with_and_without_push_down(
    service: Daemon, rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    filters = data.draw(st.lists(conditions(rows), min_size=1, max_size=3))
    wanted = [row for row in rows if all(holds(condition, row) is True for condition in filters)]
    assert sorted(map(str, read(service, [*_QUEUES], filters))) == sorted(map(str, wanted))


def test_filters_above_the_last_stable_position_show_no_unstable_messages(
    service: Daemon, rows: list[dict[str, Any]]
) -> None:
    with BulkClient(port=lake.flight_port(service)) as client:
        position = client.position(_QUEUES[2])
    assert position.stable < position.last
    found = read(service, [_QUEUES[2]], [LessThanOrEqual(("sequence",), position.last)])
    assert [row["label"] for row in found] == ["d", "e"]


def test_queues_excluded_by_a_filter_are_not_planned(service: Daemon, rows: list[dict[str, Any]]) -> None:
    given_ = lake.reach(service, queue=",".join(_QUEUES), pushFilters="true")
    paths = {row["queue"].rpartition("\\")[2]: row["queue"] for row in rows}
    for condition, planned in (
        (EqualTo(("queue",), paths["filter-b"]), ["filter-b"]),
        (In(("queue",), [paths["filter-x"], "other"]), ["filter-x"]),
        (StringEndsWith(("queue",), "-a"), ["filter-a"]),
        (Not(StringEndsWith(("queue",), "-a")), ["filter-b", "filter-x"]),
        (EqualTo(("source",), "journal"), []),
    ):
        reader = FilteringReader(parse(given_, BATCH_READ), spark_schema("none"))
        assert list(reader.pushFilters([condition])) == []
        assert [part.queue for part in reader.partitions() if isinstance(part, QueueRange)] == planned, condition


def test_a_range_of_positions_needs_no_other_column() -> None:
    selection = PushedFilters()
    assert selection.take(GreaterThan(("sequence",), 5)) and selection.take(IsNotNull(("sequence",)))
    assert (selection.after, selection.columns()) == (5, [])


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("label",), "a"), EqualTo(("sequence",), 2**64), EqualTo(("sequence",), "5"), EqualTo(("queue",), 5),
        EqualTo(("queue",), "\ud800"), EqualTo(("queue", "part"), "a"), In(("sequence",), [1, None]),
        GreaterThan(("arrival_time",), datetime(2026, 1, 1)), GreaterThan(("sequence",), True),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_exactly_stays_with_spark(condition: Filter) -> None:
    assert not PushedFilters().take(condition) and not PushedFilters().take(Not(condition))


def test_a_time_that_is_not_known_matches_nothing() -> None:
    selection = PushedFilters()
    assert selection.take(Not(GreaterThan(("arrival_time",), datetime(2026, 1, 1, tzinfo=UTC))))
    times = pa.array([None, datetime(2025, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    assert selection.rows(pa.RecordBatch.from_pydict({"arrival_time": times})).num_rows == 1


def test_spark_sees_the_same_rows(spark: Any, service: Daemon, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    middle = sorted(row["sequence"] for row in rows)[3]
    time, path = sorted(row["arrival_time"] for row in rows)[-1], rows[0]["queue"]
    frames = {
        pushed: spark.read.format("msmq")
        .options(**lake.reach(service, queue=",".join(_QUEUES), **({"pushFilters": "true"} if pushed else {})))
        .load()
        for pushed in (True, False)
    }
    for condition in (
        f"sequence > {middle} and queue like '%-x'", f"sequence in ({middle}, 17)",
        f"arrival_time >= timestamp '{time}'",
        f"arrival_time < timestamp '{time}'", "queue not in ('other', '" + path.replace("\\", "\\\\") + "')",
        f"arrival_time in (timestamp '{time}', timestamp '2001-01-01 00:00:00')", "queue = 'a' or label = 'b'",
        "sequence = 99999999999999999999", "queue <=> null", "source is null",
    ):  # fmt: skip
        found = []
        for pushed, frame in frames.items():
            spark.conf.set("spark.sql.python.filterPushdown.enabled", str(pushed).lower())
            try:
                found.append(sorted(row.label for row in frame.where(condition).select("label").collect()))
            finally:
                spark.conf.unset("spark.sql.python.filterPushdown.enabled")
        assert found[0] == found[1], condition


@given(
    kind=st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]),
    limit=st.integers(-3_000_000, 3_000_000),
    offset=st.integers(-4, 4),
)
def test_a_server_selects_the_seconds_that_a_comparison_admits(kind: Any, limit: int, offset: int) -> None:
    base = datetime(2026, 11, 26, 12, tzinfo=UTC)
    condition = kind(("arrival_time",), base + timedelta(microseconds=limit))
    second = int(base.timestamp()) + offset
    filters = PushedFilters()
    assert filters.take(condition) and filters.is_planned(condition)
    first, last = filters.arrivals()
    selected = (first is None or first <= second) and (last is None or second <= last)
    assert selected == (holds(condition, {"arrival_time": datetime.fromtimestamp(second, UTC)}) is True)


@pytest.mark.parametrize("kind", [EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual])
@pytest.mark.parametrize("year", [1, 1960, 2200, 9999])
def test_a_time_that_no_message_can_have_admits_all_or_none(kind: Any, year: int) -> None:
    filters, limit = PushedFilters(), datetime(year, 1, 1, tzinfo=UTC)
    assert filters.take(kind(("arrival_time",), limit))
    first, last = filters.arrivals()
    for second in (1, (1 << 32) - 1):
        selected = (first is None or first <= second) and (last is None or second <= last)
        row = {"arrival_time": datetime.fromtimestamp(second, UTC)}
        assert selected == holds(kind(("arrival_time",), limit), row)
