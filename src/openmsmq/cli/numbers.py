"""Types of numbers that users type: all have a range."""

from __future__ import annotations

import math
from typing import Any, Final

import click

LONGEST: Final = 4_294_967  # seconds; the protocols have 32 bits of milliseconds

#: A number of things, of which 0 usually means all.
COUNT: Final = click.IntRange(min=0)
PORT: Final = click.IntRange(1, 65535)
PORT_OFFSET: Final = click.IntRange(0, 60000)


class FiniteRange(click.FloatRange):
    """A range of numbers; `nan`, which compares with nothing, and `inf` are not in it."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        number: float = super().convert(value, parameter, context)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", parameter, context)
        return number


SECONDS: Final = FiniteRange(0, LONGEST)
#: Seconds between two updates of a display.
INTERVAL: Final = FiniteRange(0.2, LONGEST)
