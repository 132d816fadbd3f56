"""What the C library does with memory that is freed."""

from __future__ import annotations

import ctypes
import logging

logger = logging.getLogger(__name__)

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)
_LARGEST_MMAP_THRESHOLD = 32 << 20  # glibc takes no more


def keep_memory(size: int) -> None:
    """Keep up to `size` bytes of freed memory in this process for later allocations: glibc's own call only.

    Otherwise glibc soon returns to the system what large buffers leave, and the kernel has to make new pages for the
    next ones.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        logger.debug("this C library has no mallopt")
        return
    mallopt(_TRIM_THRESHOLD, size)
    mallopt(_MMAP_THRESHOLD, min(size, _LARGEST_MMAP_THRESHOLD))
