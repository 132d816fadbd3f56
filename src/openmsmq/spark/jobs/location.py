"""Address of a queue manager, for the data source and for the client."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

import openmsmq
from openmsmq.bulk.client import DEFAULT_PORT
from openmsmq.client.sync import QueueManager
from openmsmq.model.queue_names import full_name
from openmsmq.spark.options import BATCH_READ, WRITES, DataSourceOptions, OptionError, parse
from openmsmq.spark.plane import by_flight, connect


@dataclass(frozen=True, slots=True)
class Server:
    """A queue manager.

    Attributes:
        host: name or address.
        port: RPC port.
        flight_port: port of Arrow Flight.
        user: USER or DOMAIN\\USER; None for an anonymous caller.
        credential: the password: env:NAME, file:PATH or the password itself. Spark workers resolve it, too.
        protocol: auto, flight or remoteread, as in the data source.
        tls_root: file with the root certificate for Arrow Flight.
    """

    host: str = "127.0.0.1"
    port: int = 2103
    flight_port: int = DEFAULT_PORT
    user: str | None = None
    credential: str = ""
    protocol: str = "auto"
    tls_root: str | None = None

    def options(self, where: str = BATCH_READ) -> dict[str, str]:
        """Return the options of the data source for this server."""
        given = {
            "host": self.host, "port": self.port, "flightPort": self.flight_port, "user": self.user,
            "credential": self.credential, "tlsRoot": self.tls_root,
            "protocol": None if where in WRITES else self.protocol,
        }  # fmt: skip
        return {name: str(value) for name, value in given.items() if value not in (None, "")}

    def read(self, spark: SparkSession, **options: str) -> DataFrame:
        """Return a snapshot of queues."""
        return spark.read.format("msmq").options(**self.options(), **options).load()

    def stream(self, spark: SparkSession, **options: str) -> DataFrame:
        return spark.readStream.format("msmq").options(**self.options(), **options).load()

    @property
    def has_flight(self) -> bool:
        """Whether to use Arrow Flight: required by `protocol`, or allowed and available."""
        return by_flight(self._parsed)

    def connect(self) -> QueueManager:
        """Return a connected client. Raises OptionError, ConnectionError."""
        if self.user is None:
            return openmsmq.connect(self.host, self.port)
        domain, _, user = self.user.rpartition("\\")
        return openmsmq.connect(self.host, self.port, user=user, domain=domain, password=self._parsed.password)

    def check(self, queues: Sequence[str], source: str) -> None:
        """Check the server and the queues before a long job starts. Raises ConnectionError, AccessDenied, QueueNotFound
        and other MsmqErrors."""
        with closing(connect(self._parsed, self.has_flight, is_known=False)) as plane:
            plane.queues()
            for queue in queues:
                plane.check(queue, source)

    def check_target(self, queue: str) -> None:
        """Check the server, and that this caller may send to the queue, before a long job starts. Raises
        ConnectionError, AccessDenied, QueueNotFound and other MsmqErrors."""
        self.check((), "queue")
        try:
            manager = self.connect()
        except ConnectionError:
            if self.has_flight:
                return  # the job needs no other port, and checks the queue itself
            raise
        with manager, manager.open(full_name(queue), "send"):
            pass

    @property
    def _parsed(self) -> DataSourceOptions:
        options = parse({**self.options(), "source": "deadletter"}, BATCH_READ)
        if options.has_many_hosts:
            raise OptionError(f"host is {self.host!r}, allowed for a job: one queue manager")
        return options
