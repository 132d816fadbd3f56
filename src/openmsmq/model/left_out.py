"""Skip bad items of lists: an item that fails is logged, counted and left out."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from openmsmq.model.once_a_minute import OnceAMinute

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


class LeftOut:
    """Counts omitted items by list. Logs the first item of a list with a traceback, then at most one line per
    minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Final[Counter[str]] = Counter()
        self._logged: Final = OnceAMinute(clock)

    def note(self, name: str, item: object, error: BaseException) -> None:
        """Count and log an item of the list `name` that failed and is left out."""
        self.counts[name] += 1
        if self._logged.is_due(name):
            number = self.counts[name]
            logger.error(
                "%s: %s is left out (%d since the start): %s: %s",
                name, item, number, type(error).__name__, error, exc_info=error if number == 1 else None,
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
