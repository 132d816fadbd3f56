"""Names and options of the streams that archive queues."""

from __future__ import annotations

import re

import pytest

from openmsmq.spark.jobs.archiving import _check, _stream_name, _stream_options
from openmsmq.spark.jobs.location import Server
from openmsmq.spark.jobs.session import PipelineError


def test_a_position_is_that_of_the_same_queues_and_options() -> None:
    here = Server("mq1", 2103)
    name = _stream_name(here, "queue", ["b", "a"], None)
    assert re.fullmatch("queue-[0-9a-f]{16}", name)
    assert _stream_name(here, "queue", ["a", "b"], None) == name
    others = [
        _stream_name(Server("mq2", 2103), "queue", ["a", "b"], None),
        _stream_name(Server("mq1", 2104), "queue", ["a", "b"], None),
        _stream_name(here, "journal", ["a", "b"], None),
        _stream_name(here, "queue", ["a"], None),
        _stream_name(here, "queue", ["a", "b"], "group"),
    ]
    assert len({name, *others}) == 6


@pytest.mark.parametrize("protocol", ["flight", "remoteread"])
def test_only_removing_by_remote_read_has_no_limit_of_messages_per_batch(protocol: str) -> None:
    here = Server(protocol=protocol)
    assert here.has_flight is (protocol == "flight")
    kept = {"source": "queue", "queue": "a,b", "maxRecordsPerTrigger": "100000", "failOnDataLoss": "false"}
    assert _stream_options(here, ["a", "b"], "queue", None, None) == kept
    removed = {"source": "queue", "queue": "a", "mode": "receive", "consumerGroup": "g"}
    limit = {"maxRecordsPerTrigger": "100000"} if here.has_flight else {}
    assert _stream_options(here, ["a"], "queue", "g", None) == removed | limit
    assert _stream_options(here, ["a"], "queue", "g", 5) == removed | {"maxRecordsPerTrigger": "5"}
    assert "queue" not in _stream_options(here, [], "deadletter", None, None)


@pytest.mark.parametrize(
    ("format", "source", "queues", "said"),
    [
        ("csv", "queue", ["a"], "format is 'csv', allowed: parquet, delta"),
        ("delta", "outgoing", ["a"], "source is 'outgoing', allowed: queue, journal"),
        ("delta", "queue", [], "source queue needs at least one queue"),
        ("parquet", "journal", [], "source journal needs at least one queue"),
        ("parquet", "queue", ["a,b"], "queue is 'a,b', allowed: one name"),
    ],
)
def test_invalid_arguments_are_named(format: str, source: str, queues: list[str], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        _check(format, source, queues)
    _check("delta", "xactdeadletter", [])
