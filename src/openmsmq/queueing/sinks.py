"""State of the sinks of data pipelines: their last batches, their owners, and when their writers were last seen. Not
part of the specifications."""

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
_FORGOTTEN_AT_ONCE = 1000  # definitions in one batch


class SinkMemory(NamedTuple):
    """Stored state of a sink.

    Attributes:
        batch: number of the batch that was finalized last.
        owner: SID of who finalized it.
        query: identity of the query whose batches these are; empty if it gave none, or an earlier version wrote this.
        once: when it was written, in seconds since 1970 UTC, if no more batches come; 0 for a sink that goes on.
    """

    batch: int
    owner: str
    query: str = ""
    once: int = 0

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


def decode_sink(name: bytes, value: bytes) -> SinkMemory:
    """The memory of a sink from its definition. Before there was `once`, batch writes had sinks of a random name."""
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
        self._writers_seen: dict[str, int] = {}  # milliseconds since 1970 UTC of the last keep-alive

    def check_batch(self, sink: str, batch: int, caller: Caller, query: str) -> int | None:
        """The last batch of the sink, which is not newer than `batch`, and is of the same query. Raises MsmqError for
        an older batch or another query, AccessDenied for a sink of somebody else."""
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
        """The number of the sink's batch that was finalized last."""
        memory = self._memory_of(sink)
        return None if memory is None else memory.batch

    def _memory_of(self, sink: str) -> SinkMemory | None:
        name = sink_definition(sink)
        value = self._store.definitions.get(name)
        return None if value is None else decode_sink(name, value)

    def forget(self, sink: str, caller: Caller) -> bool:
        """Drop what is remembered of a sink, so that another query may write it. Returns whether there was anything.
        Raises AccessDenied, MessageStorageFailed."""
        memory = self._memory_of(sink)
        if memory is None:
            return False
        self._authorization.authorize(caller, Owned(memory.owner, f"sink {sink!r}"), Right.USE_OWN)
        with storing():
            self._store.append([Drop(sink_definition(sink))])
        return True

    def forget_batch_writes(self, before: int) -> None:
        """Drop what is remembered of batch writes that ended before a time (seconds): nobody repeats them now."""
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
        """A keep-alive from the writer of a sink: the idle time of its stages starts again."""
        self._writers_seen[sink] = self._monotonic()

    def writer_idle(self, sink: str) -> int:
        """Milliseconds since the last keep-alive from the writer of a sink; since the start at most."""
        now = self._monotonic()
        return now - self._writers_seen.setdefault(sink, now)

    def forget_writers(self, staging: Container[str]) -> None:
        """Only the writers of these sinks have something staged."""
        for sink in [sink for sink in self._writers_seen if sink not in staging]:
            del self._writers_seen[sink]
