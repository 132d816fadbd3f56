"""Compiled modules and their sources give equal results, byte for byte, for the same seeded work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from seeds import SEED

TRANSCRIPT = Path(__file__).with_name("transcript.py")
ENOUGH = {"ndr": 3000, "store": 1000, "queueing": 4000, "transfer": 1000}  # minimum number of lines

ERROR = re.compile(r": (\w+Error|BadStubData)\b")


def transcript(*options: str) -> list[str]:
    # Without a fixed seed, the order of sets differs between processes.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, str(TRANSCRIPT), str(SEED), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_native_code_agrees_with_its_python_sources() -> None:
    native, interpreted = transcript(), transcript("sources")
    assert (native[0], interpreted[0]) == ("native", "interpreted")
    different = [pair for pair in zip(native[1:], interpreted[1:], strict=True) if pair[0] != pair[1]]
    assert not different, different[0]
    parts = Counter(line.partition(" ")[0] for line in native[1:])
    assert all(parts[part] >= count for part, count in ENOUGH.items()), parts
    errors = Counter(line.partition(" ")[0] for line in native[1:] if ERROR.search(line))
    assert all(errors[part] < parts[part] / 2 for part in ENOUGH), errors
