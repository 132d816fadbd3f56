"""An open queue that is opened again by name after its handle was lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from openmsmq.client.calls import (
    ClientClosed,
    HandleLost,
    ServerResource,
    Steps,
    T,
    answered,
    holding,
    opening,
    quietly,
)
from openmsmq.client.observing import Watch
from openmsmq.client.open_queue import Clock, OpenQueue, TakenMessage
from openmsmq.model.constants import INFINITE, ReceiveAction
from openmsmq.model.errors import InvalidHandle, MsmqError, QueueNotFound
from openmsmq.model.message import Message
from openmsmq.model.names import DirectFormatName, parse_format_name
from openmsmq.model.queue_names import format_name_of

_REOPENINGS = 5  # per operation, in case the operation itself crashes the server


class Locked(NamedTuple):
    """A received message. With a two-phase protocol it is `locked` until it is ended."""

    message: Message
    locked: bool
    end: Callable[[bool], Steps[None]]  # True removes it, False puts it back


class _Current(NamedTuple):
    queue: OpenQueue
    held: ServerResource


class ReopeningQueue:
    """An open queue. With `reconnect`, an operation whose handle was lost opens the queue again, at most `_REOPENINGS`
    times, and is repeated, unless it may have been executed before."""

    def __init__(self, name: str, open_queue: Callable[[], Steps[OpenQueue]], reconnect: bool) -> None:
        self._name, self._open_queue, self._reconnect = name, open_queue, reconnect
        self._current: _Current | None = None

    @property
    def queue(self) -> OpenQueue:
        """The most recent handle."""
        return self._now.queue

    @property
    def _now(self) -> _Current:
        assert self._current is not None, "open() has returned a handle that is open"
        return self._current

    def _open(self) -> Steps[_Current]:
        held = ServerResource("queue", self._name)
        return _Current((yield from opening(self._open_queue(), held)), held)

    def close(self) -> Steps[None]:
        """Close the queue. A lost handle needs no action."""
        queue, held = self._now
        if not held.lost:
            try:
                yield from holding(queue.close(), held)
            except (HandleLost, ClientClosed):
                return

    def run(self, operation: Callable[[OpenQueue], Steps[T]]) -> Steps[T]:
        """Run an operation on the open queue. Raises HandleLost."""
        return (yield from self._run(lambda current: operation(current.queue)))

    def send(self, message: Message, uow: bytes | None) -> Steps[bytes]:
        """Send a message, in a unit of work if one is given; returns its identifier. Raises HandleLost."""
        observer = Watch.observer
        if observer is None:
            return (yield from self.run(lambda queue: queue.send(message, uow)))
        sending = observer.sending(self._name, message)
        try:
            identifier = yield from self.run(lambda queue: queue.send(sending.message, uow))
        except BaseException as error:
            sending.end(error)
            raise
        sending.end(None)
        return identifier

    def take(self, operation: Callable[[OpenQueue], Steps[TakenMessage]]) -> Steps[Locked]:
        """Run an operation that receives a message. Raises HandleLost."""

        def take(current: _Current) -> Steps[Locked]:
            taken = yield from operation(current.queue)
            return _locked(current, taken)

        return (yield from self._run(take))

    def cursor(self) -> Steps[CursorHandle]:
        """Return a cursor of the current handle, which ends with that handle."""

        def create(current: _Current) -> Steps[CursorHandle]:
            return CursorHandle(
                current.queue, _part("cursor", current.held), (yield from current.queue.create_cursor())
            )

        return (yield from self._run(create))

    def _run(self, operation: Callable[[_Current], Steps[T]]) -> Steps[T]:
        for left in reversed(range(_REOPENINGS + 1)):
            current = self._now
            try:
                return (yield from holding(operation(current), current.held))
            except HandleLost as error:
                reopens = self._reconnect and left and error.what == "queue" and not error.outcome_unknown
                if not reopens:
                    raise
            yield from self._reopen(current)
        raise AssertionError("unreachable: the last round returns or raises")

    def _reopen(self, lost: _Current) -> Steps[None]:
        """Open the queue again. Several threads or tasks may detect the loss at once; only the first one does so."""
        try:
            fresh = yield from self._open()
        except MsmqError:
            if self._current is lost:
                raise
            return
        if self._current is lost:
            self._current = fresh
        else:
            yield from quietly(fresh.queue.close())

    def begin(self) -> Steps[ReopeningQueue]:
        """Open the queue for the first time; returns the handle. Raises QueueNotFound, which mentions a name of another
        machine: queues are read there, and only messages to it are accepted here."""
        try:
            self._current = yield from self._open()
        except QueueNotFound as error:
            if (host := _named_host(self._name)) is None:
                raise
            where = f"if {host} is another machine, connect to it (--host {host}): its queues are read there"
            raise QueueNotFound(detail=f"{error.detail or self._name}; {where}") from error
        return self


def _named_host(name: str) -> str | None:
    """Return the computer in a path name or direct format name; None if it is this machine or there is none."""
    try:
        parsed = parse_format_name(format_name_of(name))
    except MsmqError:
        return None
    host = parsed.host if isinstance(parsed, DirectFormatName) else ""
    return None if host.lower() in ("", ".", "localhost", "127.0.0.1", "::1") else host


def open_handle(name: str, open_queue: Callable[[], Steps[OpenQueue]], reconnect: bool) -> Steps[ReopeningQueue]:
    """Open a queue, as `open_queue` does it."""
    return ReopeningQueue(name, open_queue, reconnect).begin()


@dataclass(slots=True)
class CursorHandle:
    """A cursor of an open queue; `number` is 0 once it is closed. `seen` is the identifier of the message that the last
    peek returned; `may_be_ahead`: a call that would have moved the cursor has no answer."""

    queue: OpenQueue
    held: ServerResource
    number: int
    seen: bytes = b""
    may_be_ahead: bool = False

    def close(self) -> Steps[None]:
        number, self.number = self.number, 0
        if number and not self.held.lost:
            try:
                yield from holding(self.queue.close_cursor(number), self.held)
            except (HandleLost, ClientClosed, InvalidHandle):  # the last one after its queue was closed
                return

    def _check_open(self) -> None:
        """Without a cursor, a read would start at the first message."""
        if not self.number:
            raise InvalidHandle(detail=f"{self.queue.name}: this cursor was closed by this program")

    def peek(self, action: ReceiveAction, timeout: int) -> Steps[Message]:
        self._check_open()
        return holding(self._peek(action, timeout), self.held)

    def _peek(self, action: ReceiveAction, timeout: int) -> Steps[Message]:
        """Peek without skipping a message: one that an interrupted call has reached is the next one."""
        moves = action is ReceiveAction.PEEK_NEXT
        message = (yield from self._reached()) if moves and self.may_be_ahead else None
        if message is None:
            self.may_be_ahead = moves
            try:
                message = yield from self.queue.peek(action, timeout, self.number)
            except MsmqError as error:
                self.may_be_ahead = moves and not answered(error)
                raise
        self.may_be_ahead, self.seen = False, message.identifier
        return message

    def _reached(self) -> Steps[Message | None]:
        """Return the cursor's current message, unless it was returned before or another reader has received it."""
        try:
            message = yield from self.queue.peek(ReceiveAction.PEEK_CURRENT, 0, self.number)
        except MsmqError as error:
            if not answered(error):
                raise
            return None
        return None if message.identifier == self.seen else message

    def take(self, operation: Callable[[OpenQueue, int], Steps[TakenMessage]]) -> Steps[Locked]:
        """Run an operation that receives the cursor's current message."""
        self._check_open()
        taken = yield from holding(operation(self.queue, self.number), self.held)
        return _locked(_Current(self.queue, self.held), taken)


def _locked(current: _Current, taken: TakenMessage) -> Locked:
    queue, held = current
    if Watch.observer is not None:
        Watch.observer.received(queue.name, taken.message)
    if taken.request is None:
        return Locked(taken.message, False, _nothing_to_end)
    return Locked(taken.message, True, partial(_end, queue, _part("receive", held), taken.request))


def _end(queue: OpenQueue, held: ServerResource, request: int, remove: bool) -> Steps[None]:
    return holding(queue.end(request, remove), held)


def _nothing_to_end(remove: bool) -> Steps[None]:
    return
    yield


def _part(what: str, of: ServerResource) -> ServerResource:
    """Return the resource that is lost together with its queue."""
    return ServerResource(what, of.name, of.association)


def countdown(wait: int, clock: Clock) -> Callable[[], int]:
    """Return a function for the rest of `wait` milliseconds; the first call gets all, INFINITE stays."""
    deadline: float | None = None

    def left() -> int:
        nonlocal deadline
        if wait == INFINITE:
            return wait
        if deadline is None:
            deadline = clock() + wait / 1000
            return wait
        return max(0, int(1000 * (deadline - clock())))

    return left
