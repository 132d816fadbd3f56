"""Memory that a worker process retains."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys
from openmsmq.model.malloc import set_thresholds

def use() -> None:
    [bytearray(8 << 20) for _ in range(6)]

if sys.argv[1] == "keep":
    set_thresholds(64 << 20, 64 << 20)
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(what: str) -> int:
    """Return the page faults of a process that uses and frees 48 MiB ten times."""
    done = subprocess.run([sys.executable, "-c", _FAULTS, what], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a call of glibc")
def test_retained_memory_is_reused_without_new_pages() -> None:
    kept, given_back = _faults("keep"), _faults("give back")
    assert kept < given_back / 10
