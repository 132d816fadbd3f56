"""Formatting of numbers for people, and marks on the axes of plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def count(value: float) -> str:
    """Format a count."""
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Format a size in bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def seconds(value: float) -> str:
    """Format a duration in seconds in a suitable unit."""
    for below, divisor, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if value < below:
            shown = value / divisor
            return f"{shown:.0f} {unit}" if shown == int(shown) else f"{shown:.1f} {unit}"
    return f"{value / 86400:.1f} d"


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of an axis.

    Attributes:
        text: formats a value.
        marks: values that a logarithmic axis may mark, in ascending order.
        base: even marks are 1, 2 or 5 times a power of ten, or powers of two.
    """

    text: Callable[[float], str]
    marks: tuple[float, ...]
    base: int = 10


COUNT = Unit(count, tuple(10.0**power for power in range(10)))
SIZE = Unit(size, tuple(2.0**power for power in range(0, 50, 5)), 2)
SECONDS = Unit(seconds, (1, 10, 60, 600, 3600, 6 * 3600, 86400, 10 * 86400, 100 * 86400))
