"""Refuse asyncProgressTracking if messages are received: they would be removed before their batch is in Spark's log.

Spark does not inform a source that this option is enabled. But normally it informs a source of the commit of a batch
before it runs the next one; with asynchronous progress, it does so later or not at all.
"""

from __future__ import annotations

from typing import Any

from openmsmq.spark.offsets import Offsets
from openmsmq.spark.options import OptionError


class Progress:
    """Checks the order of calls by Spark."""

    def __init__(self) -> None:
        self._initial: dict[str, Any] | None = None
        self._planned: dict[str, Any] | None = None
        self._committed: dict[str, Any] | None = None

    def begun(self, initial: Offsets) -> None:
        """Record that Spark requested the initial offset: no batch before it needs a commit."""
        self._initial = dict(initial)

    def planned(self, start: Offsets) -> None:
        """Record that Spark requested the end of a batch that begins here."""
        self._planned = dict(start)

    def committed(self, end: Offsets) -> None:
        """Record that Spark committed the batch that ends here."""
        self._committed = dict(end)

    def check(self, start: Offsets) -> None:
        """Check the batch that Spark now runs, which begins here. Raises OptionError if the previous one is not
        committed. A batch planned before a restart is not checked."""
        begin = dict(start)
        if begin == self._planned and begin not in (self._initial, self._committed):
            raise OptionError(
                "asyncProgressTrackingEnabled is true, allowed with mode=receive: false. A batch begins before Spark "
                "has committed the one before, so messages would be removed that its checkpoint does not have"
            )
