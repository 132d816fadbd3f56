"""Client of the bulk plane: positions, snapshots, claims of consumer groups, staged sends.

A position is a sequence number, per queue; a range `start, end` holds the messages with start < sequence <= end.
`queue` is a path name (`.\\private$\\orders`, or `orders` for short), a format name, or empty for the sources that
belong to the machine; `source` is one of `schema.SOURCES`.

Every failure is an MsmqError with its HRESULT, or a ConnectionError; both name the thing.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.flight as flight

from openmsmq.bulk.row_stream import FAILURES, Refusal, RowStream, Staged
from openmsmq.model.errors import AccessDenied, HResult, MsmqError, error_for

logger = logging.getLogger(__name__)

DEFAULT_PORT = 18020
# gRPC's own pauses are up to two minutes: longer than a queue manager needs for a restart. Its
# `min_reconnect_backoff_ms` is not a pause but the time limit of an attempt, including handshakes; the default, 20 s,
# is right.
_RECONNECT = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue and what is in it. `queue` and `source` are what the other calls take; `count` is of the messages that
    readers may take, `stable` as in `QueuePosition`."""

    queue: str
    source: str
    transactional: bool
    count: int
    bytes: int
    stable: int


@dataclass(frozen=True, slots=True)
class Lag:
    """How many messages a reader can take behind a position, and the last stable sequence, as in `QueuePosition`."""

    count: int
    stable: int


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Where a queue stands: `first` and `last` sequence of what readers may take (both 0 for an empty queue), and how
    many those are. An offset may advance to `stable`: nothing can appear at or below it that was not there before. It
    falls when somebody takes hold of an old message; an offset that is further stays where it is. `queue` is its path
    name, however it was called."""

    first: int
    last: int
    stable: int
    count: int
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Range:
    """Messages with start < sequence <= end; `bytes` in the store."""

    start: int
    end: int
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A range as `ranges` of nearly equal count, in order and without gaps."""

    end: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """Messages claimed by a consumer group: `count` messages with start < sequence <= end. Only the latest `token` of a
    group can read it. Nothing was there to claim if `count` is 0; `end` is `start` then."""

    start: int
    end: int
    count: int
    token: str


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group of a queue: everything that it claimed up to `cursor` is removed, and `count` messages up to
    `end` are claimed now. Until they are committed or released, ordinary readers don't see them."""

    queue: str
    source: str
    group: str
    cursor: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class StageInfo:
    """Messages of a sink's batch that wait for `finalize`. `owner` is a SID; what is not `sealed` is still being
    written; `queues` are where they go; `query` is whose batch it is. The queue manager drops the stages of a sink when
    `idle_seconds`, since the last keep-alive from its writer, reach its setting stage_time_limit."""

    handle: str
    sink: str
    batch: int
    partition: int
    owner: str
    rows: int
    sealed: bool
    queues: list[str]
    query: str = ""
    idle_seconds: int = 0


