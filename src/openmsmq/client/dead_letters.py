"""Move messages from the position of a cursor to another queue: dead letters to their destination, others to any
queue."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Final

from openmsmq.client.sync import Cursor, MessageQueue, QueueManager
from openmsmq.model import names
from openmsmq.model.constants import INFINITE, MessageClass
from openmsmq.model.errors import HResult, MessageAlreadyReceived, MsmqError, ReceiveTimeout, UnreadableMessage
from openmsmq.model.message import Message

DEAD_LETTER_QUEUES = ("DIRECT=OS:.\\SYSTEM$;DEADLETTER", "DIRECT=OS:.\\SYSTEM$;DEADXACT")

#: How a message was moved. After a crash, a message moved in one transaction is in one of the two queues; any other
#: message may be in both. Other readers cannot take it in between, unless the server offers only MS-MQMP.
IN_ONE_TRANSACTION: Final = "in one transaction"
SENT_THEN_REMOVED: Final = "sent, then removed"
REMOVED: Final = "removed"
COPIED: Final = "copied"

_AHEAD: Final = 64  # messages that `SentLimits` reads ahead, in search of one that may be gone


def walk(
    queue: MessageQueue, on_unreadable: Callable[[UnreadableMessage], None] | None = None
) -> Generator[tuple[Cursor, Message], None, None]:
    """Yield each message with a cursor at its position, which can receive it. Unreadable messages are skipped and
    reported if there is a callback for them; otherwise the first one raises UnreadableMessage."""
    with queue.cursor() as cursor:
        look: Callable[[float | None], Message] = cursor.peek
        while True:
            try:
                message = look(0)
            except ReceiveTimeout:
                return
            except UnreadableMessage as error:
                if on_unreadable is None:
                    raise
                on_unreadable(error)
                look = cursor.peek_next
                continue
            yield cursor, message
            # If the current message was received, `peek` returns the next one; otherwise the cursor must be advanced.
            look = _next_of(cursor)


def _next_of(cursor: Cursor) -> Callable[[float | None], Message]:
    def look(timeout: float | None) -> Message:
        try:
            return cursor.peek_next(timeout)
        except MsmqError as error:
            if error.hresult != HResult.MQ_ERROR_ILLEGAL_CURSOR_ACTION:
                raise
        return cursor.peek(timeout)

    return look


class SentLimits:
    """The time limits with which the messages of a queue were sent, for copies of them. A context manager.

    A receive of MS-MQMP tells the seconds that are left ([MS-MQMP] 2.2.3.2): too few to reach another machine, or 0 in
    a dead letter, which a sender means as no limit (D-10). So these messages are read through MS-MQRR, too, if the
    server has it.
    """

    def __init__(self, qm: QueueManager, queue: str, protocol: str) -> None:
        """`protocol`: by which the queue is read."""
        self._qm, self._queue, self._protocol = qm, queue, protocol
        self._ahead: Iterator[Message] | None = None
        self._seen: dict[str, Message] = {}  # with limits and not yet passed, by identifier, in queue order
        self._opened = ExitStack()

    def __enter__(self) -> SentLimits:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def restore(self, message: Message, lookup: int = 0) -> None:
        """Give a message its limits. It is found by its lookup identifier; without one, messages must come in queue
        order. One that is not found keeps what is left of its limits, but at least a second to be received."""
        if self._protocol != "qmcomm" or not _is_limited(message):
            return
        sent = self._at(lookup) if lookup else self._in_order(message)
        if sent is None:
            sent = replace(
                message,
                time_to_reach_queue=message.time_to_reach_queue or INFINITE,
                time_to_be_received=message.time_to_be_received or 1,
            )
        message.time_to_reach_queue, message.time_to_be_received = sent.time_to_reach_queue, sent.time_to_be_received

    def _at(self, lookup: int) -> Message | None:
        if self._other is not None:
            with suppress(MsmqError):  # another reader has it
                return self._other.peek_by_lookup_id(lookup)
        return None

    def _in_order(self, wanted: Message) -> Message | None:
        if self._ahead is None:
            self._ahead = self._read()
        while self._seen and self._first.arrival_time < wanted.arrival_time:  # other readers have taken them
            del self._seen[self._first.id]
        while wanted.id not in self._seen and len(self._seen) < _AHEAD:
            message = next(self._ahead, None)
            if message is None:
                break
            self._seen[message.id] = message
        if wanted.id not in self._seen:  # another reader has it, or it has arrived since
            return None
        while self._first.id != wanted.id:
            del self._seen[self._first.id]
        return self._seen.pop(wanted.id)

    @property
    def _first(self) -> Message:
        return next(iter(self._seen.values()))

    def _read(self) -> Iterator[Message]:
        """Yield the messages with limits, without their bodies."""
        if self._other is not None:
            with closing(walk(self._other, lambda _: None)) as messages:
                for _, message in messages:
                    if _is_limited(message):
                        yield replace(message, body=b"")

    @cached_property
    def _other(self) -> MessageQueue | None:
        """The queue through MS-MQRR; None if the server lacks it or the caller may not peek."""
        with suppress(MsmqError):
            opened = self._opened.enter_context(self._qm.open(self._queue, "peek"))
            if opened.protocol != "qmcomm":
                return opened
        return None


def _is_limited(message: Message) -> bool:
    return min(message.time_to_reach_queue, message.time_to_be_received) != INFINITE


def sendable(message: Message) -> Message:
    """Return a copy without the properties that a sender may not set: a class other than normal needs a connector type,
    which a copy lacks; a signature covers identifier and queue manager of the original."""
    return replace(message, message_class=MessageClass.NORMAL, signature=b"", multiple_destination_signature=b"")


def name_for_any(qm: QueueManager, name: str) -> str:
    """Return the name by which any message can be sent to a queue: for a private queue of this server, its private
    format name. A message whose sender wanted its body encrypted cannot be sent by a direct one ([MS-MQMP] 3.1.5.2)."""
    with suppress(MsmqError):  # a queue of another machine, or not a private one: opening it, or sending, tells more
        parsed = names.parse_format_name(name) if "=" in name else names.parse_path_name(name)
        if isinstance(parsed, names.DirectFormatName):
            parsed = parsed.path_name()
        if isinstance(parsed, names.PathName):
            return qm.format_name(str(parsed))
    return name


def open_target(qm: QueueManager, name: str, message: Message) -> MessageQueue:
    """Open a queue to send a message to it; see `name_for_any`."""
    return qm.open(name_for_any(qm, name) if message.privacy_level else name, "send")


def is_journal(queue: str) -> bool:
    """Whether a name is of a journal, whose messages cannot be received in transactions."""
    return queue.lower().endswith(";journal")


class Forwarding:
    """Sends messages through one queue manager, with an open handle per destination. A context manager."""

    def __init__(self, qm: QueueManager) -> None:
        self._qm = qm
        self._targets: dict[tuple[str, bool], MessageQueue] = {}
        self._opened = ExitStack()

    def __enter__(self) -> Forwarding:
        return self

    def __exit__(self, *_: object) -> None:
        self._targets.clear()
        self._opened.close()

    def send_back(self, cursor: Cursor, message: Message, *, in_transaction: bool = False) -> str:
        """Send the dead letter at the cursor to its destination queue and remove it. Return the method.

        A transactional message is moved in one transaction. Other messages, and those of journals, are sent first,
        `in_transaction` if requested, and then removed. Raises MsmqError: the message is then still in its queue, or it
        was sent and another reader has removed it meanwhile.
        """
        name = message.destination_queue_format_name
        both = message.is_transactional and not is_journal(cursor.queue_name)
        goes_in = in_transaction or message.is_transactional
        return self.forward(cursor, message, name, both=both, in_transaction=goes_in)

    def forward(self, cursor: Cursor, message: Message, to: str, *, both: bool, in_transaction: bool = False) -> str:
        """Send `message`, which may differ from the one at the cursor, and remove the one at the cursor. `both`: source
        and target queue are transactional. Return the method."""
        copy, target = sendable(message), self._target(to, message)
        if both:
            with self._qm.transaction() as transaction:
                cursor.receive(0, transaction=transaction)
                target.send(copy, transaction=transaction)
            return IN_ONE_TRANSACTION
        with self._taking(cursor, message):
            self._send(target, copy, in_transaction)
        return SENT_THEN_REMOVED

    @contextmanager
    def _taking(self, cursor: Cursor, message: Message) -> Iterator[None]:
        """Remove the message at the cursor after the block. Before it, lock the message if the protocol can: otherwise,
        two programs that move the same message would both send it."""
        if cursor.can_lock:
            with cursor.receive_lock(0):
                yield
        elif message.is_transactional and not is_journal(cursor.queue_name):
            with self._qm.transaction() as transaction:
                cursor.receive(0, transaction=transaction)
                yield
        else:
            yield
            try:
                cursor.receive(0)
            except MessageAlreadyReceived as error:
                raise MsmqError(error.hresult, "it was sent, but another reader had it: it may exist twice") from error

    def copy(self, message: Message, to: str, *, in_transaction: bool = False) -> str:
        """Send a copy; the message stays in its queue."""
        self._send(self._target(to, message), sendable(message), in_transaction)
        return COPIED

    def _send(self, target: MessageQueue, message: Message, in_transaction: bool) -> None:
        if in_transaction:
            with self._qm.transaction() as transaction:
                target.send(message, transaction=transaction)
        else:
            target.send(message)

    def _target(self, name: str, message: Message) -> MessageQueue:
        key = name, bool(message.privacy_level)
        if key not in self._targets:
            self._targets[key] = self._opened.enter_context(open_target(self._qm, name, message))
        return self._targets[key]
