"""Skip bad items of lists: an item that fails is logged, counted and left out."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")
PERIOD: Final = 60.0  # seconds between two log records about the same list


class LeftOut:
    """Counts omitted items by list. Logs the first item of a list with a traceback, then at most one line per
    minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Final[Counter[str]] = Counter()
        self._clock: Final = clock
        self._next: Final[dict[str, float]] = {}

    def note(self, name: str, item: object, error: BaseException) -> None:
        """Count and log an item of the list `name` that failed and is left out."""
        self.counts[name] += 1
        now = self._clock()
        if now >= self._next.get(name, now):
            first = name not in self._next
            self._next[name] = now + PERIOD
            logger.error(
                "%s: %s is left out (%d since the start): %s: %s",
                name, item, self.counts[name], type(error).__name__, error, exc_info=error if first else None,
            )  # fmt: skip

    def each(
        self, name: str, items: Iterable[Item], action: Callable[[Item], Result], named: Callable[[Item], object] = str
    ) -> Iterator[Result]:
        """Yield the result of `action` for each item for which it raises no exception; note the others."""
        for item in items:
            try:
                result = action(item)
            except Exception as error:
                self.note(name, named(item), error)
            else:
                yield result


#: Omitted items of this process.
LEFT_OUT: Final = LeftOut()
