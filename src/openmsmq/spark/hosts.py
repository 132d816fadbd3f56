"""Several queue managers as one table: queues are named `host/queue`, and each host has its own client.

Arrow Flight only. `reading.Fetching` queries the hosts concurrently, one thread per host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from openmsmq.bulk.client import BulkClient, Claim, Lag, QueueInfo, QueuePosition, ReadPlan
from openmsmq.model.errors import MsmqError, error_for
from openmsmq.spark.options import DataSourceOptions
from openmsmq.spark.probing import listens
from openmsmq.spark.retry import RetryingClient

_AGAIN = 10.0  # seconds until an unreachable host is tried again


class HostAway(ConnectionError):
    """A queue manager is unreachable; the message names it."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(
            f"queue manager {host} does not answer: {reason}; failOnDataLoss=false continues with the other hosts and "
            "reads from this one later"
        )
        self.host = host


def joined(host: str, queue: str) -> str:
    """Return the name of a queue in a table of several hosts."""
    return f"{host}/{queue}"


def divided(name: str) -> tuple[str, str]:
    """Split a name into host and queue. A queue name may contain a slash, a host name cannot."""
    host, _, queue = name.partition("/")
    return host, queue


class ManyHosts:
    """`BulkClient` for queues named `host/queue`. Errors name the host."""

    def __init__(self, options: DataSourceOptions, is_known: bool) -> None:
        """Create without connecting; the first call connects.

        Args:
            options: options of the data source.
            is_known: whether all hosts have answered before, so that failed calls are repeated.
        """
        self._options, self._is_known = options, is_known
        self._clients: dict[str, RetryingClient] = {}
        self._away: dict[str, tuple[float, str]] = {}  # host -> time of the next attempt, and the error

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def queues(self) -> list[QueueInfo]:
        """List the queues of all hosts, one host after the other; see `queues_at`."""
        return [found for host in self._options.hosts for found in self.queues_at(host)]

    def queues_at(self, host: str) -> list[QueueInfo]:
        """List the queues of a host, with their names on that host."""
        found: list[QueueInfo] = self._ask(joined(host, ""), "queues", is_of_host=True)
        return found

    def incarnation_at(self, host: str) -> str | None:
        store: str | None = self._ask(joined(host, ""), "incarnation", is_of_host=True)
        return store

    def arrow_port_at(self, host: str) -> int | None:
        port: int | None = self._ask(joined(host, ""), "arrow_port", is_of_host=True)
        return port

    def check(self, queue: str, source: str = "queue") -> str:
        """Return the path name of a queue, prefixed with its host."""
        return joined(divided(queue)[0], self._ask(queue, "check", source))

    def position(self, queue: str, *values: Any, **options: Any) -> QueuePosition:
        position: QueuePosition = self._ask(queue, "position", *values, **options)
        return position

    def lag(self, queue: str, *values: Any, **options: Any) -> Lag:
        lag: Lag = self._ask(queue, "lag", *values, **options)
        return lag

    def plan(self, queue: str, *values: Any, **options: Any) -> ReadPlan:
        plan: ReadPlan = self._ask(queue, "plan", *values, **options)
        return plan

    def cursor(self, queue: str, *values: Any, **options: Any) -> int | None:
        cursor: int | None = self._ask(queue, "cursor", *values, **options)
        return cursor

    def claim(self, queue: str, *values: Any, **options: Any) -> Claim:
        claim: Claim = self._ask(queue, "claim", *values, **options)
        return claim

    def commit(self, queue: str, *values: Any, **options: Any) -> int:
        cursor: int = self._ask(queue, "commit", *values, **options)
        return cursor

    def read(self, queue: str, *values: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        host, name = divided(queue)
        try:
            yield from self._client(host).read(name, *values, **options)
        except HostAway:
            raise
        except (MsmqError, ConnectionError) as error:
            raise self._failure(host, error) from error

    def _ask(self, queue: str, what: str, *values: Any, is_of_host: bool = False, **options: Any) -> Any:
        """Call a method of the client of the queue's host."""
        host, name = divided(queue)
        which = () if is_of_host else (name,)
        try:
            answer = getattr(self._client(host), what)(*which, *values, **options)
        except HostAway:
            raise
        except (MsmqError, ConnectionError) as error:
            raise self._failure(host, error) from error
        self._away.pop(host, None)
        return answer

    def _client(self, host: str) -> RetryingClient:
        """Return a host's client. Raises HostAway if it failed recently, so that callers do not wait repeatedly."""
        options = self._options
        if host in self._away:
            again, reason = self._away[host]
            if time.monotonic() < again:
                raise HostAway(host, reason)
            if not listens(host, options.flightPort):
                self._away[host] = time.monotonic() + _AGAIN, reason
                raise HostAway(host, reason)
        if host not in self._clients:
            self._clients[host] = RetryingClient(
                host, options.flightPort, options.user, options.password, options.roots,
                retry_seconds=options.retrySeconds, is_known=self._is_known and host not in self._away,
            )  # fmt: skip
        return self._clients[host]

    def _failure(self, host: str, error: MsmqError | ConnectionError) -> Exception:
        if isinstance(error, MsmqError):
            return error_for(error.hresult, f"{host}: {error.detail}")
        self._clients.pop(host).close()  # a new client does not repeat its first call
        self._away[host] = time.monotonic() + _AGAIN, str(error)
        return HostAway(host, str(error))


FLIGHT = (BulkClient, ManyHosts)
"""Backends with positions and consumer groups."""
