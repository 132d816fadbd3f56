"""`fdatasync` that the kernel does beside the event loop: asynchronous I/O of Linux, io_submit(2) and eventfd(2).

A thread would do it as well, but each of its syncs has to get the interpreter's lock twice, which costs more than what
the loop wins. Here a sync costs the loop two system calls of a microsecond or two.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import struct
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

Done = Callable[[OSError | None], None]


class _Calls(NamedTuple):
    """Numbers of the system calls, which the C library has no functions for."""

    setup: int
    destroy: int
    getevents: int
    submit: int


_CALLS: Final = {"x86_64": _Calls(206, 207, 208, 209), "aarch64": _Calls(0, 1, 4, 2)}

# struct iocb and struct io_event of linux/aio_abi.h, little-endian.
_IOCB: Final = struct.Struct("<QIIHhIQQqQII")
_EVENT: Final = struct.Struct("<QQqq")
_FDSYNC: Final = 3  # IOCB_CMD_FDSYNC
_NOTIFY: Final = 1  # IOCB_FLAG_RESFD
_MOST: Final = 16  # files of one submission; a batch touches one or two, unless much was asked for during a slow sync


class KernelSync:
    """One submission at a time. Raises OSError where the kernel has no asynchronous I/O, or forbids it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        calls = _CALLS.get(platform.machine())
        if calls is None:
            raise OSError(f"numbers of system calls are not known for {platform.machine()}")
        self._calls = calls
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._loop = loop
        self._context = ctypes.c_ulong(0)
        self._call(calls.setup, ctypes.c_uint(_MOST), ctypes.byref(self._context))
        self._notifier = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._blocks = ctypes.create_string_buffer(_IOCB.size * _MOST)
        first = ctypes.addressof(self._blocks)
        self._pointers = (ctypes.c_void_p * _MOST)(*(first + _IOCB.size * index for index in range(_MOST)))
        self._events = ctypes.create_string_buffer(_EVENT.size * _MOST)
        self._outstanding = 0
        self._error: OSError | None = None
        self._done: Done | None = None
        loop.add_reader(self._notifier, self._completed)

    def submit(self, handles: list[int], done: Done) -> None:
        """Have the content of files made durable, and call `done` in the loop with None or what failed.

        Raises OSError: nothing was submitted.
        """
        assert self._done is None, "the last submission is not done"
        first, rest = handles[:_MOST], handles[_MOST:]
        for index, handle in enumerate(first):
            _IOCB.pack_into(
                self._blocks, _IOCB.size * index, 0, 0, 0, _FDSYNC, 0, handle, 0, 0, 0, 0, _NOTIFY, self._notifier
            )
        taken = self._call(self._calls.submit, self._context, ctypes.c_long(len(first)), self._pointers)
        rest = first[taken:] + rest  # the kernel may take fewer than it is given
        self._outstanding = taken
        self._done = partial(self._go_on, rest, done) if rest else done

    def close(self) -> None:
        """Wait for what is under way, and give everything back; `done` is not called any more."""
        self._loop.remove_reader(self._notifier)
        self._call(self._calls.destroy, self._context)
        os.close(self._notifier)

    def _go_on(self, rest: list[int], done: Done, error: OSError | None) -> None:
        if error is None:
            try:
                self.submit(rest, done)
                return
            except OSError as failure:
                error = failure
        done(error)

    def _completed(self) -> None:
        try:
            os.eventfd_read(self._notifier)
        except BlockingIOError:
            return
        count = self._call(
            self._calls.getevents, self._context, ctypes.c_long(0), ctypes.c_long(_MOST), self._events, None
        )
        for index in range(count):
            result = _EVENT.unpack_from(self._events, _EVENT.size * index)[2]
            if result < 0:
                self._error = OSError(-result, os.strerror(-result))
        self._outstanding -= count
        if not self._outstanding and self._done is not None:
            done, error = self._done, self._error
            self._done = self._error = None
            done(error)

    def _call(self, number: int, *arguments: object) -> int:
        result = int(self._syscall(ctypes.c_long(number), *arguments))
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result
