"""Behavior that the Python source and the connector share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from daemon import Daemon
from openmsmq.spark.options import STREAM_READ, OptionError, parse
from openmsmq.spark.schema import spark_schema
from openmsmq.spark.streaming import MsmqStreamReader
from spark import lake
from spark.lake import table


@pytest.mark.parametrize("spaced", ["{} ", " {}"], ids=["after", "before"])
def test_spaces_belong_to_the_name_of_a_queue(either: Any, service: Daemon, queue: str, spaced: str) -> None:
    name = spaced.format(queue)
    lake.create(service, name)
    lake.put(service, queue, "a")
    lake.put(service, name, "b")
    assert [row.label for row in table(either, service, queue=name).collect()] == ["b"]
    assert [row.label for row in table(either, service, queue=queue).collect()] == ["a"]


@pytest.mark.parametrize("more", [{}, {"endingOffsets": "latest"}])
def test_an_offset_that_the_queue_manager_has_not_given_is_an_error(
    either: Any, service: Daemon, queue: str, more: dict[str, str]
) -> None:
    lake.put(service, queue, "a")
    frame = table(either, service, queue=queue, startingOffsets=json.dumps({queue: 1 << 50}), **more)
    for action in (frame.count, frame.collect):
        with pytest.raises(Exception, match=f"start {1 << 50} lies beyond"):
            action()


@pytest.mark.parametrize("seconds", [" 60 ", "99999999999999999999"])
def test_the_time_for_retries_is_any_whole_number(either: Any, service: Daemon, queue: str, seconds: str) -> None:
    lake.put(service, queue, "a")
    assert len(table(either, service, queue=queue, retrySeconds=seconds).collect()) == 1


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("retrySeconds", "1e20", "retrySeconds is '1e20', allowed: a whole number, 0 or more"),
        ("tlsRoot", "/nowhere", "tlsRoot: /nowhere: No such file or directory"),
        ("tlsRoot", __file__, "tlsRoot is '.*', allowed: a PEM file of certificates"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(
    either: Any, service: Daemon, queue: str, option: str, value: str, said: str
) -> None:
    with pytest.raises(Exception, match=f"OptionError: {said}"):
        table(either, service, queue=queue, **{option: value}).collect()


@pytest.mark.parametrize("switched", ["off", "on"])
def test_a_checkpoint_of_the_other_protocol_is_refused(service: Daemon, queue: str, switched: str) -> None:
    lake.put(service, queue, "a")
    lists, positions = {queue: [5]}, {queue: {"sequence": 1, "planned": 1}}
    protocol, offsets = ("remoteread", positions) if switched == "off" else ("flight", lists)
    given = lake.reach(service, queue=queue, port=service.port, protocol=protocol, mode="receive", consumerGroup="g")
    reader = MsmqStreamReader(parse(given, STREAM_READ), spark_schema("none"))
    others = "Arrow Flight" if switched == "off" else "MS-MQRR"
    said = f"protocol is '{protocol}', .* the checkpoint is of a stream that receives by {others} .* new checkpoint"
    with pytest.raises(OptionError, match=said):
        reader.latestOffset(offsets, ReadAllAvailable())
    with pytest.raises(OptionError, match=said):
        MsmqStreamReader(parse(given, STREAM_READ), spark_schema("none")).partitions({}, offsets)
    assert lake.count(service, queue) == 1


def test_a_read_from_the_end_has_no_rows(either: Any, service: Daemon, queue: str) -> None:
    lake.put(service, queue, "a")
    end = table(either, service, queue=queue).collect()[0].sequence
    frame = table(either, service, queue=queue, startingOffsets=json.dumps({queue: end}))
    assert frame.count() == len(frame.collect()) == 0


def test_a_column_of_a_schema_may_be_null_in_spite_of_not_null(either: Any, service: Daemon, queue: str) -> None:
    lake.put(service, queue, "a")
    reader = either.read.format("msmq").schema("label string not null, body binary not null")
    frame = reader.options(**lake.reach(service, queue=queue, includeBody="false")).load()
    assert frame.where("body is null").count() == 1 and frame.where("body is not null").count() == 0
    assert frame.selectExpr("coalesce(body, cast('none' as binary)) b").collect()[0].b == b"none"


def test_a_filter_with_a_time_that_python_does_not_have(either: Any, service: Daemon, queue: str) -> None:
    lake.put(service, queue, "ab")
    frame = table(either, service, queue=queue)
    for condition, expected in (
        ("arrival_time < timestamp'+10000-01-01 00:00:00'", 2),
        ("not arrival_time = timestamp'+200000-01-01 00:00:00'", 2),
        ("arrival_time < timestamp'-0001-01-01 00:00:00'", 0),
        ("arrival_time in (timestamp'+10000-01-01 00:00:00', timestamp'2020-01-01 00:00:00')", 0),
    ):
        found = frame.where(condition)
        assert found.count() == len(found.collect()) == expected, condition


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_the_planner_reads_utf8_in_any_locale(encoding: str) -> None:
    request = json.dumps({"call": "schema", "options": {"decode": "Größe"}}, ensure_ascii=False)
    done = subprocess.run(
        [sys.executable, "-m", "openmsmq.spark.planner"],
        input=request.encode() + b"\n", stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": encoding},
        check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout)["error"] == "OptionError: decode is 'Größe', allowed: none, text, json"
