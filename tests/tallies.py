"""Counts of what a test tried: kills, simulated networks, crash points. `tools/prove` adds them up.

tests/conftest.py moves the numbers of each test into its JUnit properties.
"""

from __future__ import annotations

from collections import Counter

_tallies: Counter[str] = Counter()


def tally(what: str, count: int = 1) -> None:
    """Add to a count of the running test. `what` is a plural noun: kills, simulations."""
    _tallies[what] += count


def take() -> list[tuple[str, int]]:
    """Return the counts since the last call."""
    taken = list(_tallies.items())
    _tallies.clear()
    return taken
