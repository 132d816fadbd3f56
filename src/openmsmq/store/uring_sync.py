"""`fdatasync` that the kernel does beside the event loop: io_uring(7), an fsync in each entry.

A thread would do it as well, but each of its syncs has to get the interpreter's lock twice, which costs more than what
the loop wins. The older asynchronous I/O, io_submit(2), leaves the work to the processor that asks: the sync waits
until the loop has nothing else to do, up to 4 ms. Here a worker of the kernel takes it at once on another processor.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Callable
from functools import partial
from typing import Final

Done = Callable[[OSError | None], None]

# System calls that the C library has no functions for. Newer than the common numbering, so the same on every machine.
_SETUP: Final = 425
_ENTER: Final = 426
_GETEVENTS: Final = 1  # IORING_ENTER_GETEVENTS

# linux/io_uring.h, little-endian.
_PARAMETERS: Final = struct.Struct("<10I 10I 10I")  # struct io_uring_params: counts, and offsets within both rings
_FLAGS: Final = 8
# IORING_SETUP_COOP_TASKRUN, Linux 5.19: a completion waits until the loop calls the kernel instead of interrupting it.
# Eight busy clients send a tenth more.
_COOP_TASKRUN: Final = 1 << 8
_FEATURES: Final = 5
_SINGLE_MMAP: Final = 1  # IORING_FEAT_SINGLE_MMAP, Linux 5.4
_SUBMISSION_ENTRIES, _COMPLETION_ENTRIES = 0, 1
_SUBMISSION_TAIL, _SUBMISSION_ARRAY = 11, 16
_COMPLETION_HEAD, _COMPLETION_TAIL, _COMPLETIONS = 20, 21, 25
_ENTRIES_PLACE: Final = 0x10000000  # IORING_OFF_SQES
_ENTRY: Final = struct.Struct("<BBHiQQIIQQQQ")  # struct io_uring_sqe
_RESULT: Final = struct.Struct("<QiI")  # struct io_uring_cqe
_WORD_SIZE: Final = 4
_WORD_MASK: Final = 0xFFFFFFFF
_FSYNC: Final = 3  # IORING_OP_FSYNC
_DATASYNC: Final = 1  # IORING_FSYNC_DATASYNC
_MOST: Final = 16  # files of one submission; a batch touches one or two, unless much was asked for during a slow sync


class UringSync:
    """One submission at a time. Raises OSError where the kernel has no io_uring, or forbids it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._loop = loop
        try:
            self._descriptor, places = self._set_up(_COOP_TASKRUN)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._descriptor, places = self._set_up(0)
        if not places[_FEATURES] & _SINGLE_MMAP:
            os.close(self._descriptor)
            raise OSError("this kernel's io_uring is older than Linux 5.4")
        self._submission_tail, self._completion_head = places[_SUBMISSION_TAIL], places[_COMPLETION_HEAD]
        self._completion_tail, self._completions = places[_COMPLETION_TAIL], places[_COMPLETIONS]
        entries, results = places[_SUBMISSION_ENTRIES], places[_COMPLETION_ENTRIES]
        self._entry_mask, self._result_mask = entries - 1, results - 1
        array = places[_SUBMISSION_ARRAY]
        self._ring = self._map(max(array + entries * _WORD_SIZE, self._completions + results * _RESULT.size), 0)
        self._entries = self._map(entries * _ENTRY.size, _ENTRIES_PLACE)
        # Heads and tails as whole words: struct clears a place before it writes there byte by byte, and the kernel,
        # which looks meanwhile, finds its completion ring full when it sees a head of zero.
        self._words = memoryview(self._ring).cast("I")
        for index in range(entries):  # entries are used in turn
            self._set_word(array + index * _WORD_SIZE, index)
        self._number = 0  # of the submission
        self._outstanding = 0
        self._error: OSError | None = None
        self._done: Done | None = None
        loop.add_reader(self._descriptor, self._completed)

    def submit(self, handles: list[int], done: Done) -> None:
        """Have the content of files made durable, and call `done` in the loop with None or what failed.

        Raises OSError: nothing was submitted.
        """
        assert self._done is None, "the last submission is not done"
        some, rest = handles[:_MOST], handles[_MOST:]
        self._number += 1
        tail = self._word(self._submission_tail)
        for index, handle in enumerate(some):
            place = (tail + index & self._entry_mask) * _ENTRY.size
            _ENTRY.pack_into(self._entries, place, _FSYNC, 0, 0, handle, 0, 0, 0, _DATASYNC, self._number, 0, 0, 0)
        self._set_word(self._submission_tail, tail + len(some) & _WORD_MASK)
        try:
            taken = self._call(_ENTER, self._descriptor, len(some), 0, 0, None, 0)
        except OSError:
            self._set_word(self._submission_tail, tail)
            raise
        if taken < len(some):  # the kernel may take fewer than it is given
            self._set_word(self._submission_tail, tail + taken & _WORD_MASK)
            rest = some[taken:] + rest
        self._outstanding = taken
        self._done = partial(self._go_on, rest, done) if rest else done

    def close(self) -> None:
        """Wait for what is under way, and give everything back; `done` is not called any more."""
        self._loop.remove_reader(self._descriptor)
        self._call(_ENTER, self._descriptor, 0, self._outstanding, _GETEVENTS, None, 0)
        self._words.release()
        self._ring.close()
        self._entries.close()
        os.close(self._descriptor)

    def _set_up(self, flags: int) -> tuple[int, tuple[int, ...]]:
        """The ring's descriptor, and its parameters."""
        parameters = ctypes.create_string_buffer(_PARAMETERS.size)
        struct.pack_into("<I", parameters, _FLAGS, flags)
        return self._call(_SETUP, ctypes.c_uint(_MOST), parameters), _PARAMETERS.unpack(parameters.raw)

    def _go_on(self, rest: list[int], done: Done, error: OSError | None) -> None:
        if error is None:
            try:
                self.submit(rest, done)
                return
            except OSError as failure:
                error = failure
        done(error)

    def _completed(self) -> None:
        head, tail = self._word(self._completion_head), self._word(self._completion_tail)
        while head != tail:
            place = self._completions + (head & self._result_mask) * _RESULT.size
            number, result, _ = _RESULT.unpack_from(self._ring, place)
            if number != self._number:  # a processor that reorders may show the tail first: the next turn sees it all
                break
            if result < 0:
                self._error = OSError(-result, os.strerror(-result))
            self._outstanding -= 1
            head = head + 1 & _WORD_MASK
        self._set_word(self._completion_head, head)
        if not self._outstanding and self._done is not None:
            done, error = self._done, self._error
            self._done = self._error = None
            done(error)

    def _word(self, place: int) -> int:
        return self._words[place // _WORD_SIZE]

    def _set_word(self, place: int, value: int) -> None:
        self._words[place // _WORD_SIZE] = value

    def _map(self, size: int, place: int) -> mmap.mmap:
        return mmap.mmap(self._descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=place)

    def _call(self, number: int, *arguments: object) -> int:
        result = int(self._syscall(ctypes.c_long(number), *arguments))
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result
