"""The seed of a run. It rotates with the date, so that each day tries something else; `make test SEED=...` repeats one.

It is printed in the first lines of a run. Hypothesis gets the same one from the Makefile.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

VARIABLE = "TEST_SEED"
# In the environment, so that all workers of a run have the same one, also at midnight.
SEED = int(os.environ.setdefault(VARIABLE, f"{datetime.now(UTC):%Y%m%d}"))


def chance(name: str) -> random.Random:
    """The randomness of a test, other than that of its neighbours."""
    return random.Random(f"{SEED} {name}")


def by_night(values: Sequence[int], first: int) -> list[Any]:
    """Values of a parameter, of which only the first so many are tried by day."""
    return [*values[:first], *(pytest.param(value, marks=pytest.mark.slow) for value in values[first:])]


def several(count: int) -> range:
    """Seeds of programs that take a number, none of which the next days take."""
    return range(SEED * 1_000_000, SEED * 1_000_000 + count)
