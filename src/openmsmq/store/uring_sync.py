"""`fdatasync` by the kernel, off the event loop: io_uring(7), one fsync per entry.

A thread could do this, too, but each of its syncs must acquire the interpreter lock twice, which costs more than it
gains. The older asynchronous I/O, io_submit(2), does the work on the submitting processor: the sync waits until the
loop is idle, up to 4 ms. With io_uring, a kernel worker starts immediately on another processor.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from openmsmq.store.ring import Ring

Done = Callable[[OSError | None], None]

_MOST: Final = 16  # files per submission; a batch usually has one or two, but more after a slow sync


class UringSync:
    """Syncs files off the event loop, one submission at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises OSError if the kernel does not support or allow io_uring, or if `ring.c` is not compiled."""
        self._loop = loop
        self._ring = _make_ring()
        self._error: OSError | None = None
        self._done: Done | None = None
        loop.add_reader(self._ring.descriptor, self._completed)

    def submit(self, handles: list[int], done: Done) -> None:
        """Sync files, and then call `done` in the loop with None or the error.

        Raises OSError if nothing was submitted.
        """
        assert self._done is None, "the last submission is not done"
        taken = self._ring.submit(handles[:_MOST])  # the kernel may accept fewer entries
        if not taken:  # there would be no completion
            raise OSError(errno.EIO, "io_uring_enter took no entry and reported no error")
        rest = handles[taken:]
        self._done = partial(self._go_on, rest, done) if rest else done

    def close(self) -> None:
        """Wait for the submission in progress and release all resources; `done` is not called any more."""
        self._loop.remove_reader(self._ring.descriptor)
        self._ring.wait()
        self._ring.close()

    def _go_on(self, rest: list[int], done: Done, error: OSError | None) -> None:
        if error is None:
            try:
                self.submit(rest, done)
                return
            except OSError as failure:
                error = failure
        done(error)

    def _completed(self) -> None:
        under_way, code = self._ring.completed()
        if code:
            self._error = OSError(code, os.strerror(code))
        if not under_way and self._done is not None:
            done, error = self._done, self._error
            self._done = self._error = None
            done(error)


def _make_ring() -> Ring:
    try:
        from openmsmq.store.ring import Ring
    except ImportError as error:  # not built here: see openmsmq.compiled
        raise OSError("the module that uses it, openmsmq.store.ring, is not compiled here") from error
    try:
        # Completions are processed when the loop enters the kernel, and do not interrupt it. Eight busy clients send
        # 10% more.
        return Ring(_MOST, True)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return Ring(_MOST, False)  # before Linux 5.19
