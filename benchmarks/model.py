"""CPU time of the queue manager alone, with a store that keeps records in memory, in microseconds per operation.

    python benchmarks/model.py [ROUNDS]

The minimum of all rounds is printed, because it depends little on other load. To compare two checkouts, alternate
between them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from openmsmq import compiled
from openmsmq.model.constants import INFINITE, Access, ReceiveAction, Share
from openmsmq.model.message import Message
from openmsmq.model.names import parse_format_name
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.machine import Machine
from openmsmq.queueing.manager import QueueManager

COUNT = 2000


class Discarding:
    """A store without a log, which keeps only records that are read again."""

    definitions: dict[bytes, bytes] = {}  # noqa: RUF012
    high_key = 0

    def __init__(self) -> None:
        self._records: dict[int, bytes] = {}

    def append(self, operations: Sequence[Any]) -> list[int]:
        payloads = [payload for operation in operations if (payload := getattr(operation, "payload", None)) is not None]
        first = len(self._records)
        self._records.update(enumerate(payloads, first))
        return list(range(first, first + len(payloads)))

    def reserve(self, high: int) -> None:
        """Do nothing: numbers are not recorded."""

    def read(self, location: int) -> bytes:
        return self._records[location]


def operations(manager: QueueManager) -> dict[str, Callable[[], None]]:
    """Return the operations to measure, each of which runs `COUNT` times."""
    manager.administration.create_queue(".\\private$\\q", {}, None, SYSTEM)
    name = parse_format_name("DIRECT=OS:.\\private$\\q")
    sender, reader = (
        manager.handles.open_queue(name, access, Share.DENY_NONE, SYSTEM) for access in (Access.SEND, Access.RECEIVE)
    )

    def send(guarantee: int) -> None:
        for _ in range(COUNT):
            manager.sending.enqueue(sender, Message(body=bytes(100), delivery_guarantee=guarantee))

    def receive(timeout: int = 0) -> None:
        manager.reading.read(reader, ReceiveAction.RECEIVE, timeout, lambda message: 0, lambda status, message: None)

    def receives() -> None:
        for _ in range(COUNT):
            receive()

    def waits(guarantee: int) -> None:
        for _ in range(COUNT):
            receive(INFINITE)
            manager.sending.enqueue(sender, Message(body=bytes(100), delivery_guarantee=guarantee))
            manager.turn()

    return {
        "express send": lambda: send(0), "receive": receives, "durable send": lambda: send(1),
        "receive from the log": receives, "express send to a waiting reader": lambda: waits(0),
        "durable send to a waiting reader": lambda: waits(1),
    }  # fmt: skip


def main(rounds: int = 15) -> None:
    manager = QueueManager(Machine("HERE", bytes(range(16))), Discarding(), lambda: 1, os.urandom)  # type: ignore[arg-type]
    measured, best = operations(manager), dict[str, float]()
    for _ in range(rounds):
        for name, operation in measured.items():
            started = time.process_time()
            operation()
            taken = (time.process_time() - started) / COUNT * 1e6
            best[name] = min(best.get(name, taken), taken)
    print("compiled" if compiled.is_native() else "interpreted")
    print(*(f"{name}: {taken:.2f} us" for name, taken in best.items()), sep="\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
