"""A unit of work ([MS-MQDMPR] 3.1.1.13 and 3.1.1.14), its state table, and the note of a prepared one.

`TRANSITIONS` lists the events allowed in each state and the state that follows. Only `Transaction.advance` changes the
state, and only `transactions.Transactions` calls it. An *internal* transaction is ACTIVE until it ends. One that this
queue manager coordinates is CLOSED while votes are collected: a crash aborts it. One that another queue manager
coordinates is PREPARED while it is in doubt: it survives a restart. A stage of a data pipeline is PREPARED once it is
complete.

There is no state for a commit in progress: nothing else runs between gathering and writing a change, and the state
changes after the write.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import TransactionSequence
from openmsmq.model.message import Message
from openmsmq.queueing.queue import Queue


class Enqueued:
    """A send of the transaction. `location` is None until the message is in the store."""

    def __init__(self, queue: Queue, message: Message, size: int, location: int | None = None) -> None:
        self.queue = queue
        self.message = message
        self.size = size
        self.location = location

    @property
    def is_held(self) -> bool:
        """Whether it must still be stored."""
        return self.location is None and not self.queue.deleted


class Dequeued:
    """A receive of the transaction; the position is locked until its end. `reason` is the class for its removal: the
    reader may reject it (R_SetUserAcknowledgementClass)."""

    def __init__(self, queue: Queue, lookup_identifier: int, reason: MessageClass = MessageClass.ACK_RECEIVE) -> None:
        self.queue = queue
        self.lookup_identifier = lookup_identifier
        self.reason = reason


@dataclass(slots=True)
class Moved:
    """A move of the transaction to `target`; the position is locked in `queue` until its end."""

    queue: Queue
    lookup_identifier: int
    target: Queue


class TransactionState(Enum):
    ACTIVE = "active"
    CLOSED = "closed"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"


class TransactionEvent(Enum):
    WORK = "work"  # a send, receive, move or rejection
    CLOSE = "close"  # as coordinator: begin to collect votes
    PREPARE = "prepare"  # as participant: promise to commit
    COMMIT = "commit"  # internal transaction, or as coordinator
    OUTCOME_COMMIT = "commit as the coordinator decided"
    ABORT = "abort"


_S, _E = TransactionState, TransactionEvent
# Event -> state -> next state. Combinations that are not listed are refused and change nothing.
TRANSITIONS: Final[dict[TransactionEvent, dict[TransactionState, TransactionState]]] = {
    _E.WORK: {_S.ACTIVE: _S.ACTIVE},
    _E.CLOSE: {_S.ACTIVE: _S.CLOSED},
    _E.PREPARE: {_S.ACTIVE: _S.PREPARED, _S.PREPARED: _S.PREPARED},
    _E.COMMIT: {_S.ACTIVE: _S.COMMITTED, _S.CLOSED: _S.COMMITTED},
    _E.OUTCOME_COMMIT: {_S.PREPARED: _S.COMMITTED},
    _E.ABORT: {_S.ACTIVE: _S.ABORTED, _S.CLOSED: _S.ABORTED, _S.PREPARED: _S.ABORTED},
}


@dataclass(slots=True, eq=False)
class Transaction:
    """Transaction. `identifier` is the XACTUOW; `number` identifies it in the store and in message properties.
    `superior` is data of the transaction manager about a prepared distributed transaction. `unacknowledged` counts the
    messages received in it through MS-MQRR whose receipt the client has not confirmed yet."""

    identifier: bytes
    number: int
    operations: list[Enqueued | Dequeued | Moved] = field(default_factory=list)
    last_send: Enqueued | None = None  # not stored until it is known whether it is the last one
    wrote_pending: bool = False
    superior: bytes = b""
    unacknowledged: int = 0
    state: TransactionState = TransactionState.ACTIVE
    owner: Any = None  # the protocol's object for it; None for a distributed one

    @property
    def is_open(self) -> bool:
        """Whether it accepts more work."""
        return self.state is TransactionState.ACTIVE

    @property
    def is_prepared(self) -> bool:
        """Whether it survives a restart."""
        return self.state is TransactionState.PREPARED

    @property
    def has_ended(self) -> bool:
        return self.state in (TransactionState.COMMITTED, TransactionState.ABORTED)

    def check(self, event: TransactionEvent) -> TransactionState:
        """Return the state that follows an event. Raises TransactionSequence if the current state does not allow it."""
        following = TRANSITIONS[event].get(self.state)
        if following is None:
            raise TransactionSequence(detail=f"{event.value} is not possible: the transaction is {self.state.value}")
        return following

    def advance(self, event: TransactionEvent) -> None:
        """Apply an event. Raises as `check`."""
        self.state = self.check(event)


class Work(NamedTuple):
    """Receive of a prepared transaction, or its move to `target` or the subqueue of that."""

    queue: int
    lookup_identifier: int
    reason: int = 0
    target: int = 0
    subqueue: str = ""


def encode_note(transaction: Transaction) -> bytes:
    """Encode the state of a prepared transaction, except its sends, which are in the store."""
    work = []
    for operation in transaction.operations:
        if isinstance(operation, Dequeued):
            work.append(Work(operation.queue.number, operation.lookup_identifier, int(operation.reason)))
        elif isinstance(operation, Moved):
            head = operation.target.parent or operation.target
            name = operation.target.name if operation.target.parent else ""
            work.append(Work(operation.queue.number, operation.lookup_identifier, 0, head.number, name))
    values = [transaction.identifier.hex(), transaction.superior.hex(), work]
    return json.dumps(values).encode()


def decode_note(note: bytes) -> tuple[bytes, bytes, list[Work]]:
    """Return identifier, superior and work of a prepared transaction."""
    identifier, superior, work = json.loads(note)
    return bytes.fromhex(identifier), bytes.fromhex(superior), [Work(*item) for item in work]
