"""Open queue descriptors, cursors and waiting reads ([MS-MQDMPR] 3.1.1.10, 3.1.1.16, 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from openmsmq.model.constants import Access, Share
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message
from openmsmq.model.names import FormatName
from openmsmq.queueing.auditing import Actor
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.unit_of_work import Transaction

_DESTRUCTIVE: Final = (Access.RECEIVE, Access.RECEIVE_ADMIN)  # Enum member lookup is slow
START = 0  # below every lookup identifier: the position of a cursor that has not been used

# Called with a message before it is taken; builds the whole answer. Returns MQ_OK to accept the message or the failure
# to report (such as a buffer that is too small). Raises ValueError for a message that the reader's protocol cannot
# represent.
Accept = Callable[[Message], int]
# Called with the outcome of a read: MQ_OK and the message that `Accept` accepted, or a failure and None.
Reply = Callable[[int, Message | None], None]


class RemoteReadState(Enum):
    """Whether a queue was opened for a reader on another machine ([MS-MQDMPR] 3.1.1.16)."""

    NONE = "None"
    OPENED = "Opened"  # only the client knows the handle
    READY_FOR_READ = "ReadyForRead"  # the queue manager that reads for it knows it, too


@dataclass(slots=True, eq=False)
class OpenQueueDescriptor:
    """An opened queue. `queue` becomes None when the queue is deleted; `parts` holds the elements of a
    multiple-element format name. `owner` is the protocol's object for it. `held` contains the positions locked by its
    two-phase reads, `waiting` its waiting reads."""

    handle: int
    format_name: FormatName
    access: Access
    share: Share
    queue: Queue | None
    owner: Any = None
    parts: list[OpenQueueDescriptor] = field(default_factory=list)
    cursors: dict[int, QueueCursor] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    waiting: dict[int, WaitingMessageReadOperation] = field(default_factory=dict)
    remote_read_state: RemoteReadState = RemoteReadState.NONE
    opener: Actor | None = None  # for the audit log
    opened: int = 0  # in milliseconds since 1970 UTC
    taken: int = 0  # number of messages that its receives returned
    name: str = ""  # the text of `format_name`, a field of every message sent here
    form: Any = None  # protocol data cached for messages sent with it

    def __post_init__(self) -> None:
        self.name = str(self.format_name)

    @property
    def destructive(self) -> bool:
        return self.access in _DESTRUCTIVE


# Called with 1 when an object is created for a client, and with -1 when it is deleted; raises if the client has too
# many.
Charge = Callable[[int], None]


class CursorState(Enum):
    UNREAD = "Unread"
    READ = "Read"
    WAIT_RECEIVE = "WaitReceive"
    WAIT_PEEK = "WaitPeek"


@dataclass(slots=True, eq=False)
class QueueCursor:
    """Cursor, [MS-MQDMPR] 3.2. `position` is the lookup identifier of its last message, or START.

    Deviation D-03 from 3.2.7.6: a wait that expires restores the previous position and state of the cursor. As written,
    an expired receive would set it to End, where it never finds a message again, and an expired peek would leave it in
    WaitPeek, for which no rule exists.
    """

    handle: int
    descriptor: OpenQueueDescriptor
    position: int = START
    state: CursorState = CursorState.UNREAD
    before_wait: CursorState = CursorState.UNREAD
    charge: Charge | None = None

    def for_peek(self, queue: Queue) -> tuple[int, int | None]:
        """Get Message For Peek, 3.2.7.2. Returns (status, position); MQ_OK with None means: wait."""
        if self.state is CursorState.READ:
            if self.position in queue.entries and queue.may_be_peeked(self.position):
                return HResult.MQ_OK, self.position
            return HResult.MQ_ERROR_MESSAGE_ALREADY_RECEIVED, None
        return HResult.MQ_OK, queue.visible_after(self.position)

    def for_peek_next(self, queue: Queue) -> tuple[int, int | None]:
        """Get Next Message For Peek, 3.2.7.3. Returns as `for_peek`."""
        if self.state is not CursorState.READ:
            return HResult.MQ_ERROR_ILLEGAL_CURSOR_ACTION, None
        return HResult.MQ_OK, queue.visible_after(self.position)

    def for_dequeue(self, queue: Queue) -> tuple[int, int | None]:
        """Get Next Message For Dequeue, 3.2.7.4. Returns as `for_peek`."""
        if self.state is CursorState.READ:
            if self.position in queue.entries and self.position not in queue.locked:
                return HResult.MQ_OK, self.position
            return HResult.MQ_ERROR_MESSAGE_ALREADY_RECEIVED, None
        return HResult.MQ_OK, queue.after(self.position)

    def peeked(self, position: int) -> None:
        self.position, self.state = position, CursorState.READ

    def dequeued(self, position: int) -> None:
        self.position, self.state = position, CursorState.UNREAD

    def wait(self, destructive: bool) -> None:
        if self.state not in (
            CursorState.WAIT_RECEIVE,
            CursorState.WAIT_PEEK,
        ):  # several reads may wait with one cursor
            self.before_wait = self.state
        self.state = CursorState.WAIT_RECEIVE if destructive else CursorState.WAIT_PEEK

    def wait_ended(self) -> None:
        if self.state in (CursorState.WAIT_RECEIVE, CursorState.WAIT_PEEK):
            self.state = self.before_wait


class WaitingMessageReadOperation:
    """A read that waits for a message, [MS-MQDMPR] 3.1.1.10. With `leaves_visible`, a message that it receives in a
    transaction may be peeked at until the transaction ends."""

    def __init__(
        self, number: int, descriptor: OpenQueueDescriptor, destructive: bool, accept: Accept, reply: Reply,
        cursor: QueueCursor | None = None, transaction: Transaction | None = None, two_phase: bool = False,
        leaves_visible: bool = False,
    ) -> None:  # fmt: skip
        self.number: Final = number
        self.descriptor: Final = descriptor
        self.destructive: Final = destructive
        self.accept: Final = accept
        self.reply: Final = reply
        self.cursor: Final = cursor
        self.transaction: Final = transaction
        self.two_phase: Final = two_phase
        self.leaves_visible: Final = leaves_visible
