"""Client of the bulk plane: positions, snapshots, claims of consumer groups, staged sends.

A position is a sequence number of a queue; a range `start, end` contains the messages with start < sequence <= end.
`queue` is a path name (`.\\private$\\orders`, or `orders` for short), a format name, or empty for sources of the
machine; `source` is one of `message_columns.SOURCES`.

Every failure is an MsmqError with its HRESULT, or a ConnectionError; both name the object.
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
# gRPC's default reconnect delays are up to two minutes, longer than a restart of the queue manager takes. Its
# `min_reconnect_backoff_ms` is not a delay but the time limit of an attempt, including handshakes; the default of 20 s
# is suitable. With a keepalive time, a request that a vanished host or a firewall does not acknowledge fails after
# 20 s, and a silent connection after six minutes; otherwise both would wait forever. A gRPC server closes connections
# with pings more often than every five minutes.
_CONNECTION = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 310_000),
]


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue and its contents. `queue` and `source` can be passed to the other calls; `count` is the number of
    messages available to readers, `stable` as in `QueuePosition`."""

    queue: str
    source: str
    transactional: bool
    count: int
    bytes: int
    stable: int


@dataclass(frozen=True, slots=True)
class Lag:
    """The number of messages available after a position, and the last stable sequence, as in `QueuePosition`."""

    count: int
    stable: int


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """State of a queue: `first` and `last` sequence of the available messages (both 0 for an empty queue), and their
    `count`. An offset may advance to `stable`: no new messages can appear at or below it. `stable` decreases when an
    old message is locked; an offset beyond it then stays unchanged. `queue` is the path name of the queue."""

    first: int
    last: int
    stable: int
    count: int
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Range:
    """Messages with start < sequence <= end; `bytes` is their size in the store."""

    start: int
    end: int
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A range divided into `ranges` of nearly equal count, in order and without gaps."""

    end: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """Messages claimed by a consumer group: `count` messages with start < sequence <= end. Only the latest `token` of a
    group can read it. If `count` is 0, there was nothing to claim, and `end` equals `start`."""

    start: int
    end: int
    count: int
    token: str


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group of a queue: all messages that it claimed up to `cursor` are removed, and `count` messages up to
    `end` are currently claimed. They are hidden from ordinary readers until they are committed or released."""

    queue: str
    source: str
    group: str
    cursor: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class StageInfo:
    """A stage: messages of a batch of a sink that wait for `finalize`. `owner` is a SID; a stage that is not `sealed`
    is still being written; `queues` are the destinations; `query` identifies the query of the batch. The queue manager
    drops the stages of a sink when `idle_seconds`, the time since the last keep-alive from its writer, reaches the
    setting stage_time_limit."""

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
    """A connection. Thread-safe. Use it as a context manager, or `close` it."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        user: str | None = None,
        password: str = "",
        tls_root: str | Path | bytes | None = None,
    ) -> None:
        """Create a client. It connects with the first call.

        Args:
            host: name or address.
            port: port of Arrow Flight.
            user: None for an anonymous caller.
            password: password of the user. It is sent in clear text, so the server requires TLS except on loopback.
            tls_root: root certificate (file or PEM bytes) for the server's certificate; None for plain text.
        """
        self.location = f"{host}:{port}"
        scheme = "grpc+tcp" if tls_root is None else "grpc+tls"
        roots = Path(tls_root).read_bytes() if isinstance(tls_root, str | Path) else tls_root
        options: dict[str, Any] = {} if roots is None else {"tls_root_certs": roots}
        options["generic_options"] = _CONNECTION
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

    # -- reading ---------------------------------------------------------------------------------------------

    def queues(self) -> list[QueueInfo]:
        """Return all queues that the caller may read, including journals and system queues."""
        return [QueueInfo(**values) for values in self._act("queues")]

    def check(self, queue: str, source: str = "queue") -> str:
        """Return the path name of a queue. Raises MsmqError if the caller cannot read it."""
        return self.position(queue, source).queue or queue

    def position(self, queue: str, source: str = "queue", group: str | None = None) -> QueuePosition:
        """Return the state of a queue; for a `group`, its own claim does not hold back `stable`."""
        return QueuePosition(**self._act("position", queue=queue, source=source, group=group))

    def lag(self, queue: str, source: str = "queue", start: int = 0, group: str | None = None) -> Lag:
        """Return the number of messages after a position, including those claimed by `group`."""
        return Lag(**self._act("lag", queue=queue, source=source, start=start, **_given({"group": group})))

    def incarnation(self) -> str | None:
        """Return the identifier of this incarnation of the store, which changes when a backup is restored. None if the
        version of the queue manager does not support it."""
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
        """Divide the messages after `start` into ranges.

        Args:
            queue, source: the queue.
            start: position after which the first range begins.
            end: last position; None for the last stable one.
            partitions: maximum number of ranges; empty ones are left out.
            max_messages, max_bytes: limits of the total; at least one message is included.
            group, token: divide the claim of a group instead of the unclaimed messages.

        Returns:
            The last position, which is `end` unless a limit was reached, and the ranges.
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
        """Yield the messages with start < sequence <= end in the order of their sequence, a few thousand per batch.

        Args:
            queue, source: the queue.
            start, end: the range; `end` None for the last stable position.
            columns: names from MESSAGE_SCHEMA in the desired order; None for all.
            include_body: False makes `body` null.
            group, token: read the claim of a group instead of the unclaimed messages.
            on_damaged: called with the lookup identifiers of messages that the queue manager cannot decode and leaves
                out; None logs them as errors.

        Returns:
            Record batches of MESSAGE_SCHEMA, or of the requested columns.
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
        """Return the position up to which the group has removed messages; None if the group is unknown."""
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
        """Remove the messages of the group's previous claim at or below `start`, and claim messages after it.

        A repeated call returns the same range while the claim exists, also after a restart of the queue manager, and
        fences the previous token. Claimed messages are hidden from all other readers.

        Args:
            queue, source: the queue.
            group: name of the consumer group.
            start: current position of the group: the end of a finished claim, or its cursor.
            max_messages, max_bytes: limits of the claim; at least one message is included.
            wait_seconds: maximum wait for a first message in seconds; the queue manager waits at most 60.
            token: token of the previous claim, which must not have been fenced. None takes over the group.
        """
        return Claim(
            **self._act(
                "claim", queue=queue, source=source, group=group, start=start, max_messages=max_messages,
                max_bytes=max_bytes, wait_seconds=wait_seconds, **_given({"token": token or None}),
            )
        )  # fmt: skip

    def commit(self, queue: str, group: str, end: int, source: str = "queue", token: str | None = None) -> int:
        """Remove the messages that the group has claimed at or below `end`. A repeated call changes nothing.

        With `token`, raises MsmqError if a later claim of the group has fenced this one.

        Returns:
            The cursor.
        """
        values = _given({"token": token or None})
        cursor: int = self._act("commit", queue=queue, source=source, group=group, end=end, **values)["cursor"]
        return cursor

    def release(self, queue: str, group: str, source: str = "queue", forget: bool = False) -> int:
        """Put back the messages that the group has claimed; with `forget`, also delete its cursor.

        Returns:
            The number of messages put back.
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
        """Store messages durably without making them visible.

        Args:
            sink: name of the sink.
            batch: number of the batch; increases.
            partition, attempt: partition of the batch, and attempt to write it.
            batches: rows with columns of WRITE_COLUMNS.
            default_queue: destination of rows without `destination_queue`.
            transactional: whether rows for outgoing queues are sent as transactional messages; for queues of this
                machine, this is detected. None means no.
            collect: skip rows that cannot be sent. It is called between batches and at the end, with a row number and
                the refused rows before it, in order. The result for rows before that number is final, so they need not
                be kept.
            query: identity of the query of all batches; a sink belongs to one query.

        Raises:
            MsmqError: without `collect`, for the first row that cannot be sent, with its number; in any case, for
                failures that do not concern a single row. Nothing is staged.
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
            sending = sending or begin(pa.schema([("body", pa.binary())]))  # an empty stage is valid
            return sending.finish()
        except BaseException:
            if sending is not None:
                sending.abandon()
                if sending.staged is not None:  # the stage is complete, but `collect` failed
                    with suppress(MsmqError, ConnectionError):
                        self.forget(sink, stages=[sending.staged])
            raise

    def finalize(
        self, sink: str, batch: int, stages: Iterable[Staged | str], query: str = "", once: bool = False
    ) -> None:
        """Make exactly these stages visible, atomically, and drop all others of this and earlier batches of the sink.

        A repeated call for the last batch of the sink succeeds and changes nothing. `once`: there are no further
        batches, so that the queue manager forgets the sink some time later.

        Raises:
            MsmqError: a stage does not exist, the batch is older than the last one of the sink, or another `query` has
                written the sink.
        """
        handles = [stage if isinstance(stage, str) else stage.handle for stage in stages]
        options = {"query": query or None, "once": once or None}
        self._act("finalize", sink=sink, batch=batch, stages=handles, **_given(options))

    def renew(self, sink: str) -> None:
        """Send a keep-alive, so that the stages of the sink are kept although nothing is written."""
        self._act("renew", sink=sink)

    def groups(self) -> list[GroupInfo]:
        """Return the consumer groups of all queues that the caller may receive from."""
        return [GroupInfo(**values) for values in self._act("groups")]

    def stages(self) -> list[StageInfo]:
        """Return stages that are not finalized: those of the caller; for administrators, all."""
        return [StageInfo(**values) for values in self._act("stages")]

    def last_batch(self, sink: str) -> int | None:
        """Return the last finalized batch of the sink; None if there is none."""
        batch: int | None = self._act("last_batch", sink=sink)["batch"]
        return batch

    def forget(
        self, sink: str, batch: int | None = None, stages: Iterable[Staged | str] | None = None, memory: bool = False
    ) -> int:
        """Drop stages of a sink that are not finalized: all, those of one batch, or the given ones. With `memory`, also
        forget its last batch number and query, so that another query may write it.

        Returns:
            The number of dropped stages.
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
    """Return the arguments that are not None, since older servers do not support all of them."""
    return {name: value for name, value in arguments.items() if value is not None}


def _log_damage(queue: str, damaged: list[int]) -> None:
    keys = ", ".join(f"{key:#x}" for key in damaged)
    logger.error("%s: %d messages can't be decoded and were left out, by lookup id: %s", queue, len(damaged), keys)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
