"""Units of work ([MS-MQDMPR] 3.1.1.13 and 3.1.1.14)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from openmsmq.model.constants import MessageClass

if TYPE_CHECKING:
    from openmsmq.model.message import Message
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
    """`identifier` is the XACTUOW; `number` names the transaction in the store and in message properties."""

    identifier: bytes
    number: int
    operations: list[Enqueued | Dequeued | Moved] = field(default_factory=list)
    last_send: Enqueued | None = None  # held back from the store until it is known whether it is the last one
    wrote_pending: bool = False
    is_prepared: bool = False  # its outcome is for the coordinator to say
    finished: bool = False
    owner: object = None  # whatever the protocol binds it to
