"""Compare all systems in alternating rounds, so that other load on the machine affects all alike."""

from __future__ import annotations

import contextlib
import statistics
from pathlib import Path
from typing import NamedTuple

import load
import systems
from wires import connect

ROUNDS = 3
# Forms of the baseline program, see floor.c; the last one computes for 20 µs per message.
FLOORS = {"floor": ("in-place", 0), "floor, thread": ("thread", 0), "floor, 20 µs": ("in-place", 20_000)}
BOTH = "send and receive"


class Clients(NamedTuple):
    """Number of connections, and of concurrent requests on each."""

    connections: int
    depth: int = 1

    def __str__(self) -> str:
        return f"{self.connections}" if self.depth == 1 else f"{self.connections} × {self.depth} under way"


class Row(NamedTuple):
    """An operation and its clients. For `BOTH`, there are as many senders, and as many receivers, as clients."""

    operation: str
    clients: Clients


CLIENTS = (Clients(1), Clients(8), Clients(64), Clients(1, 64), Clients(8, 16))
ROWS = tuple(Row(operation, clients) for operation in ("durable send", "receive", BOTH) for clients in CLIENTS)


class Cell(NamedTuple):
    """Result of a system in a row: operations per second; latencies and CPU time per operation in microseconds."""

    rate: float
    p50: float
    p99: float
    p999: float
    server: float
    generator: float


class Comparison:
    """Results of all systems.

    Attributes:
        missing: systems that are not installed here.
        cells: results by row and system, one per round.
    """

    def __init__(self, directory: Path, seconds: float) -> None:
        """`seconds` per operation, in all rounds together."""
        self._directory, self._seconds = directory, seconds / ROUNDS
        self._servers: dict[str, systems.Server] = {}
        self.missing: list[str] = []
        self.cells: dict[tuple[Row, str], list[Cell]] = {}

    def run(self) -> None:
        with contextlib.ExitStack() as stack:
            self._start(stack)
            for _ in range(ROUNDS):
                for clients in CLIENTS:
                    for system in self._servers:
                        self._turn(system, clients)

    def median(self, row: Row, system: str) -> Cell | None:
        """Return the median of the rounds; None if it was not measured."""
        cells = self.cells.get((row, system))
        return Cell(*(statistics.median(values) for values in zip(*cells, strict=True))) if cells else None

    def ratio(self, row: Row, system: str) -> float | None:
        """Return the rate of openmsmq divided by that of a system; None if one was not measured."""
        ours, theirs = self.median(row, "openmsmq"), self.median(row, system)
        return ours.rate / theirs.rate if ours and theirs else None

    def _start(self, stack: contextlib.ExitStack) -> None:
        directory, there = self._directory, systems.installed()
        self.missing = [name for name, installed in there.items() if not installed]
        daemon = stack.enter_context(systems.openmsmq(directory))
        with daemon.connect() as manager:
            manager.create_queue(".\\private$\\compared")
        self._servers["openmsmq"] = systems.Server(daemon.port, daemon.pid)
        if there["rabbitmq"]:
            broker = stack.enter_context(systems.rabbitmq(directory))
            self._servers["rabbitmq classic"] = self._servers["rabbitmq quorum"] = broker
        if there["redis"]:
            self._servers["redis"] = stack.enter_context(systems.redis(directory))
        if there["postgresql"]:
            self._servers["postgresql"] = stack.enter_context(systems.postgresql(directory))
        for name, (form, work) in FLOORS.items():
            self._servers[name] = stack.enter_context(systems.floor(directory, form, work))

    def _turn(self, system: str, clients: Clients) -> None:
        """Run one round of a system: send; fill and receive part of it; fill and do both."""
        filling = "fill" if system == "redis" else "durable send"
        self._measure(Row("durable send", clients), system, ["durable send"])
        enough = self._fill(system, filling)
        self._measure(Row("receive", clients), system, ["receive"], enough)
        enough = self._fill(system, filling)
        self._measure(Row(BOTH, clients), system, [filling, "receive"], 2 * enough)

    def _fill(self, system: str, what: str) -> int:
        """Fill the queue. Returns how many messages can be received, so that no receiver waits in vain."""
        if system in FLOORS:  # the baseline has no messages
            return load.ENDLESS
        port, queue = self._servers[system].port, _queue(system)
        result = load.load(port=port, what=what, queue=queue, system=system, connections=64, seconds=self._seconds)
        return max(1, int(0.9 * result["count"]))

    def _measure(self, row: Row, system: str, operations: list[str], count: int = load.ENDLESS) -> None:
        server, (connections, depth) = self._servers[system], row.clients
        wires = (
            connect(system, server.port, what, _queue(system), depth) for what in operations for _ in range(connections)
        )
        with load.opened(wires) as ready:
            before = systems.cpu_of_all(server.pid)
            result = load.repeat(ready, self._seconds, count, depth)
            spent = systems.cpu_of_all(server.pid) - before
        if result["failed"]:
            raise RuntimeError(f"{system}: {row.operation} of {row.clients} clients: {result['failed']} failures")
        one = 1e6 / result["count"]
        cell = Cell(result["rate"], result["p50"], result["p99"], result["p999"], spent * one, result["cpu"] * one)
        self.cells.setdefault((row, system), []).append(cell)
        print(f"  {system} {row.operation} x{row.clients}: {cell.rate:,.0f}/s", flush=True)


def _queue(system: str) -> str:
    return system.partition(" ")[2] if system.startswith("rabbitmq") else "compared"
