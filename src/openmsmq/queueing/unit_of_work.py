"""A unit of work ([MS-MQDMPR] 3.1.1.13 and 3.1.1.14), the table of its states, and the note of a prepared one.

`TRANSITIONS` says what may happen to a transaction in which state, and what state follows; `Transaction.advance` is the
only place that changes one, and only `transactions.Transactions` calls it. An *internal* transaction is ACTIVE to its
end. One that this queue manager coordinates is CLOSED while votes are collected: a crash aborts it. One that another
queue manager coordinates is PREPARED while it is in doubt: it survives a restart. A stage of a data pipeline is
PREPARED once it is complete.

There is no state for a commit under way: between the gathering of a change and its write nothing else runs, and the
state moves after the write.
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
        """Whether it is to be stored yet."""
        return self.location is None and not self.queue.deleted


class Dequeued:
    """A receive of the transaction; the position is locked until its end. `reason` is why the message is removed: the
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
    CLOSE = "close"  # we coordinate, and begin to collect votes
    PREPARE = "prepare"  # we take part, and promise to commit
    COMMIT = "commit"  # of our own accord, or as its coordinator
    OUTCOME_COMMIT = "commit as the coordinator decided"
    ABORT = "abort"


_S, _E = TransactionState, TransactionEvent
# Event -> state -> the state that follows. What is not listed is refused and changes nothing.
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
    """`identifier` is the XACTUOW; `number` names the transaction in the store and in message properties. `superior` is
    what the transaction manager notes of a distributed one when it is prepared. `unacknowledged` counts the messages
    that a client is receiving in it by MS-MQRR, and has not said yet whether it has."""

    identifier: bytes
    number: int
    operations: list[Enqueued | Dequeued | Moved] = field(default_factory=list)
    last_send: Enqueued | None = None  # held back from the store until it is known whether it is the last one
    wrote_pending: bool = False
    superior: bytes = b""
    unacknowledged: int = 0
    state: TransactionState = TransactionState.ACTIVE
    owner: Any = None  # the protocol's own object for it; None for a distributed one

    @property
    def is_open(self) -> bool:
        """Whether it takes more work."""
        return self.state is TransactionState.ACTIVE

    @property
    def is_prepared(self) -> bool:
        """Whether it survives a restart."""
        return self.state is TransactionState.PREPARED

    @property
    def has_ended(self) -> bool:
        return self.state in (TransactionState.COMMITTED, TransactionState.ABORTED)

    def check(self, event: TransactionEvent) -> TransactionState:
        """The state that follows an event. Raises TransactionSequence if the state does not allow it."""
        following = TRANSITIONS[event].get(self.state)
        if following is None:
            raise TransactionSequence(detail=f"the transaction is {self.state.value}: no {event.value} any more")
        return following

    def advance(self, event: TransactionEvent) -> None:
        """The event has happened. Raises as `check`."""
        self.state = self.check(event)


class Work(NamedTuple):
    """Removal that a prepared transaction makes: a receive, or a move to `target` or its `subqueue`."""

    queue: int
    lookup_identifier: int
    reason: int = 0
    target: int = 0
    subqueue: str = ""


def encode_note(transaction: Transaction) -> bytes:
    """Encode the state of a prepared transaction, besides its sends, which are in the store."""
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
    """Identifier, superior and work of a prepared transaction."""
    identifier, superior, work = json.loads(note)
    return bytes.fromhex(identifier), bytes.fromhex(superior), [Work(*item) for item in work]
