"""Units of work ([MS-MQDMPR] 3.1.1.13 and 3.1.1.14)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from openmsmq.model.constants import MessageClass
from openmsmq.model.message import Message

if TYPE_CHECKING:
    from openmsmq.queueing.queue import Queue


@dataclass(slots=True)
class Enqueued:
    """A send of the transaction. `location` is None until the message is in the store."""

    queue: Queue
    message: Message
    size: int
    location: int | None = None


@dataclass(slots=True)
class Dequeued:
    """A receive of the transaction; the position is locked until its end. `reason` is what the message dies of: the
    reader may reject it (R_SetUserAcknowledgementClass)."""

    queue: Queue
    lookup_identifier: int
    reason: MessageClass = MessageClass.ACK_RECEIVE


@dataclass(slots=True)
class Moved:
    """A move of the transaction to `target`; the position is locked in `queue` until its end."""

    queue: Queue
    lookup_identifier: int
    target: Queue


@dataclass(slots=True, eq=False)
class Transaction:
    """`identifier` is the XACTUOW; `number` names the transaction in the store and in message properties.

    A distributed one is `sealed` when its end has begun: it takes no more work. When it `is_prepared`, it survives a
    restart and its outcome is for the coordinator to say, of whom `coordinator` tells whatever is needed to ask.
    """

    identifier: bytes
    number: int
    operations: list[Enqueued | Dequeued | Moved] = field(default_factory=list)
    last_send: Enqueued | None = None  # held back from the store until it is known whether it is the last one
    wrote_pending: bool = False
    coordinator: bytes = b""
    sealed: bool = False
    is_prepared: bool = False
    finished: bool = False
    owner: Any = None  # whatever the protocol binds it to; None for a distributed one

    @property
    def is_open(self) -> bool:
        """Whether it takes more work."""
        return not (self.finished or self.sealed)
