"""Release memory that recovery and large requests leave to the garbage collector and the C library."""

from __future__ import annotations

import ctypes
import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from openmsmq.model.malloc import set_thresholds

LARGE: Final = 2 << 20  # bytes; peers that never finish what they have begun must not leave holes in the heap
WORTH_KEEPING: Final = 10 << 20  # bytes at the end of a heap, so that requests need not ask the system for each buffer

logger = logging.getLogger(__name__)


@contextmanager
def no_collector() -> Iterator[None]:
    """Recovery makes many objects that stay: the collector of cycles would walk over them again and again, which takes
    half the time of a restart with thirty thousand queues."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def trim_heap() -> None:
    """Return free memory to the system with glibc's own call. After recovery, 25% of the heap is free but kept by the C
    library.

    What it leaves in use stays, so the collector of cycles need not walk over a million messages again and again. It
    looks less often, too: calls make many objects and hardly any cycles.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    trim()


def set_malloc_thresholds() -> None:
    """From now on the C library (glibc only) returns large blocks as soon as they are free.

    By itself it learns from the first ones that are freed to keep later ones, up to 64 MiB in each heap: a checkpoint
    of a million messages left 50 bytes a message behind.
    """
    set_thresholds(WORTH_KEEPING, LARGE)


def trim() -> None:
    """Ask the C library to give free memory back to the system."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        logger.debug("this C library has no malloc_trim")
