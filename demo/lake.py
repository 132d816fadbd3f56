"""Data lake of the demo: journals of all queues, archived as Parquet by streaming jobs, and a traffic report.

Both are verified independently: Parquet files are read without Spark, and totals are computed from the records.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.dataset

from files import Record
from openmsmq.model.bodies import decode_body
from openmsmq.spark import jobs
from openmsmq.spark.jobs.reports import traffic_page
from openmsmq.spark.jobs.units import count


def archive(servers: dict[jobs.Server, list[str]], directory: Path, report: Path) -> int:
    """Archive the journals of the queues of each server and write the report. Returns the number of messages."""
    spark = jobs.session("local[2]")
    rows = 0
    for server, queues in servers.items():
        rows += jobs.archive(spark, server, queues, str(directory), source="journal").rows
    report.write_text(traffic_page(jobs.archived_traffic(spark, str(directory)), "the queues of make demo"), "utf-8")
    return rows


def compare(directory: Path, report: Path, shares: dict[str, list[Record]]) -> list[str]:
    """Return the differences of archive and report from the records of each queue (by short name), one per line."""
    found = []
    table = pyarrow.dataset.dataset(directory, format="parquet", partitioning="hive").to_table(
        columns=["queue", "body", "body_type", "body_size"]
    )
    contents: dict[str, Counter[Record]] = {}
    sizes: Counter[str] = Counter()
    for queue, body, kind, size in zip(*(column.to_pylist() for column in table.columns), strict=True):
        name = queue.rpartition("\\")[2]
        contents.setdefault(name, Counter())[Record.from_body(str(decode_body(body, kind)))] += 1
        sizes[name] += size
    for queue, records in shares.items():
        if contents.get(queue) != Counter(records):
            found.append(f"{queue}: the archive differs from the records that were sent")
    total = sum(len(records) for records in shares.values())
    if f">{count(total)}<" not in report.read_text("utf-8"):
        found.append(f"the report does not show {total:,} messages")
    expected = {queue: sum(2 * len(record.to_body()) for record in records) for queue, records in shares.items()}
    if sizes != Counter(expected):
        found.append(f"body sizes: {json.dumps(sizes)} in the archive, {json.dumps(expected)} sent")
    return found
