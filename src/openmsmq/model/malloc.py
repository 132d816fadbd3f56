"""Settings of the C library's memory allocator."""

from __future__ import annotations

import ctypes
import logging
from typing import Final

logger = logging.getLogger(__name__)

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)
_LARGEST_MMAP_THRESHOLD: Final = 32 << 20  # maximum of glibc


def set_thresholds(kept: int, large: int) -> None:
    """Keep up to `kept` bytes of free memory at the end of a heap, and return blocks of at least `large` bytes to the
    system immediately when they are freed. For glibc only, which otherwise adapts both thresholds to the freed
    blocks."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        logger.debug("this C library has no mallopt")
        return
    mallopt(_TRIM_THRESHOLD, kept)
    mallopt(_MMAP_THRESHOLD, min(large, _LARGEST_MMAP_THRESHOLD))
