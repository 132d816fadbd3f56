"""Settings of the C library for freed memory."""

from __future__ import annotations

import ctypes
import logging
from typing import Final

logger = logging.getLogger(__name__)

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)
_LARGEST_MMAP_THRESHOLD: Final = 32 << 20  # glibc takes no more


def set_thresholds(kept: int, large: int) -> None:
    """From now on free memory up to `kept` bytes at the end of a heap stays with this process, and a block of `large`
    bytes or more goes back to the system as soon as it is free: glibc only. Without it, glibc learns both from the
    blocks that are freed."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        logger.debug("this C library has no mallopt")
        return
    mallopt(_TRIM_THRESHOLD, kept)
    mallopt(_MMAP_THRESHOLD, min(large, _LARGEST_MMAP_THRESHOLD))
