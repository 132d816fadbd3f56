"""Settings of the C library's allocator, tested in separate processes because they cannot be undone."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

_PROGRAM = """
import os
from pathlib import Path
from openmsmq.server.memory import set_malloc_thresholds

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

if {arranged}:
    set_malloc_thresholds()
largest = bytearray(30 << 20)
del largest  # glibc learns its size
before = resident()
block, behind = bytearray(20 << 20), bytes(1 << 10)
del block
print(resident() - before)
"""


def _left_behind(*, arranged: bool) -> int:
    """Return the bytes that the C library keeps of a freed block of 20 MiB."""
    command = [sys.executable, "-c", _PROGRAM.format(arranged=arranged)]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no mallopt")
def test_large_free_blocks_are_returned_to_the_system() -> None:
    assert _left_behind(arranged=False) > 19 << 20, "there is nothing to arrange"
    assert _left_behind(arranged=True) < 1 << 20
