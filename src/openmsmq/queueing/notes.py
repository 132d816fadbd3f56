"""The note of a prepared transaction: all that has to be remembered of it besides its sends, which are in the store."""

from __future__ import annotations

import json
from typing import NamedTuple

from openmsmq.queueing.transactions import Dequeued, Moved, Transaction


class Work(NamedTuple):
    """What a prepared transaction takes from a queue: received, or moved to `subqueue` of `target`, or to it."""

    queue: int
    lookup_identifier: int
    reason: int = 0
    target: int = 0
    subqueue: str = ""


def encode_note(transaction: Transaction) -> bytes:
    """What has to be remembered of a transaction that is prepared, besides its sends, which are in the store."""
    work = []
    for operation in transaction.operations:
        if isinstance(operation, Dequeued):
            work.append(Work(operation.queue.number, operation.lookup_identifier, int(operation.reason)))
        elif isinstance(operation, Moved):
            head = operation.target.parent or operation.target
            name = operation.target.name if operation.target.parent else ""
            work.append(Work(operation.queue.number, operation.lookup_identifier, 0, head.number, name))
    values = [transaction.identifier.hex(), transaction.coordinator.hex(), work]
    return json.dumps(values).encode()


def decode_note(note: bytes) -> tuple[bytes, bytes, list[Work]]:
    """Identifier, coordinator and work of a prepared transaction."""
    identifier, coordinator, work = json.loads(note)
    return bytes.fromhex(identifier), bytes.fromhex(coordinator), [Work(*item) for item in work]
