"""How the data source gets at a queue manager: by Arrow Flight where it is served, else by MS-MQRR."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from openmsmq.bulk.client import BulkClient, Plan, Position, QueueInfo
from openmsmq.spark.options import Options

_PROBE = 2.0  # seconds to find out whether anything listens at the port of Flight


class Plane(Protocol):
    """What browsing needs; see `bulk.client.BulkClient` for what each method does and raises. Consumer groups are Arrow
    Flight's alone."""

    def close(self) -> None: ...

    def queues(self) -> list[QueueInfo]: ...

    def position(self, queue: str, source: str = "queue", group: str | None = None) -> Position: ...

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
    ) -> Plan: ...

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
    ) -> Iterator[pa.RecordBatch]: ...


def connect(options: Options) -> Plane:
    """A connection; nothing is sent before the first call, but with protocol=auto to see what is there."""
    if by_flight(options):
        return flight(options)
    # Only here: each process that Spark starts for a query imports this, and the RPC client takes longer than the rest.
    from openmsmq.spark.remote_plane import RemotePlane

    return RemotePlane(options)


def by_flight(options: Options) -> bool:
    """Whether Arrow Flight is to be used; protocol=auto takes it where something listens at its port."""
    return options.protocol == "flight" or (options.protocol == "auto" and _listens(options.host, options.flightPort))


def flight(options: Options) -> BulkClient:
    """A client of Arrow Flight, which writing needs."""
    return BulkClient(options.host, options.flightPort, options.user, options.password, options.tlsRoot)


def _listens(host: str, port: int) -> bool:
    """Whether anything answers at a port."""
    try:
        socket.create_connection((host, port), _PROBE).close()
    except OSError:
        return False
    return True
