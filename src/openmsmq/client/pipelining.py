"""Concurrent operations on one connection, started in order: their number, and their failures.

The server processes them in batches. `Pool.run_all` and `Runner.run_all` do the I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic

from openmsmq.client.calls import UNANSWERED, Steps, T
from openmsmq.model.errors import MsmqError

WINDOW: Final = 64  # default number of concurrent operations
_READS: Final = 16  # concurrent reads: more are hardly faster, and other connections wait longer
_MOST_BYTES: Final = 1 << 20  # maximum bytes of all concurrent operations; a larger operation runs alone


class MessagesNotSent(MsmqError):
    """Some messages of a `send_many` were not sent; `hresult` is that of the first error.

    Attributes:
        errors: the error of each message that failed, by its position from 0 on. After the first one, no further
            messages were sent.
        sent: the identifier of each message, by its position; None for one that failed. Messages that were not tried
            are not in it.
    """

    def __init__(self, errors: dict[int, MsmqError], sent: list[str | None]) -> None:
        self.errors, self.sent = errors, sent
        index, first = next(iter(sorted(errors.items())))
        done = sum(identifier is not None for identifier in sent)
        super().__init__(first.hresult, f"message {index} failed, {done} were sent, no others were begun: {first}")


@dataclass(slots=True)
class Pipeline(Generic[T]):
    """The operations of one `run_all`. `work` yields each with its size in bytes, and is advanced only when the next
    operation may start. As a generator, it has ended once it has raised an exception."""

    work: Generator[tuple[Steps[T], int], None, None]
    most: int
    results: list[T | None] = field(default_factory=list)
    errors: dict[int, MsmqError] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)
    _next: tuple[Steps[T], int] | None = None
    _failure: BaseException | None = None  # exception raised by `work` itself

    @property
    def under_way(self) -> int:
        return len(self._sizes)

    def begin(self) -> tuple[int, Steps[T]] | None:
        """Return the next operation with its position; None if none may start now."""
        if self.errors or len(self._sizes) >= self.most:
            return None
        if self._next is None:
            try:
                self._next = next(self.work, None)
            except Exception as error:  # raised by the iterator of the program; running operations end first
                self._failure = error
        if self._next is None:
            return None
        steps, size = self._next
        if self._sizes and sum(self._sizes.values()) + size > _MOST_BYTES:
            return None
        self._next = None
        index = len(self.results)
        self.results.append(None)
        self._sizes[index] = size
        return index, steps

    def done(self, index: int, result: T) -> None:
        del self._sizes[index]
        self.results[index] = result

    def failed(self, index: int, error: MsmqError) -> None:
        del self._sizes[index]
        self.errors[index] = error

    def answers(self) -> list[T]:
        """Return the results of a pipeline of reads. Raises the error that ended it."""
        for error in self.errors.values():
            raise error
        if self._failure is not None:
            raise self._failure
        return [each for each in self.results if each is not None]

    def outcome(self, text: Callable[[T], str]) -> list[str]:
        """Return the results as text. Raises MessagesNotSent, or the exception of the iterator of the program."""
        shown = [None if result is None else text(result) for result in self.results]
        if self.errors:
            raise MessagesNotSent(self.errors, shown)
        if self._failure is not None:
            raise self._failure
        return [each for each in shown if each is not None]


def pipeline(work: Generator[tuple[Steps[T], int], None, None], window: int) -> Pipeline[T]:
    """Return the pipeline for a window. Raises ValueError for a window below 1."""
    if window < 1:
        raise ValueError(f"window is {window}, allowed: 1 or more")
    return Pipeline(work, window)


def pipeline_of_reads(reads: Iterable[Steps[T]]) -> Pipeline[T | Exception]:
    """Return a pipeline whose operations are independent reads: the error of a read is its result, and the other reads
    are done. Errors of the connection end the pipeline."""
    return Pipeline(((_read(steps), 0) for steps in reads), _READS)


def _read(steps: Steps[T]) -> Steps[T | Exception]:
    try:
        return (yield from steps)
    except UNANSWERED:
        raise
    except Exception as error:
        return error
