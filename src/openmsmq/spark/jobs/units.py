"""Figures as people read them, and where the axes of plots have their marks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def count(value: float) -> str:
    """A number of things."""
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def seconds(value: float) -> str:
    """A time, in the unit that fits it."""
    for below, divisor, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if value < below:
            shown = value / divisor
            return f"{shown:.0f} {unit}" if shown == int(shown) else f"{shown:.1f} {unit}"
    return f"{value / 86400:.1f} d"


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of an axis.

    Attributes:
        text: how a value is written.
        marks: values that an axis over several powers may mark, from the lowest on.
        base: even marks are 1, 2 or 5 times a power of ten, or powers of two.
    """

    text: Callable[[float], str]
    marks: tuple[float, ...]
    base: int = 10


COUNT = Unit(count, tuple(10.0**power for power in range(10)))
SIZE = Unit(size, tuple(2.0**power for power in range(0, 50, 5)), 2)
SECONDS = Unit(seconds, (1, 10, 60, 600, 3600, 6 * 3600, 86400, 10 * 86400, 100 * 86400))
