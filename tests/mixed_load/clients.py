"""Clients of all entrances. Each one connects again and again until it has to stop, and counts the messages that it
sends and receives.

A client runs in its own process, since impacket's DCOM client allows one server in each. An error ends it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pyarrow as pa

import openmsmq
from linearizability.clients import ENTRANCES, HOST
from openmsmq.bulk.client import BulkClient
from openmsmq.model.constants import Journal
from waiting import eventually

VISITED, MOVED, STREAM, BULK, SHORT = "visited", "moved", "stream", "bulk", "short"
#: Queues with whether they are transactional.
QUEUES = {VISITED: False, MOVED: True, STREAM: False, BULK: True, SHORT: False}
#: On both queue managers.
FAR = "far"
STRANGER = "127.0.0.77"  # an address of its own: the queue manager may slow down callers there
LONGEST_VISIT = 200  # operations
FULL = 2000  # messages in VISITED above which clients only receive
LIFETIME = 1  # seconds until messages in SHORT expire
PAUSE = 0.01  # seconds between two operations, at most
SIZES = (0, 10, 200, 1000, 1000, 5000, 60_000)  # bytes of bodies
LARGE = 1_500_000


@dataclass(frozen=True)
class Addresses:
    """Ports of the first queue manager, and where the second one is."""

    rpc: int
    messages: int
    mapper: int
    flight: int
    web: int
    far_host: str
    far_rpc: int


class Visitor:
    """The state of one client: addresses, random numbers, counts, and whether it has to stop."""

    def __init__(self, addresses: Addresses, stop: Event, full: Event, seed: int) -> None:
        self.addresses, self.stop, self.full = addresses, stop, full
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()

    @contextmanager
    def connected(self, entrance: str, *queues: str) -> Iterator[Any]:
        """A client of an entrance that has opened these queues."""
        client = ENTRANCES[entrance](self.addresses)
        for queue in queues:
            client.prepare(queue)
        yield client
        client.close()

    def operations(self) -> Iterator[None]:
        """The operations of one connection, with pauses; fewer if the client has to stop."""
        self.counts["connections"] += 1
        for _ in range(self.chance.randrange(1, LONGEST_VISIT)):
            if self.stop.wait(self.chance.uniform(0, PAUSE)):
                return
            yield

    def body(self) -> bytes:
        return bytes(LARGE if self.chance.random() < 0.002 else self.chance.choice(SIZES))

    def sent(self, queue: str, count: int = 1) -> None:
        self.counts[f"sent {queue}"] += count

    def received(self, queue: str, count: int = 1) -> None:
        self.counts[f"received {queue}"] += count


def _use_visited(visitor: Visitor, client: Any, **options: int) -> None:
    """Peek, send or receive one message; options are for the receive."""
    kind = visitor.chance.random()
    if kind < 0.2:
        client.peek(VISITED)
    elif kind < 0.6 and not visitor.full.is_set():
        client.send(VISITED, "visited", visitor.chance.randrange(8))
        visitor.sent(VISITED)
    else:
        visitor.received(VISITED, client.receive(VISITED, **options) is not None)


def visit_by_qmcomm(visitor: Visitor) -> None:
    with visitor.connected("qmcomm", VISITED, MOVED) as client:
        for _ in visitor.operations():
            if visitor.chance.random() < 0.7:
                _use_visited(visitor, client, timeout=20)
                continue
            client.begin()
            taken = client.receive(MOVED) is not None
            client.send(MOVED, "in a transaction", 0)
            committed = visitor.chance.random() < 0.7
            client.end(committed)
            visitor.sent(MOVED, committed)
            visitor.received(MOVED, taken and committed)


def visit_by_remote_read(visitor: Visitor) -> None:
    with visitor.connected("remote read", VISITED, MOVED) as client:
        for _ in visitor.operations():
            queue = visitor.chance.choice((VISITED, VISITED, MOVED))
            if visitor.chance.random() < 0.1:
                client.peek(queue)
            elif client.lock(queue) is not None:
                committed = visitor.chance.random() < 0.8
                client.end(committed)
                visitor.received(queue, committed)


def visit_by_automation(visitor: Visitor) -> None:
    with visitor.connected("automation", VISITED) as client:
        for _ in visitor.operations():
            _use_visited(visitor, client)


def visit_by_transfer(visitor: Visitor) -> None:
    with visitor.connected("transfer") as client:
        for _ in visitor.operations():
            if not visitor.full.is_set():
                client.send(VISITED, "transfer", visitor.chance.randrange(8))
                visitor.sent(VISITED)


def visit_by_flight(visitor: Visitor) -> None:
    with BulkClient(HOST, visitor.addresses.flight) as client:
        for _ in visitor.operations():
            bodies = [visitor.body() for _ in range(visitor.chance.randrange(1, 20))]
            rows = pa.record_batch({"body": pa.array(bodies, pa.binary()), "label": pa.array(["flight"] * len(bodies))})
            visitor.counts["batches"] += 1
            number = visitor.counts["batches"]
            client.finalize("load", number, [client.stage("load", number, 0, 0, [rows], default_queue=BULK)])
            visitor.sent(BULK, len(bodies))
            claim = client.claim(BULK, "load", client.cursor(BULK, "load") or 0, max_messages=40)
            if not claim.count:
                continue
            read = client.read(BULK, start=claim.start, end=claim.end, group="load", token=claim.token)
            assert sum(batch.num_rows for batch in read) == claim.count
            if visitor.chance.random() < 0.2:
                client.release(BULK, "load")
            else:
                client.commit(BULK, "load", claim.end, token=claim.token)
                visitor.received(BULK, claim.count)


def visit_by_own_client(visitor: Visitor) -> None:
    """Send and receive up to 50 messages at a time, and peek with a cursor."""
    with openmsmq.connect(HOST, visitor.addresses.rpc) as manager:
        with manager.open(f".\\private$\\{STREAM}", "send") as target, manager.open(f".\\private$\\{STREAM}") as source:
            for _ in visitor.operations():
                count = visitor.chance.randrange(1, 50)
                for _ in range(count):
                    target.send(visitor.body(), recoverable=visitor.chance.random() < 0.5)
                visitor.sent(STREAM, count)
                with source.cursor() as cursor:
                    cursor.peek(0)
                for _ in range(count):
                    source.receive(0)
                visitor.received(STREAM, count)


def visit_far(visitor: Visitor) -> None:
    """Send messages from the first queue manager to the second one, and back."""
    near, far = (HOST, visitor.addresses.rpc), (visitor.addresses.far_host, visitor.addresses.far_rpc)
    with openmsmq.connect(*near) as here, openmsmq.connect(*far) as there:
        for _ in range(10):
            for source, target, host in ((here, there, far[0]), (there, here, near[0])):
                count = visitor.chance.randrange(1, 50)
                with source.open(f"DIRECT=TCP:{host}\\private$\\{FAR}", "send") as outgoing:
                    for _ in range(count):
                        outgoing.send(visitor.body(), recoverable=visitor.chance.random() < 0.5)
                visitor.sent(FAR, count)
                with target.open(f".\\private$\\{FAR}") as incoming:
                    for _ in range(count):
                        incoming.receive(60)
                        visitor.received(FAR)
    visitor.counts["connections"] += 2


def visit_to_expire(visitor: Visitor) -> None:
    """Send messages with a short lifetime. At the end, receive a dead letter for each."""
    with openmsmq.connect(HOST, visitor.addresses.rpc) as manager:
        with manager.open(f".\\private$\\{SHORT}", "send") as target:
            for _ in visitor.operations():
                target.send("late", time_to_be_received=LIFETIME, journaling_requested=Journal.DEADLETTER)
                visitor.sent(SHORT)
        eventually(lambda: _receive_dead_letters(manager, visitor), 60)


def _receive_dead_letters(manager: openmsmq.QueueManager, visitor: Visitor) -> bool:
    """Empty the dead-letter queue. Returns whether it has had a dead letter for each message sent."""
    with manager.open("DIRECT=OS:.\\SYSTEM$;DEADLETTER") as dead, suppress(openmsmq.ReceiveTimeout):
        while True:
            dead.receive(0)
            visitor.received(SHORT)
    return visitor.counts[f"received {SHORT}"] == visitor.counts[f"sent {SHORT}"]


def visit_as_stranger(visitor: Visitor) -> None:
    """Connect to each port, send random bytes, and close the connection."""
    addresses = visitor.addresses
    for port in (addresses.rpc, addresses.messages, addresses.mapper, addresses.flight, addresses.web):
        with suppress(OSError), socket.create_connection((HOST, port), 10, source_address=(STRANGER, 0)) as stranger:
            stranger.sendall(visitor.chance.randbytes(visitor.chance.randrange(200)))
            if visitor.chance.random() < 0.5:
                stranger.settimeout(0.05)
                stranger.recv(1000)
        visitor.counts["strangers"] += 1
    visitor.stop.wait(0.2)


VISITS: tuple[Callable[[Visitor], None], ...] = (
    visit_by_qmcomm, visit_by_remote_read, visit_by_automation, visit_by_transfer, visit_by_flight,
    visit_by_own_client, visit_far, visit_to_expire, visit_as_stranger,
)  # fmt: skip


def run(visit: Callable[[Visitor], None], addresses: Addresses, stop: Event, full: Event, seed: int, path: str) -> None:
    """Entry point of a process. Writes its counts to a file at the end."""
    os.nice(5)  # the queue managers need the processor, too
    visitor = Visitor(addresses, stop, full, seed)
    while not stop.is_set():
        visit(visitor)
    Path(path).write_text(json.dumps(visitor.counts), encoding="utf-8")


class MixedLoad:
    """Runs all clients while its context is entered."""

    def __init__(self, addresses: Addresses, directory: Path, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._stop, self.full = context.Event(), context.Event()
        self._paths = {visit.__name__: directory / visit.__name__ for visit in VISITS}
        self._processes = {
            visit.__name__: context.Process(
                target=run, name=visit.__name__,
                args=(visit, addresses, self._stop, self.full, seed + number, str(self._paths[visit.__name__])),
            )
            for number, visit in enumerate(VISITS)
        }  # fmt: skip

    def __enter__(self) -> MixedLoad:
        for process in self._processes.values():
            process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        deadline = time.monotonic() + 120
        for process in self._processes.values():
            process.join(max(0, deadline - time.monotonic()))
            process.kill()
            process.join()

    def ended(self, seconds: float) -> list[str]:
        """Wait for the first client to end, at most this many seconds. Returns the names of all that have ended."""
        wait([process.sentinel for process in self._processes.values()], seconds)
        return [name for name, process in self._processes.items() if not process.is_alive()]

    def counts(self) -> Counter[str]:
        """Return the sums of all counts. Raises AssertionError if a client failed."""
        failed = [name for name, process in self._processes.items() if process.exitcode != 0]
        assert not failed, f"failed, see standard error: {failed}"
        found: Counter[str] = Counter()
        for path in self._paths.values():
            found.update(json.loads(path.read_text(encoding="utf-8")))
        return found
