"""Types of numbers, times and sizes that users type: all have a range."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from openmsmq.model.amounts import parse_age, parse_size
from openmsmq.model.constants import INFINITE

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


if TYPE_CHECKING:
    IntegerType = click.ParamType[int]
else:
    IntegerType = click.ParamType  # generic since click 8.4 only


class Amount(IntegerType):
    """Seconds or bytes with an optional unit; the value is a whole number in a range. `name` and `examples` are for
    help."""

    def __init__(self, name: str, examples: str, parse: Callable[[str], float], low: int, high: int) -> None:
        self.name, self.examples = name, examples
        self.min, self.max, self._parse = low, high, parse

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        try:
            number = int(self._parse(str(value)))
        except ValueError as error:
            self.fail(str(error), parameter, context)
        if not self.min <= number <= self.max:
            self.fail(f"{value} is not in the range from {self.min} to {self.max}", parameter, context)
        return number


def amount(kind: str, low: int, high: int) -> Amount:
    """Return the type of a `time` or a `size`."""
    if kind == "time":
        return Amount("time", "90, 10m, 2h or 3d", parse_age, low, high)
    return Amount("bytes", "4096, 64k or 2m", parse_size, low, high)


AGE: Final = amount("time", 0, INFINITE - 1)
#: Time to be received or to reach the queue.
LIFETIME: Final = amount("time", 1, INFINITE - 1)
SIZE: Final = amount("size", 0, INFINITE - 1)
