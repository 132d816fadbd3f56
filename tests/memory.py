"""Detects memory leaks of native code."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable


def kept_by(work: Callable[[], object]) -> int:
    """Return the number of memory blocks added by fifty runs; a few vary for other reasons."""
    work()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(50):
        work()
    gc.collect()
    return sys.getallocatedblocks() - before
