"""asyncProgressTracking is refused where messages are received: they would go before Spark's log has their batch.

Spark does not inform a source that it is enabled. But it informs a source that a batch is committed before it runs the
next one, and with asynchronous progress after that has begun, if at all.
"""

from __future__ import annotations

from typing import Any

from openmsmq.spark.offsets import Offsets
from openmsmq.spark.options import OptionError


class Progress:
    """Calls of Spark, in order."""

    def __init__(self) -> None:
        self._initial: dict[str, Any] | None = None
        self._planned: dict[str, Any] | None = None
        self._committed: dict[str, Any] | None = None

    def begun(self, initial: Offsets) -> None:
        """Spark has asked for the initial offset, behind which there is no batch to commit."""
        self._initial = dict(initial)

    def planned(self, start: Offsets) -> None:
        """Spark has asked how far a batch goes that begins here."""
        self._planned = dict(start)

    def committed(self, end: Offsets) -> None:
        """Spark has committed the batch that ends here."""
        self._committed = dict(end)

    def check(self, start: Offsets) -> None:
        """Spark runs the batch that begins here. Raises OptionError if Spark has not yet committed the one before. A
        batch from before a restart was planned then, and is not checked."""
        begin = dict(start)
        if begin == self._planned and begin not in (self._initial, self._committed):
            raise OptionError(
                "asyncProgressTrackingEnabled is true, allowed with mode=receive: false. A batch begins before Spark "
                "has committed the one before, so messages would be removed that its checkpoint does not have"
            )
