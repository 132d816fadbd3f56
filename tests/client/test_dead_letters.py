"""Moving messages from the position of a cursor, on queues in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from openmsmq.client.dead_letters import COPIED, IN_ONE_TRANSACTION, SENT_THEN_REMOVED, Forwarding, SentLimits, walk
from openmsmq.model.constants import INFINITE, MessageClass
from openmsmq.model.errors import (
    HResult,
    MessageAlreadyReceived,
    MsmqError,
    ReceiveTimeout,
    UnreadableMessage,
    error_for,
)
from openmsmq.model.message import NULL_IDENTIFIER, Message

TARGET = "DIRECT=OS:.\\private$\\target"
FULL = "DIRECT=OS:.\\private$\\full"


class MemoryQueue:
    """An open queue, with the rules of cursors. A damaged message is an exception. Nothing waits: no other program
    sends."""

    name = "DIRECT=OS:.\\private$\\source"
    can_lock = False
    is_full = False

    def __init__(self, log: list[Any], *messages: Message | UnreadableMessage) -> None:
        self._log = log
        self.messages: list[Message | UnreadableMessage | None] = list(messages)

    @contextmanager
    def cursor(self) -> Iterator[MemoryCursor]:
        yield MemoryCursor(self, self._log)
        self._log.append("cursor closed")

    def send(self, message: Message, *, transaction: object = None) -> None:
        if self.is_full:
            raise error_for(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES, "full")
        self._log.append(("send", message.label, transaction))
        self.messages.append(message)

    def __enter__(self) -> MemoryQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.append("closed")


class MemoryCursor:
    def __init__(self, queue: MemoryQueue, log: list[Any]) -> None:
        self._queue, self._log = queue, log
        self._at: int | None = None
        self.queue_name = queue.name
        self.can_lock = queue.can_lock

    @contextmanager
    def receive_lock(self, timeout: float | None = None) -> Iterator[None]:
        assert self.can_lock and timeout == 0 and self._at is not None
        held = self._queue.messages[self._at]
        if held is None:
            raise MessageAlreadyReceived(detail="another reader has it")
        self._log.append("lock")
        try:
            yield
        except BaseException:
            self._log.append("put back")
            raise
        self._queue.messages[self._at] = None
        self._log.append("removed")

    def _message(self, timeout: float | None) -> Message:
        assert timeout == 0, "waits forever"
        at = self._at or 0
        while at < len(self._queue.messages) and self._queue.messages[at] is None:
            at += 1
        self._at = at
        if at == len(self._queue.messages):
            raise ReceiveTimeout(detail="none")
        found = self._queue.messages[at]
        if isinstance(found, UnreadableMessage):
            raise found
        assert found is not None
        return found

    def peek(self, timeout: float | None = None) -> Message:
        return self._message(timeout)

    def peek_next(self, timeout: float | None = None) -> Message:
        if self._at is None or self._queue.messages[self._at] is None:
            raise error_for(HResult.MQ_ERROR_ILLEGAL_CURSOR_ACTION, "the current message is gone")
        self._at += 1
        return self._message(timeout)

    def receive(self, timeout: float | None = None, *, transaction: object = None) -> None:
        assert timeout == 0 and self._at is not None, "waits forever"
        found = self._queue.messages[self._at]
        if found is None:
            raise MessageAlreadyReceived(detail="another reader has it")
        self._queue.messages[self._at] = None
        self._log.append(("receive", getattr(found, "label", ""), transaction))


class MemoryManager:
    """A queue manager; transactions have numbers."""

    def __init__(self, log: list[Any]) -> None:
        self._log = log
        self.transactions = 0
        self.opened: list[str] = []

    def open(self, name: str, access: str) -> MemoryQueue:
        assert access == "send"
        self.opened.append(name)
        target = MemoryQueue(self._log)
        target.is_full = name == FULL
        return target

    @contextmanager
    def transaction(self) -> Iterator[int]:
        self.transactions += 1
        try:
            yield self.transactions
        except BaseException:
            self._log.append("abort")
            raise
        self._log.append("commit")


def carried(
    queue: MemoryQueue, manager: MemoryManager, work: Callable[[Forwarding, Any], str], *, taken: bool
) -> str | MsmqError:
    """Do something with the first message, which another reader may have `taken`. Return the result or the error."""
    forwarder: Any = manager
    with Forwarding(forwarder) as forwarding, queue.cursor() as cursor:
        cursor.peek(0)
        if taken:
            queue.messages[0] = None
        try:
            return work(forwarding, cursor)
        except MsmqError as error:
            return error


def moved(*, transactional: bool, in_transaction: bool, taken: bool = False) -> tuple[list[Any], str | MsmqError]:
    """Send a dead letter back; return what happened in order, and the method or the error."""
    log: list[Any] = []
    letter = Message(label="m", destination_queue_format_name=TARGET, message_class=MessageClass.NACK_BAD_DST_Q)
    letter.transaction_identifier = bytes(range(20)) if transactional else NULL_IDENTIFIER
    assert letter.is_transactional is transactional
    manager = MemoryManager(log)

    def send_back(forwarding: Forwarding, cursor: Any) -> str:
        return forwarding.send_back(cursor, letter, in_transaction=in_transaction)

    result = carried(MemoryQueue(log, letter), manager, send_back, taken=taken)
    assert manager.opened == [TARGET] and letter.message_class is MessageClass.NACK_BAD_DST_Q
    assert log[-2:] == ["cursor closed", "closed"]
    return log[:-2], result


def test_a_transactional_message_is_moved_in_one_transaction() -> None:
    expected = [("receive", "m", 1), ("send", "m", 1), "commit"]
    assert moved(transactional=True, in_transaction=False) == (expected, IN_ONE_TRANSACTION)
    assert moved(transactional=True, in_transaction=True) == (expected, IN_ONE_TRANSACTION)
    log, error = moved(transactional=True, in_transaction=False, taken=True)
    assert log == ["abort"] and isinstance(error, MessageAlreadyReceived)


def test_another_message_is_sent_and_then_removed_without_waiting() -> None:
    expected: list[Any] = [("send", "m", None), ("receive", "m", None)]
    assert moved(transactional=False, in_transaction=False) == (expected, SENT_THEN_REMOVED)
    expected = [("send", "m", 1), "commit", ("receive", "m", None)]
    assert moved(transactional=False, in_transaction=True) == (expected, SENT_THEN_REMOVED)
    log, error = moved(transactional=False, in_transaction=False, taken=True)
    assert log == [("send", "m", None)] and "may exist twice" in str(error)


def locked(
    to: str = TARGET, *, taken: bool = False, transactional: bool = False, name: str = "", can_lock: bool = True
) -> tuple[list[Any], str | MsmqError]:
    """Move a message through a protocol that can lock it, or not; return what happened in order, and the method or the
    error."""
    log: list[Any] = []
    message = Message(label="m", destination_queue_format_name=to)
    message.transaction_identifier = bytes(range(20)) if transactional else NULL_IDENTIFIER
    queue = MemoryQueue(log, message)
    queue.can_lock, queue.name = can_lock, name or queue.name

    def carry(forwarding: Forwarding, cursor: Any) -> str:
        if name:
            return forwarding.send_back(cursor, message)
        return forwarding.forward(cursor, message, to, both=False)

    result = carried(queue, MemoryManager(log), carry, taken=taken)
    return log[:-2], result


def test_a_message_is_locked_while_it_is_sent_so_that_two_programs_do_not_both_send_it() -> None:
    assert locked() == (["lock", ("send", "m", None), "removed"], SENT_THEN_REMOVED)
    log, error = locked(taken=True)
    assert log == [] and isinstance(error, MessageAlreadyReceived)
    log, error = locked(FULL)
    assert log == ["lock", "put back"] and isinstance(error, MsmqError)


def test_without_locks_a_transaction_holds_a_transactional_message_while_it_is_sent() -> None:
    expected = [("receive", "m", 1), ("send", "m", None), "commit"]
    assert locked(transactional=True, can_lock=False) == (expected, SENT_THEN_REMOVED)
    log, error = locked(transactional=True, can_lock=False, taken=True)
    assert log == ["abort"] and isinstance(error, MessageAlreadyReceived)


def test_a_transactional_message_of_a_journal_is_sent_in_a_transaction_and_received_without_one() -> None:
    journal = ".\\private$\\orders;JOURNAL"
    expected: list[Any] = ["lock", ("send", "m", 1), "commit", "removed"]
    assert locked(transactional=True, name=journal) == (expected, SENT_THEN_REMOVED)
    expected = [("send", "m", 1), "commit", ("receive", "m", None)]
    assert locked(transactional=True, name=journal, can_lock=False) == (expected, SENT_THEN_REMOVED)


def test_a_target_is_opened_once_and_a_copy_has_what_a_sender_may_set() -> None:
    log: list[Any] = []
    manager = MemoryManager(log)
    letter = Message(label="m", body=b"b", message_class=MessageClass.NACK_Q_PURGED, signature=b"s")
    letter.multiple_destination_signature = b"t"
    with Forwarding(manager) as forwarding:  # type: ignore[arg-type]
        for name in (TARGET, "other", TARGET):
            assert forwarding.copy(letter, name) == COPIED
        target: Any = forwarding._target(TARGET, letter)
        (copy, _) = target.messages
        assert (copy.label, copy.body, copy.message_class) == ("m", b"b", MessageClass.NORMAL)
        assert not copy.signature and not copy.multiple_destination_signature
        assert forwarding.copy(letter, "other", in_transaction=True) == COPIED
    assert manager.opened == [TARGET, "other"]
    assert log == [("send", "m", None)] * 3 + [("send", "m", 1), "commit", "closed", "closed"]


@pytest.mark.parametrize("removed", [(), ("a",), ("b", "c"), ("a", "b", "c")])
def test_a_walk_sees_each_message_once_whichever_are_removed(removed: tuple[str, ...]) -> None:
    log: list[Any] = []
    queue: Any = MemoryQueue(log, *(Message(label=label) for label in "abc"))
    seen = []
    for cursor, message in walk(queue):
        seen.append(message.label)
        if message.label in removed:
            cursor.receive(0)
    assert seen == ["a", "b", "c"] and log[-1] == "cursor closed"
    assert [each.label for each in queue.messages if each is not None] == [n for n in "abc" if n not in removed]


def test_a_walk_skips_and_reports_unreadable_messages_or_ends_at_the_first() -> None:
    damaged = UnreadableMessage("damaged", 1)
    queue: Any = MemoryQueue([], damaged, Message(label="a"), damaged, damaged, Message(label="b"))
    found: list[UnreadableMessage] = []
    assert [message.label for _, message in walk(queue, found.append)] == ["a", "b"] and found == [damaged] * 3
    with pytest.raises(UnreadableMessage):
        list(walk(queue))


def limited(number: int, reach: int = 60, received: int = 1000) -> Message:
    """A message that arrived in second `number` // 10."""
    return Message(
        identifier=bytes([number]) * 20, label=str(number), time_to_reach_queue=reach, time_to_be_received=received,
        arrival_time=number // 10,
    )  # fmt: skip


