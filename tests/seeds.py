"""The seed of a run. It changes daily, so that each day tests other values; `make test SEED=...` repeats a run.

It is printed in the first lines of a run. The Makefile passes the same seed to Hypothesis.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

VARIABLE = "TEST_SEED"
# In the environment, so that all workers of a run have the same seed, even at midnight.
SEED = int(os.environ.setdefault(VARIABLE, f"{datetime.now(UTC):%Y%m%d}"))


def chance(name: str) -> random.Random:
    """Return a random generator for a test, different from those of other tests."""
    return random.Random(f"{SEED} {name}")


def by_night(values: Sequence[int], first: int) -> list[Any]:
    """Return parameter values, of which only the first few run by day."""
    return [*values[:first], *(pytest.param(value, marks=pytest.mark.slow) for value in values[first:])]


def several(count: int) -> range:
    """Return integer seeds for programs; the next days use other ones."""
    return range(SEED * 1_000_000, SEED * 1_000_000 + count)
