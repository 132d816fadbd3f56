"""An Arrow Flight client that survives a restart of the queue manager: it repeats calls until the server answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from openmsmq.bulk.client import BulkClient

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds before the first retry; each pause is twice the last


class RetryPolicy:
    """How long to retry."""

    def __init__(self, seconds: float, location: str, is_known: bool) -> None:
        """
        Args:
            seconds: time from the first consecutive failure to the last attempt.
            location: address of the server, for error messages.
            is_known: whether the server has answered before. Until then, nothing is repeated, so that a mistyped host
                or port fails at once.
        """
        self.seconds = seconds
        self._location = location
        self._is_known = is_known
        self._end: float | None = None  # while the server does not answer
        self._pause = _FIRST_PAUSE

    def answered(self) -> None:
        """Record a successful call."""
        self._end, self._pause, self._is_known = None, _FIRST_PAUSE, True

    def wait(self, error: ConnectionError) -> None:
        """Sleep until the next attempt. Raises ConnectionError if the time is used up."""
        if not self._is_known:
            raise error
        now = time.monotonic()
        if self._end is None:
            self._end = now + self.seconds
            if self.seconds:
                logger.warning("%s; trying again for %g s (option retrySeconds)", error, self.seconds)
        left = self._end - now
        if left <= 0:
            self.answered()  # the next call has the full time again
            raise ConnectionError(
                f"{self._location} has not answered for {self.seconds:g} s (option retrySeconds): {error}"
            ) from error
        time.sleep(min(self._pause, left))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


class RetryingClient(BulkClient):
    """A `BulkClient` that repeats failed calls. All calls are idempotent, except an upload: its rows are gone; see
    `writing`."""

    def __init__(self, *arguments: Any, retry_seconds: float, is_known: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.patience = RetryPolicy(retry_seconds, self.location, is_known)

    def _act(self, name: str, **arguments: Any) -> Any:
        while True:
            try:
                answer = super()._act(name, **arguments)
            except ConnectionError as error:
                self.patience.wait(error)
                if name == "claim":  # the claim may exist; only its reply with the new token was lost
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
        """Read like `BulkClient.read`, but continue after the last received row if the stream breaks off. `end` is
        required; otherwise newer messages would be read too."""
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