def restored(limits: SentLimits, message: Message, lookup: int = 0) -> tuple[int, int]:
    limits.restore(message, lookup)
    return message.time_to_reach_queue, message.time_to_be_received


def test_limits_as_sent_are_found_in_order_although_messages_are_gone_or_unreadable() -> None:
    messages = [limited(number) for number in range(3, 200)]
    unlimited = [limited(200, INFINITE, INFINITE)] * 100
    queue: Any = MemoryQueue([], limited(1), UnreadableMessage("damaged", 1), *messages, *unlimited, limited(201, 61))
    queue.protocol = "remoteread"
    manager: Any = Mock(open=Mock(return_value=queue))
    with SentLimits(manager, queue.name, "qmcomm") as limits:
        assert restored(limits, limited(1, 50, 900)) == (60, 1000)
        for _ in range(100):  # another reader has received them
            assert restored(limits, limited(2, 0, 0)) == (INFINITE, 1)
        for number in (*range(3, 20), *range(100, 200)):  # other readers have received more than are read ahead
            assert restored(limits, limited(number, 0, 900)) == (60, 1000)
        assert restored(limits, limited(200, INFINITE, INFINITE)) == (INFINITE, INFINITE)
        assert restored(limits, limited(201, 5, 900)) == (61, 1000)
        assert restored(limits, limited(202, 5, 900)) == (5, 900)
    manager.open.assert_called_once_with(queue.name, "peek")


