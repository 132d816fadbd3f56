"""The daemon with a clock that a test steps: `python stepped.py serve ...`; CLOCK_OFFSET names a file with seconds."""

from __future__ import annotations

import os
import time

_real, _real_ns = time.time, time.time_ns


def _offset() -> float:
    try:
        with open(os.environ["CLOCK_OFFSET"], encoding="ascii") as file:
            return float(file.read() or 0)
    except (OSError, ValueError):
        return 0.0


def step_clocks() -> None:
    """Replace the clocks of `time`, which also compiled modules look up at each call."""
    time.time = lambda: _real() + _offset()
    time.time_ns = lambda: _real_ns() + int(_offset() * 1e9)


if __name__ == "__main__":
    step_clocks()
    from openmsmq.cli import main

    main()