class BulkClient:
    """One connection; may be used by several threads. Use it as a context manager, or `close` it."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        user: str | None = None,
        password: str = "",
        tls_root: str | Path | bytes | None = None,
    ) -> None:
        """Nothing is sent before the first call.

        Args:
            host: name or address.
            port: of Arrow Flight.
            user: None for an anonymous caller.
            password: of the user; travels as it is, so off loopback the server insists on TLS.
            tls_root: certificate (file or PEM bytes) that the server's is checked against; None for plain text.
        """
        self.location = f"{host}:{port}"
        scheme = "grpc+tcp" if tls_root is None else "grpc+tls"
        roots = Path(tls_root).read_bytes() if isinstance(tls_root, str | Path) else tls_root
        options: dict[str, Any] = {} if roots is None else {"tls_root_certs": roots}
        options["generic_options"] = _RECONNECT
        headers = []
        if user is not None:
            credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
            headers = [(b"authorization", f"Basic {credentials}".encode())]
        self._headers = headers
        self._flight = flight.FlightClient(f"{scheme}://{self.location}", **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._flight.close()

    # -- looking ---------------------------------------------------------------------------------------------

    def queues(self) -> list[QueueInfo]:
        """Everything that the caller may read, journals and system queues too."""
        return [QueueInfo(**values) for values in self._act("queues")]

    def check(self, queue: str, source: str = "queue") -> str:
        """The path name of a queue, however it is called. Raises MsmqError for one that the caller can't read."""
        return self.position(queue, source).queue or queue

    def position(self, queue: str, source: str = "queue", group: str | None = None) -> QueuePosition:
        """Where a queue stands; for a `group`, its own claim does not hold `stable` back."""
        return QueuePosition(**self._act("position", queue=queue, source=source, group=group))

    def lag(self, queue: str, source: str = "queue", start: int = 0, group: str | None = None) -> Lag:
        """How much waits behind a position; what `group` has claimed there counts for it."""
        return Lag(**self._act("lag", queue=queue, source=source, start=start, **_given({"group": group})))

    def incarnation(self) -> str | None:
        """Which life of the store this is: a restore from a backup begins a new one. None if the queue manager is of
        a version that does not say."""
        try:
            answer: str = self._act("incarnation")["incarnation"]
        except MsmqError as error:
            if error.hresult != HResult.MQ_ERROR_INVALID_PARAMETER:
                raise
            return None
        return answer

    def arrow_port(self, ability: str = "") -> int | None:
        """Return the port where the queue manager serves Arrow streams (docs/bulk.md); None if it does not, or without
        an `ability` that later versions have: write (uploads) or decode (the column `text`)."""
        try:
            answer = self._act("arrow_port")
        except MsmqError as error:
            if error.hresult != HResult.MQ_ERROR_INVALID_PARAMETER:  # a version without Arrow streams
                raise
            return None
        port: int | None = answer["port"]
        return port if not ability or ability in answer.get("abilities", ()) else None

    def plan(
        self,
        queue: str,
        source: str = "queue",
        start: int = 0,
        end: int | None = None,
        partitions: int = 1,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        group: str | None = None,
        token: str | None = None,
    ) -> ReadPlan:
        """Divide what lies behind `start`.

        Args:
            queue, source: which queue.
            start: behind this position.
            end: up to it; None for the last stable position.
            partitions: how many ranges at most; empty ones are left out.
            max_messages, max_bytes: stop when so much is reached; at least one message is taken.
            group, token: divide the claim of a group instead of what everybody may read.

        Returns:
            The end, which is `end` if no limit was reached, and the ranges.
        """
        answer = self._act(
            "plan", queue=queue, source=source, start=start, end=end, partitions=partitions,
            max_messages=max_messages, max_bytes=max_bytes, group=group, token=token,
        )  # fmt: skip
        return ReadPlan(answer["end"], tuple(Range(**values) for values in answer["ranges"]))

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
        """The messages with start < sequence <= end, in the order of their sequence, a few thousand a batch.

        Args:
            queue, source: which queue.
            start, end: the range; `end` None for the last stable position.
            columns: names from MESSAGE_SCHEMA, in the order wanted; None for all.
            include_body: False makes `body` null.
            group, token: read the claim of a group instead of what everybody may read.
            on_damaged: is called with the lookup identifiers of messages that the queue manager can't decode, and that
                are left out; None logs them as errors.

        Returns:
            Record batches of MESSAGE_SCHEMA, or of its named columns.
        """
        ticket = {
            "queue": queue, "source": source, "start": start, "end": end,
            "columns": None if columns is None else list(columns), "include_body": include_body,
            "group": group, "token": token,
        }  # fmt: skip
        try:
            reader = self._flight.do_get(flight.Ticket(json.dumps(ticket).encode()), self._options())
            for chunk in reader:
                if chunk.app_metadata is not None:
                    damaged = json.loads(chunk.app_metadata.to_pybytes())["damaged"]
                    (on_damaged or partial(_log_damage, queue or source))(damaged)
                if chunk.data is not None and chunk.data.num_rows:
                    yield chunk.data
        except FAILURES as error:
            raise self._translated(error, f"reading {source} of {queue}") from error

    # -- consumer groups -------------------------------------------------------------------------------------

    def cursor(self, queue: str, group: str, source: str = "queue") -> int | None:
        """How far the group has removed messages; None if the queue manager does not know the group."""
        cursor: int | None = self._act("cursor", queue=queue, source=source, group=group)["cursor"]
        return cursor

    def claim(
        self,
        queue: str,
        group: str,
        start: int,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        wait_seconds: float = 0,
        source: str = "queue",
        token: str | None = None,
    ) -> Claim:
        """Remove what the group's former claim holds at or below `start`, and claim what lies behind.

        The same call gives the same range again while the claim stands, also after a restart of the queue manager, and
        fences the earlier token. Claimed messages are hidden from all other readers.

        Args:
            queue, source: which queue.
            group: name of the consumer group.
            start: position that the group has got to: the end of a claim that it has done with, or its cursor.
            max_messages, max_bytes: stop when so much is claimed; at least one message is taken.
            wait_seconds: how long to wait for a first message; the queue manager answers after 60 at most.
            token: of the former claim; then it is an error if another one has fenced it. None takes the group over.
        """
        return Claim(
            **self._act(
                "claim", queue=queue, source=source, group=group, start=start, max_messages=max_messages,
                max_bytes=max_bytes, wait_seconds=wait_seconds, **_given({"token": token or None}),
            )
        )  # fmt: skip

    def commit(self, queue: str, group: str, end: int, source: str = "queue", token: str | None = None) -> int:
        """Receive what the group has claimed at or below `end`, for good. Again, it changes nothing.

        With `token` it is an error if another claim of the group has fenced this one.

        Returns:
            The cursor.
        """
        values = _given({"token": token or None})
        cursor: int = self._act("commit", queue=queue, source=source, group=group, end=end, **values)["cursor"]
        return cursor

    def release(self, queue: str, group: str, source: str = "queue", forget: bool = False) -> int:
        """Put back what the group has claimed; with `forget`, drop its cursor too.

        Returns:
            How many messages were put back.
        """
        count: int = self._act("release", queue=queue, source=source, group=group, forget=forget)["count"]
        return count

    # -- staged sends ----------------------------------------------------------------------------------------

    def stage(
        self,
        sink: str,
        batch: int,
        partition: int,
        attempt: str | int,
        batches: Iterable[pa.RecordBatch],
        default_queue: str | None = None,
        transactional: bool | None = None,
        collect: Callable[[int, list[Refusal]], None] | None = None,
        query: str = "",
    ) -> Staged:
        """Store messages that nobody sees yet, durably.

        Args:
            sink: name of the sink.
            batch: number of the batch, which rises.
            partition, attempt: which part of it, and which try.
            batches: rows with columns of WRITE_COLUMNS.
            default_queue: where rows without `destination_queue` go.
            transactional: whether the rows for outgoing queues are sent as messages of a transaction; the queues of
                this machine know by themselves. None for no.
            collect: go on without rows that can't be sent. It is called between two batches and at the end, with a
                number and the refused rows before that one, in order; of rows before that number nothing more will be
                said, and they need not be kept.
            query: identity of the query whose batch this is, the same for all its batches: a sink belongs to one query.

        Raises:
            MsmqError: without `collect` the first row that can't be sent, by its number; with or without, what is not
                a matter of a row. Nothing is staged.
        """
        command = {
            "sink": sink, "batch": batch, "partition": partition, "attempt": str(attempt),
            "default_queue": default_queue, "transactional": bool(transactional), "collect": collect is not None,
            "query": query or None,
        }  # fmt: skip
        descriptor = flight.FlightDescriptor.for_command(json.dumps(_given(command)).encode())
        what = f"staging for batch {batch} of sink {sink}"

        def begin(schema: pa.Schema) -> RowStream:
            call = partial(self._flight.do_put, descriptor, schema, self._options())
            return RowStream(call, collect, partial(self._translated, what=what))

        sending = None
        try:
            for batch_ in batches:
                sending = sending or begin(batch_.schema)
                sending.write(batch_)
            sending = sending or begin(pa.schema([("body", pa.binary())]))  # an empty stage is a stage
            return sending.finish()
        except BaseException:
            if sending is not None:
                sending.abandon()
                if sending.staged is not None:  # complete, and then `collect` failed
                    with suppress(MsmqError, ConnectionError):
                        self.forget(sink, stages=[sending.staged])
            raise

    def finalize(
        self, sink: str, batch: int, stages: Iterable[Staged | str], query: str = "", once: bool = False
    ) -> None:
        """Make exactly these stages visible, at once, and drop all others of this and earlier batches of the sink.

        A repeated call for the last batch of the sink succeeds and changes nothing. `once` says that no other batch
        comes, so that the queue manager forgets the sink some time later.

        Raises:
            MsmqError: a stage is not there, the batch is older than the last one of the sink, or another `query` has
                written the sink.
        """
        handles = [stage if isinstance(stage, str) else stage.handle for stage in stages]
        options = {"query": query or None, "once": once or None}
        self._act("finalize", sink=sink, batch=batch, stages=handles, **_given(options))

    def renew(self, sink: str) -> None:
        """Keep-alive: the stages of the sink are still wanted, though nothing is written now."""
        self._act("renew", sink=sink)

    def groups(self) -> list[GroupInfo]:
        """Consumer groups of all queues that the caller may receive from."""
        return [GroupInfo(**values) for values in self._act("groups")]

    def stages(self) -> list[StageInfo]:
        """Return stages that are not finalized: the caller's; for administrators, everybody's."""
        return [StageInfo(**values) for values in self._act("stages")]

    def last_batch(self, sink: str) -> int | None:
        """The last batch of the sink that was finalized; None if there is none."""
        batch: int | None = self._act("last_batch", sink=sink)["batch"]
        return batch

    def forget(
        self, sink: str, batch: int | None = None, stages: Iterable[Staged | str] | None = None, memory: bool = False
    ) -> int:
        """Drop stages of a sink that were not finalized: all, those of one batch, or the named ones. With `memory` also
        the number of its last batch and its query, so that another query may write it.

        Returns:
            How many stages there were.
        """
        handles = None if stages is None else [stage if isinstance(stage, str) else stage.handle for stage in stages]
        count: int = self._act("forget", sink=sink, batch=batch, stages=handles, **_given({"memory": memory or None}))[
            "count"
        ]
        return count

    # -- details ---------------------------------------------------------------------------------------------

    def _options(self) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(headers=self._headers)

    def _act(self, name: str, **arguments: Any) -> Any:
        action = flight.Action(name, json.dumps(arguments).encode())
        try:
            results = list(self._flight.do_action(action, self._options()))
        except FAILURES as error:
            raise self._translated(error, name) from error
        return json.loads(results[0].body.to_pybytes())

    def _translated(self, error: BaseException, what: str) -> Exception:
        if isinstance(error, ConnectionError) and not isinstance(error, flight.FlightError):
            return error
        information = getattr(error, "extra_info", b"")
        if information:
            values = json.loads(information)
            return error_for(values["hresult"], values["detail"])
        if isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError):
            return AccessDenied(detail=f"{self.location}: {_first_line(error)}")
        if isinstance(error, flight.FlightUnavailableError | flight.FlightTimedOutError | flight.FlightCancelledError):
            return ConnectionError(f"{self.location}: {what}: {_first_line(error)}")
        if isinstance(error, flight.FlightError):
            return ConnectionError(f"{self.location}: {what}: {_first_line(error)}")
        return MsmqError(detail=f"{self.location}: {what}: {_first_line(error)}")


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments without those that are not given: earlier servers do not know all of them."""
    return {name: value for name, value in arguments.items() if value is not None}


def _log_damage(queue: str, damaged: list[int]) -> None:
    keys = ", ".join(f"{key:#x}" for key in damaged)
    logger.error("%s: %d messages can't be decoded and were left out, by lookup id: %s", queue, len(damaged), keys)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