def test_limits_as_sent_are_found_by_lookup_identifier() -> None:
    opened = MagicMock(protocol="remoteread")
    opened.__enter__.return_value = opened
    opened.peek_by_lookup_id.side_effect = {7: limited(1), 9: limited(2, 61)}.__getitem__
    manager: Any = Mock(open=Mock(return_value=opened))
    with SentLimits(manager, TARGET, "qmcomm") as limits:
        assert restored(limits, limited(2, 0, 0), 9) == (61, 1000)
        assert restored(limits, limited(1, 0, 0), 7) == (60, 1000)
        opened.peek_by_lookup_id.side_effect = error_for(HResult.MQ_ERROR_MESSAGE_NOT_FOUND, "gone")
        assert restored(limits, limited(3, 0, 0), 8) == (INFINITE, 1)


@pytest.mark.parametrize("protocol", ["qmcomm", "remoteread", None])
def test_without_a_second_reading_a_message_keeps_what_is_left_of_its_limits(protocol: str | None) -> None:
    """MS-MQRR tells the limits as sent; some servers lack it, and some callers may not peek."""
    manager: Any = MagicMock()
    manager.open.return_value.__enter__.return_value.protocol = protocol
    if protocol is None:
        manager.open.side_effect = error_for(HResult.MQ_ERROR_ACCESS_DENIED, "no right to peek")
    with SentLimits(manager, TARGET, "remoteread" if protocol == "remoteread" else "qmcomm") as limits:
        for lookup in (0, 7):
            expected = (0, 0) if protocol == "remoteread" else (INFINITE, 1)
            assert restored(limits, limited(1, 0, 0), lookup) == expected
