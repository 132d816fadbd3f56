"""A client of Arrow Flight that bridges a restart of the queue manager: calls are repeated until it answers again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from openmsmq.bulk.client import BulkClient

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between two tries; they double


class RetryPolicy:
    """How long to go on trying."""

    def __init__(self, seconds: float, location: str, is_known: bool) -> None:
        """
        Args:
            seconds: from the first failure in a row to the last try.
            location: of the server, for messages.
            is_known: whether somebody has had an answer from there. Until then nothing is repeated: who has mistyped a
                host or port need not wait.
        """
        self.seconds = seconds
        self._location = location
        self._is_known = is_known
        self._end: float | None = None  # while nobody answers
        self._pause = _FIRST_PAUSE

    def answered(self) -> None:
        """A call succeeded."""
        self._end, self._pause, self._is_known = None, _FIRST_PAUSE, True

    def wait(self, error: ConnectionError) -> None:
        """Sleep until the next try. Raises ConnectionError when there is none any more."""
        if not self._is_known:
            raise error
        now = time.monotonic()
        if self._end is None:
            self._end = now + self.seconds
            if self.seconds:
                logger.warning("%s; trying again for %g s (option retrySeconds)", error, self.seconds)
        left = self._end - now
        if left <= 0:
            self.answered()  # the next call has all the time again
            raise ConnectionError(
                f"{self._location} has not answered for {self.seconds:g} s (option retrySeconds): {error}"
            ) from error
        time.sleep(min(self._pause, left))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


class RetryingClient(BulkClient):
    """A `BulkClient` whose calls are repeated. All of them may be: what was done already changes nothing. An upload may
    not, because its rows are gone; see `writing`."""

    def __init__(self, *arguments: Any, retry_seconds: float, is_known: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.patience = RetryPolicy(retry_seconds, self.location, is_known)

    def _act(self, name: str, **arguments: Any) -> Any:
        while True:
            try:
                answer = super()._act(name, **arguments)
            except ConnectionError as error:
                self.patience.wait(error)
                if name == "claim":  # perhaps it was made, and only its answer with the new token was lost
                    arguments.pop("token", None)
                continue
            self.patience.answered()
            return answer

    def read(
        self,
        queue: str,
        source: str = "queue",
        start: int = 0,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        include_body: bool = True,
        group: str | None = None,
        token: str | None = None,
        on_damaged: Callable[[list[int]], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read like `BulkClient.read`, but continue after the last received row if the stream breaks off. The end must
        be given; otherwise newer messages would be read too."""
        if end is None:
            end = self.position(queue, source).stable
        wanted = None if columns is None else [*columns]
        asked = wanted if wanted is None or "sequence" in wanted else [*wanted, "sequence"]
        while True:
            try:
                for batch in super().read(queue, source, start, end, asked, include_body, group, token, on_damaged):
                    self.patience.answered()
                    start = batch.column("sequence")[-1].as_py()
                    yield batch if wanted is None else batch.select(wanted)
            except ConnectionError as error:
                self.patience.wait(error)
                continue
            self.patience.answered()
            return
