"""State of the sinks of data pipelines: last batches, owners, and the last keep-alives of their writers. Not part of
the specifications."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container
from typing import Final, NamedTuple

from openmsmq.model.errors import HResult, MsmqError
from openmsmq.queueing.authorization import Authorization, Caller, Owned, Right
from openmsmq.queueing.storage import MessageStore, storing
from openmsmq.store import Drop, Operation, Put

SINK_PREFIX = b"sink/"
_FORMER_BATCH_WRITE = re.compile(rb"sink/batch/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FORGOTTEN_AT_ONCE = 1000  # definitions per batch


class SinkMemory(NamedTuple):
    """Stored state of a sink.

    Attributes:
        batch: number of the last finalized batch.
        owner: SID of the user who finalized it.
        query: identity of the query that writes the sink; empty if unknown.
        once: when a batch write (which has only one batch) was finalized, in seconds since 1970 UTC; 0 for a streaming
            sink.
    """

    batch: int
    owner: str
    query: str = ""
    once: int = 0

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


def decode_sink(name: bytes, value: bytes) -> SinkMemory:
    """Decode the state of a sink. Definitions of batch writes without `once`, written by older versions, have a random
    name."""
    memory = SinkMemory(**json.loads(value))
    if not memory.once and not memory.batch and _FORMER_BATCH_WRITE.fullmatch(name):
        return memory._replace(once=1)
    return memory


def sink_definition(sink: str) -> bytes:
    return SINK_PREFIX + sink.encode()


class Sinks:
    """All sinks. Their state is stored as definitions in the log; the last keep-alive of a writer is not stored."""

    def __init__(
        self, store: MessageStore, authorization: Authorization, clock: Callable[[], int],
        monotonic: Callable[[], int],
    ) -> None:  # fmt: skip
        self._store: Final = store
        self._authorization: Final = authorization
        self._clock: Final = clock
        self._monotonic: Final = monotonic
        self._writers_seen: dict[str, int] = {}  # last keep-alive, milliseconds of the monotonic clock

    def check_batch(self, sink: str, batch: int, caller: Caller, query: str) -> int | None:
        """Return the last batch of the sink, None if there is none. Raises MsmqError if `batch` is older or of another
        query, AccessDenied for a sink of another owner."""
        memory = self._memory_of(sink)
        if memory is None:
            return None
        self._authorization.authorize(caller, Owned(memory.owner, f"sink {sink!r}"), Right.USE_OWN)
        if memory.query and memory.query != query:
            raise MsmqError(
                HResult.MQ_ERROR_TRANSACTION_SEQUENCE,
                f"sink {sink!r} belongs to query {memory.query}, whose batch {memory.batch} was sent last; this is "
                f"batch {batch} of query {query or '(none)'}. A second stream needs a sinkId of its own. If "
                f"it replaces the other one, or its checkpoint was replaced: openmsmq pipeline forget --sink '{sink}'",
            )
        if batch < memory.batch:
            raise MsmqError(
                HResult.MQ_ERROR_TRANSACTION_SEQUENCE,
                f"batch {batch} of sink {sink!r} is older than its last, {memory.batch}: its rows were sent, or its "
                f"checkpoint was replaced; then: openmsmq pipeline forget --sink '{sink}'",
            )
        return memory.batch

    def finalized(self, sink: str, batch: int, owner: str, query: str, once: bool) -> Put:
        """Return the definition that records a finalization."""
        memory = SinkMemory(batch, owner, query, self._clock() // 1000 if once else 0)
        return Put(sink_definition(sink), memory.encode())

    def last_batch(self, sink: str) -> int | None:
        """Return the number of the last finalized batch of a sink, or None."""
        memory = self._memory_of(sink)
        return None if memory is None else memory.batch

    def _memory_of(self, sink: str) -> SinkMemory | None:
        name = sink_definition(sink)
        value = self._store.definitions.get(name)
        return None if value is None else decode_sink(name, value)

    def forget(self, sink: str, caller: Caller) -> bool:
        """Drop the state of a sink, so that another query may write it. Returns whether there was any. Raises
        AccessDenied, MessageStorageFailed."""
        memory = self._memory_of(sink)
        if memory is None:
            return False
        self._authorization.authorize(caller, Owned(memory.owner, f"sink {sink!r}"), Right.USE_OWN)
        with storing():
            self._store.append([Drop(sink_definition(sink))])
        return True

    def forget_batch_writes(self, before: int) -> None:
        """Drop the state of batch writes that ended before a time (seconds since 1970 UTC) and will not be retried any
        more."""
        definitions = self._store.definitions
        old: list[Operation] = [
            Drop(name) for name, value in definitions.items()
            if name.startswith(SINK_PREFIX) and 0 < decode_sink(name, value).once < before
        ]  # fmt: skip
        with storing():
            for start in range(0, len(old), _FORGOTTEN_AT_ONCE):
                self._store.append(old[start : start + _FORGOTTEN_AT_ONCE])

    # -- writers -----------------------------------------------------------------------------------------------

    def saw_writer(self, sink: str) -> None:
        """Record a keep-alive from the writer of a sink, which restarts the idle time of its stages."""
        self._writers_seen[sink] = self._monotonic()

    def writer_idle(self, sink: str) -> int:
        """Return the milliseconds since the last keep-alive from the writer of a sink; if there was none, since the
        first call."""
        now = self._monotonic()
        return now - self._writers_seen.setdefault(sink, now)

    def forget_writers(self, staging: Container[str]) -> None:
        """Forget the writers of all sinks except `staging`, which have stages."""
        for sink in [sink for sink in self._writers_seen if sink not in staging]:
            del self._writers_seen[sink]
