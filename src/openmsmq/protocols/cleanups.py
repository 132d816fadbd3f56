"""Time limit of clients for ending two-phase receives ([MS-MQRR] 3.1.2.2)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from openmsmq.protocols.environment import Environment

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Hashable)

# Seconds. All items share one timer, so each is cleaned up at most this much later.
GRAIN: Final = 1.0


class Cleanups(Generic[T]):
    """Items to clean up after a time limit. It is the same for all, so they become due in the order of addition, and
    one timer is enough."""

    def __init__(self, environment: Environment, seconds: float, clean_up: Callable[[T], None]) -> None:
        """`clean_up` is called for each object that still exists after this number of seconds."""
        self._environment: Final = environment
        self._seconds: Final = seconds
        self._clean_up: Final = clean_up
        self._due: dict[T, float] = {}
        self._is_running = False

    def add(self, items: list[T]) -> None:
        """Schedule the cleanup of items, which must not be scheduled yet."""
        self._due.update(dict.fromkeys(items, self._environment.seconds() + self._seconds))
        if items and not self._is_running:
            self._run(self._seconds)

    def discard(self, item: T) -> None:
        """Cancel the cleanup of an item, if it is scheduled."""
        self._due.pop(item, None)

    def _run(self, seconds: float) -> None:
        self._is_running = True
        self._environment.later(seconds, self._clean)

    def _clean(self) -> None:
        self._is_running = False
        now, over = self._environment.seconds(), []
        for item, due in self._due.items():
            if due > now:
                self._run(max(due - now, GRAIN))
                break
            over.append(item)
        for item in over:
            del self._due[item]
        for item in over:
            try:
                self._clean_up(item)
            except Exception:  # a bug; continue with the other items
                logger.exception("cannot undo an unfinished two-phase receive")
