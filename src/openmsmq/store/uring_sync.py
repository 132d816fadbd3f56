"""`fdatasync` by the kernel, off the event loop: io_uring(7), an fsync in each entry.

A thread would do it as well, but each of its syncs has to get the interpreter's lock twice, which costs more than what
the loop wins. The older asynchronous I/O, io_submit(2), leaves the work to the processor that asks: the sync waits
until the loop has nothing else to do, up to 4 ms. Here a worker of the kernel takes it at once on another processor.
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

_MOST: Final = 16  # files of one submission; a batch touches one or two, unless much was asked for during a slow sync


class UringSync:
    """One submission at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises OSError where the kernel has no io_uring or forbids it, or where `ring.c` is not compiled."""
        self._loop = loop
        self._ring = _make_ring()
        self._error: OSError | None = None
        self._done: Done | None = None
        loop.add_reader(self._ring.descriptor, self._completed)

    def submit(self, handles: list[int], done: Done) -> None:
        """Have the content of files made durable, and call `done` in the loop with None or what failed.

        Raises OSError: nothing was submitted.
        """
        assert self._done is None, "the last submission is not done"
        taken = self._ring.submit(handles[:_MOST])  # the kernel may take fewer than it is given
        if not taken:  # and no completion would ever come
            raise OSError(errno.EIO, "io_uring_enter took no entry and reported no error")
        rest = handles[taken:]
        self._done = partial(self._go_on, rest, done) if rest else done

    def close(self) -> None:
        """Wait for what is under way, and give everything back; `done` is not called any more."""
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
    except ImportError as error:  # see openmsmq.compiled
        raise OSError("the module that uses it, openmsmq.store.ring, is not compiled here") from error
    try:
        # A completion waits until the loop calls the kernel instead of interrupting it. Eight busy clients send a tenth
        # more.
        return Ring(_MOST, True)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return Ring(_MOST, False)  # before Linux 5.19
