"""Connect the data source to a queue manager: over Arrow Flight if available, otherwise over MS-MQRR."""

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

_PAUSE = 0.2  # seconds between attempts to connect
_AFTER_RPC = 5.0  # seconds from the start of RPC to the start of Arrow Flight in a queue manager


class QueueBackend(Protocol):
    """Interface for browsing; see `bulk.client.BulkClient` for the methods and their errors. Consumer groups and
    writing need Arrow Flight."""

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
    """Return a connection. With Arrow Flight, nothing is sent before the first call. If the server `is_known` (it has
    answered before) and does not answer now, calls over Arrow Flight, or the connect of MS-MQRR, are repeated for
    `retrySeconds`."""
    if options.has_many_hosts:
        return ManyHosts(options, is_known)
    if uses_flight:
        return flight(options, is_known)
    # Imported late: each process of a query imports this module, and the RPC client takes longer than the rest.
    from openmsmq.spark.remote_plane import RemotePlane

    return RemotePlane(options, is_known)


def by_flight(options: DataSourceOptions, patient: bool = False) -> bool:
    """Whether to use Arrow Flight; protocol=auto uses it if its port accepts connections. A stream is `patient`: if
    neither port does, it waits for a possible restart, because the choice holds for as long as the stream runs."""
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
    """Return an Arrow Flight client, which writing requires."""
    return RetryingClient(
        options.host, options.flightPort, options.user, options.password, options.roots,
        retry_seconds=options.retrySeconds, is_known=is_known,
    )  # fmt: skip
