"""Release memory that recovery and large requests leave to the garbage collector and the C library."""

from __future__ import annotations

import ctypes
import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from openmsmq.model.malloc import set_thresholds

LARGE: Final = 2 << 20  # bytes; incomplete requests of peers must not leave holes in the heap
WORTH_KEEPING: Final = 10 << 20  # bytes at the end of a heap, so that not every buffer needs a system call

logger = logging.getLogger(__name__)


@contextmanager
def no_collector() -> Iterator[None]:
    """Suspend the garbage collector during recovery. Recovery creates many long-lived objects, and the collector would
    examine them repeatedly: half the time of a restart with thirty thousand queues."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def trim_heap() -> None:
    """Return free memory to the system with a function of glibc. After recovery, 25% of the heap is free but kept by
    the C library.

    Objects that exist now are excluded from garbage collection, which would otherwise examine a million messages
    repeatedly. It also runs less often, because calls create many objects and hardly any cycles.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    trim()


def set_malloc_thresholds() -> None:
    """Make the C library (glibc only) return large blocks to the system as soon as they are free.

    By default it adapts its threshold to freed blocks and keeps up to 64 MiB in each heap: a checkpoint of a million
    messages left 50 bytes per message behind.
    """
    set_thresholds(WORTH_KEEPING, LARGE)


def trim() -> None:
    """Make the C library return free memory to the system."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        logger.debug("this C library has no malloc_trim")
