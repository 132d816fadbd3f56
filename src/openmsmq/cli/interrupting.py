"""Signals that take effect between two messages: if a command ends after it has sent a message and before it has
removed it, the message is in both queues; if it has not noted what it sent, it sends that again the next time."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

from openmsmq.cli.output import echo

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def between_messages() -> Iterator[Callable[[], None]]:
    """Yield a function to call after each message, or part of them. In the block, the first signal takes effect there:
    KeyboardInterrupt or SystemExit. A second signal takes effect at once."""
    came: list[int] = []
    former = {}
    if current_thread() is main_thread():
        former = {number: handler for number in _SIGNALS if (handler := signal.getsignal(number)) != signal.SIG_IGN}

    def restore() -> None:
        for number, handler in former.items():
            signal.signal(number, handler)

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)
        restore()

    def end() -> None:
        if came == [signal.SIGINT]:
            raise KeyboardInterrupt
        if came:
            echo("interrupted", err=True)
            raise SystemExit(128 + came[0])

    for number in former:
        signal.signal(number, note)
    try:
        yield end
    finally:
        restore()
