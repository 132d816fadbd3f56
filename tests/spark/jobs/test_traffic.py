"""Traffic figures, compared with figures of the same messages computed without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmsmq.spark.jobs import Server, archived_traffic, live_traffic
from openmsmq.spark.jobs.archived import ARCHIVE_SCHEMA, PARTITION_COLUMNS
from openmsmq.spark.jobs.traffic import PERCENTILES, Figures

START = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)


def made_up() -> list[dict[str, Any]]:
    """Messages of two queues over three hours: received by the archive, only browsed, and from a journal."""
    rows = []
    for number in range(300):
        arrived = START + timedelta(seconds=number * 31)
        queue = f"vm\\private$\\q{number % 2}"
        row = {
            "queue": queue, "source": "journal" if number % 3 == 0 else "queue", "sequence": number,
            "sent_time": arrived - timedelta(seconds=number % 17), "arrival_time": arrived,
            "body_size": (number * 7919) % 5000, "date": arrived.date(),
            "archived_at": arrived + timedelta(seconds=number % 90), "removed": number % 5 != 0,
        }  # fmt: skip
        rows.append(dict.fromkeys(ARCHIVE_SCHEMA.names) | row)
    return rows


def stayed(row: dict[str, Any]) -> float | None:
    if row["source"] == "journal":
        return float((row["arrival_time"] - row["sent_time"]).total_seconds())
    return float((row["archived_at"] - row["arrival_time"]).total_seconds()) if row["removed"] else None


def check(found: list[Figures], rows: list[dict[str, Any]], key: Callable[[dict[str, Any]], Any]) -> None:
    groups = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    assert {(f.queue, f.source, f.hour) for f in found} == set(groups) and len(found) == len(groups)
    for figures in found:
        group = groups[figures.queue, figures.source, figures.hour]
        sizes = [row["body_size"] for row in group]
        times = [time for time in map(stayed, group) if time is not None]
        assert (figures.messages, figures.bytes) == (len(group), sum(sizes))
        assert figures.sizes == pytest.approx(np.percentile(sizes, PERCENTILES))
        assert figures.times == (pytest.approx(np.percentile(times, PERCENTILES)) if times else None)


def hour(row: dict[str, Any]) -> datetime:
    return row["arrival_time"].replace(minute=0, second=0)  # type: ignore[no-any-return]


def test_figures_of_an_archive_are_right(spark: Any, tmp_path: Path) -> None:
    rows = made_up()
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], ARCHIVE_SCHEMA)
    frame.write.partitionBy(*PARTITION_COLUMNS).parquet(str(tmp_path / "archive"))
    traffic = archived_traffic(spark, str(tmp_path / "archive"))
    assert traffic.total is not None
    check([traffic.total], rows, lambda row: ("(all queues)", "", None))
    check(traffic.queues, rows, lambda row: (row["queue"], row["source"], None))
    check(traffic.hours, rows, lambda row: (row["queue"], row["source"], hour(row)))
    check(traffic.all_hours, rows, lambda row: ("(all queues)", "", hour(row)))
    assert [f.hour for f in traffic.all_hours] == sorted({hour(row) for row in rows})


@pytest.mark.parametrize("protocol", ["flight", "remoteread"])
def test_what_is_in_queues_is_counted(
    spark: Any, server: Server, qm: Any, filled: Callable[..., str], tmp_path: Path, protocol: str
) -> None:
    first, second = filled(10, journal=True), filled(5)
    with qm.open(first) as opened:
        for _ in range(4):
            opened.receive(0)
    there = replace(server, protocol=protocol)
    traffic = live_traffic(spark, there, [first, second])
    with qm.open(first, "peek") as one, qm.open(second, "peek") as two:
        size = sum(len(m.body) for m in [*one, *two])
    assert traffic.total is not None and (traffic.total.messages, traffic.total.bytes) == (11, size)
    assert [f.messages for f in traffic.queues] == [6, 5] and traffic.is_age
    assert traffic.total.times is not None and 0 <= traffic.total.times[0] < 120
    journal = live_traffic(spark, there, [first], "journal")
    assert journal.total is not None and journal.total.messages == 4 and not journal.is_age


def test_an_empty_archive_has_no_traffic(spark: Any, server: Server, filled: Callable[..., str]) -> None:
    traffic = live_traffic(spark, server, [filled(0)])
    assert traffic.total is None and traffic.queues == traffic.hours == []
