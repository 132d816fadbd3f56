"""Whether machine code keeps what it has no use for."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable


def kept_by(work: Callable[[], object]) -> int:
    """Blocks of memory that are there after fifty times that were not there before; a few come and go by themselves."""
    work()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(50):
        work()
    gc.collect()
    return sys.getallocatedblocks() - before
