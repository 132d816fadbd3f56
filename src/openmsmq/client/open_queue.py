"""An open queue through any protocol: common operations, and those that some protocols lack."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, NamedTuple, get_args

from openmsmq.client.calls import Steps, on_failure, quietly
from openmsmq.conversion.queue_format import to_queue_format
from openmsmq.interfaces.ms_mqmq import QUEUE_FORMAT
from openmsmq.model import names
from openmsmq.model.constants import INFINITE, Access, MessageSeekAction, ReceiveAction
from openmsmq.model.errors import (
    AccessDenied,
    HResult,
    InvalidHandle,
    MessageAlreadyReceived,
    MessageNotFound,
    MsmqError,
    ReceiveTimeout,
    SharingViolation,
    TransactionUsage,
)
from openmsmq.model.message import NULL_IDENTIFIER, Message, identifier_from_text
from openmsmq.model.queue_names import path_of

Clock = Callable[[], float]  # seconds, from any start

ProtocolWord = Literal["auto", "remoteread", "qm2qm", "qmcomm"]
AccessWord = Literal["receive", "send", "peek"]
DirectionWord = Literal["current", "next", "previous"]
PROTOCOLS: tuple[ProtocolWord, ...] = get_args(ProtocolWord)
_SEEK = {
    "current": MessageSeekAction.CURRENT,
    "next": MessageSeekAction.NEXT,
    "previous": MessageSeekAction.PREVIOUS,
}
_ACCESS = {"receive": Access.RECEIVE, "send": Access.SEND, "peek": Access.PEEK}
_WORDS = {access: word for word, access in _ACCESS.items()}
# A message that another reader puts back, or one of higher priority, appears behind the cursor. A search therefore
# restarts if nothing has arrived for 1 s, or for four times the duration of a pass through the queue.
_PATIENCE, _PATIENCE_FACTOR = 1000, 4


class TakenMessage(NamedTuple):
    """A received message. With a `request`, it is locked until the request is ended."""

    message: Message
    request: int | None = None


@dataclass(slots=True)
class OpenQueue(ABC):
    """An open queue. `name` is the name with which it was opened; `exclusive`: other readers are denied."""

    protocol: ClassVar[str]
    two_phases: ClassVar[bool] = False

    name: str
    access: Access
    exclusive: bool

    def demand(self, access: Access, what: str) -> None:
        """Check that the queue was opened with this access. Raises AccessDenied."""
        if not self.access & access:
            raise AccessDenied(
                detail=f"{self.name} was opened with the access {_WORDS.get(self.access, self.access)!r}; {what} "
                f"requires {_WORDS[access]!r}"
            )

    @abstractmethod
    def close(self) -> Steps[None]: ...

    @abstractmethod
    def purge(self) -> Steps[None]: ...

    @abstractmethod
    def create_cursor(self) -> Steps[int]: ...

    @abstractmethod
    def close_cursor(self, cursor: int) -> Steps[None]: ...

    @abstractmethod
    def peek(self, action: ReceiveAction, timeout: int, cursor: int = 0) -> Steps[Message]:
        """Return a message without removing it. Waits at most `timeout` milliseconds."""

    @abstractmethod
    def take(self, timeout: int, cursor: int = 0) -> Steps[TakenMessage]:
        """Receive a message: the first one, or the current one of a cursor."""

    # -- operations that some protocols lack -------------------------------------------------------------------

    def send(self, message: Message, uow: bytes | None) -> Steps[bytes]:
        """Send a message. Return its identifier, 20 bytes."""
        raise self.lacks("sending", has="MS-MQMP has (protocol='qmcomm')")

    def format_name(self) -> Steps[str]:
        raise self.lacks("format names", has="MS-MQMP has (protocol='qmcomm')")

    def take_in_transaction(self, uow: bytes, timeout: int, cursor: int = 0) -> Steps[TakenMessage]:
        """Do what `take` does, in an internal transaction."""
        raise self.lacks("internal transactions", has="MS-MQMP has (protocol='qmcomm')")

    def end(self, request: int, taken: bool) -> Steps[None]:
        """Remove the locked message, or put it back."""
        raise self.lacks("two phases of a receive")

    def peek_by_lookup_identifier(self, identifier: int, seek: MessageSeekAction) -> Steps[Message]:
        raise self.lacks("lookup identifiers")

    def take_by_lookup_identifier(self, identifier: int, seek: MessageSeekAction) -> Steps[TakenMessage]:
        raise self.lacks("lookup identifiers")

    def cancel(self) -> Steps[None]:
        """Cancel all pending reads."""
        raise self.lacks("cancelling reads")

    def move(self, identifier: int, to: str, caller: bytes) -> Steps[None]:
        raise self.lacks("moving messages")

    def reject(self, identifier: int) -> Steps[None]:
        raise self.lacks("rejecting messages")

    def lacks(self, what: str, has: str = "MS-MQRR has (protocol='remoteread')") -> MsmqError:
        return MsmqError(
            HResult.MQ_ERROR_UNSUPPORTED_OPERATION,
            f"{self.name} was opened through {self.protocol}, which has no {what}; {has}",
        )

    # -- operations built on those above -----------------------------------------------------------------------

    def take_by_correlation_identifier(self, wanted: bytes, timeout: int, clock: Clock) -> Steps[TakenMessage]:
        """Receive the first message with a correlation identifier of 20 bytes. Waits at most `timeout` milliseconds.

        A cursor searches for it and receives only its current message, so no other reader receives the same message.
        Raises ReceiveTimeout.
        """
        deadline = None if timeout == INFINITE else clock() + timeout / 1000
        while True:
            cursor = yield from self.create_cursor()
            close = partial(self.close_cursor, cursor)
            found = yield from on_failure(self._look_through(cursor, wanted, deadline, clock), close)
            if found is None or found.request is None:
                yield from quietly(close())
            else:
                yield from on_failure(quietly(close()), partial(self.end, found.request, False))
            if found is not None:
                return found
            if deadline is not None and clock() >= deadline:
                raise ReceiveTimeout(detail=f"{self.name}: no message with the correlation identifier {wanted.hex()}")

    def _look_through(
        self, cursor: int, wanted: bytes, deadline: float | None, clock: Clock
    ) -> Steps[TakenMessage | None]:
        """Search the queue from its beginning, and then new messages, until the timeout."""
        started = clock()
        found = yield from self._search(cursor, wanted, 0)
        if found is not None:
            return found
        patience = max(_PATIENCE, int(_PATIENCE_FACTOR * 1000 * (clock() - started)))
        if deadline is not None:
            patience = min(patience, max(0, int(1000 * (deadline - clock()))))
        return (yield from self._search(cursor, wanted, patience))

    def _search(self, cursor: int, wanted: bytes, wait: int) -> Steps[TakenMessage | None]:
        """Advance a cursor until the message is received; return None if no message has arrived for `wait`
        milliseconds."""
        while True:
            try:
                message = yield from self._next(cursor, wait)
                if message.correlation_identifier == wanted:
                    return (yield from self.take(0, cursor))
            except ReceiveTimeout:
                return None
            except (MessageAlreadyReceived, MessageNotFound):
                continue  # another reader received it first

    def _next(self, cursor: int, wait: int) -> Steps[Message]:
        """Return the next message. PEEK_NEXT requires that the cursor has a current message ([MS-MQDMPR] 3.2.7.3)."""
        try:
            return (yield from self.peek(ReceiveAction.PEEK_NEXT, wait, cursor))
        except MsmqError as error:
            if error.hresult != HResult.MQ_ERROR_ILLEGAL_CURSOR_ACTION:
                raise
        return (yield from self.peek(ReceiveAction.PEEK_CURRENT, wait, cursor))


def to_access(access: str | Access) -> Access:
    """Convert an access mode. Raises MsmqError that lists the allowed values."""
    if isinstance(access, Access):
        return access
    if access not in _ACCESS:
        raise MsmqError(
            HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, f"access is {access!r}, allowed: {', '.join(_ACCESS)}"
        )
    return _ACCESS[access]


def queue_format(name: str) -> QUEUE_FORMAT:
    """Return the QUEUE_FORMAT for a queue name; see `format_name`. Raises MsmqError."""
    return to_queue_format(format_name(name))


def format_name(name: str) -> names.FormatName:
    """`orders` and `.\\private$\\orders` -> DIRECT=OS:.\\private$\\orders; a format name is returned unchanged."""
    name = path_of(name)
    if names.is_format_name(name):
        return names.parse_format_name(name)
    names.parse_path_name(name.partition(";")[0] if name.lower().endswith((";journal",)) else name)
    return names.parse_format_name(f"DIRECT=OS:{name}")


def candidates(protocol: str, access: Access) -> tuple[str, ...]:
    """Return the protocols to try, in order ([MS-MQRR] 3.2.4.1). Raises ValueError that lists the allowed values."""
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol is {protocol!r}, allowed: {', '.join(PROTOCOLS)}")
    if protocol != "auto":
        return (protocol,)
    return ("remoteread", "qmcomm") if access in (Access.RECEIVE, Access.PEEK) else ("qmcomm",)


def to_seek(direction: str) -> MessageSeekAction:
    """Convert a seek direction. Raises ValueError that lists the allowed values."""
    if direction not in _SEEK:
        raise ValueError(f"direction is {direction!r}, allowed: {', '.join(_SEEK)}")
    return _SEEK[direction]


def to_identifier(identifier: bytes | str) -> bytes:
    """Return the 20 bytes of a message or correlation identifier, given as bytes or text. Raises ValueError."""
    if isinstance(identifier, str):
        return identifier_from_text(identifier)
    if len(identifier) != len(NULL_IDENTIFIER):
        raise ValueError(f"an identifier has {len(NULL_IDENTIFIER)} bytes, not {len(identifier)}")
    return identifier


def closed_queue(name: str) -> MsmqError:
    """Return the error for an operation on a queue that the program has closed."""
    return InvalidHandle(detail=f"{name} was closed by this program; open it again")


def check_not_finished(finished: bool) -> None:
    """Check that a transaction has not ended. Raises TransactionUsage if the program has committed or aborted it."""
    if finished:
        raise TransactionUsage(detail="this transaction has already been committed or aborted; begin a new one")


def check_second_handle(queue: OpenQueue, what: str) -> None:
    """Check that the queue can be opened a second time through qmcomm, for the operation `what`. Raises
    SharingViolation."""
    if queue.exclusive:
        raise SharingViolation(
            detail=f"{what} of {queue.name} needs MS-MQMP, but the queue is open exclusively through {queue.protocol}; "
            "open it with protocol='qmcomm'"
        )
