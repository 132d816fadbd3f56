"""How the data source gets at a queue manager: by Arrow Flight where it is served, else by MS-MQRR."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from openmsmq.bulk.client import Lag, QueueInfo, QueuePosition, ReadPlan
from openmsmq.spark.hosts import ManyHosts
from openmsmq.spark.options import DataSourceOptions
from openmsmq.spark.probing import listens
from openmsmq.spark.retry import RetryingClient

_PAUSE = 0.2  # seconds between two looks whether anything answers
_AFTER_RPC = 5.0  # seconds that a queue manager takes for Arrow Flight when it has begun to serve RPC


class QueueBackend(Protocol):
    """Interface for browsing; see `bulk.client.BulkClient` for the methods and their errors. Only Arrow Flight has
    consumer Flight's alone."""

    def close(self) -> None: ...

    def queues(self) -> list[QueueInfo]: ...

    def check(self, queue: str, source: str = "queue") -> str: ...

    def position(self, queue: str, source: str = "queue", group: str | None = None) -> QueuePosition: ...

    def lag(self, queue: str, source: str = "queue", start: int = 0, group: str | None = None) -> Lag: ...

    def plan(
        self,
        queue: str,
        source: str = "queue",
        start: int = 0,
        end: int | None = None,
        partitions: int = 1,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        group: str | None = None,
        token: str | None = None,
    ) -> ReadPlan: ...

    def read(
        self,
        queue: str,
        source: str = "queue",
        start: int = 0,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        include_body: bool = True,
        group: str | None = None,
        token: str | None = None,
        on_damaged: Callable[[list[int]], None] | None = None,
    ) -> Iterator[pa.RecordBatch]: ...


def connect(options: DataSourceOptions, uses_flight: bool, is_known: bool) -> QueueBackend:
    """A connection. If the server `is_known` (somebody has had an answer from there) and does not answer now, calls by
    Arrow Flight are repeated for `retrySeconds`, and so is the connect of MS-MQRR; by Arrow Flight nothing is sent
    before the first call."""
    if options.has_many_hosts:
        return ManyHosts(options, is_known)
    if uses_flight:
        return flight(options, is_known)
    # Only here: each process that Spark starts for a query imports this, and the RPC client takes longer than the rest.
    from openmsmq.spark.remote_plane import RemotePlane

    return RemotePlane(options, is_known)


def by_flight(options: DataSourceOptions, patient: bool = False) -> bool:
    """Whether Arrow Flight is to be used; protocol=auto takes it where something listens at its port. A stream is
    `patient`: where nothing answers at all, a restart may be going on, and the answer is for as long as it runs."""
    if options.has_many_hosts:
        return True
    if options.protocol != "auto":
        return options.protocol == "flight"
    if listens(options.host, options.flightPort):
        return True
    if not patient or listens(options.host, options.port):
        return False
    deadline, seen = time.monotonic() + options.retrySeconds, False
    while time.monotonic() < deadline:
        time.sleep(_PAUSE)
        if listens(options.host, options.flightPort):
            return True
        if not seen and listens(options.host, options.port):
            deadline, seen = min(deadline, time.monotonic() + _AFTER_RPC), True
    return False


def flight(options: DataSourceOptions, is_known: bool = True) -> RetryingClient:
    """A client of Arrow Flight, which writing needs."""
    return RetryingClient(
        options.host, options.flightPort, options.user, options.password, options.tlsRoot,
        retry_seconds=options.retrySeconds, is_known=is_known,
    )  # fmt: skip
