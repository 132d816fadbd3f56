"""Read from any MSMQ server by MS-MQRR: a cursor scans the queue; messages are read and removed by lookup identifier.

The protocol has no positions, so a scan begins at the front and skips messages outside the range. A queue is one
partition, because each of several would scan the whole queue. A server other than openmsmq does not report which
transactions are open: their messages may appear below a position that a stream has passed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa

import openmsmq
from openmsmq.bulk.client import Lag, QueueInfo, QueuePosition, Range, ReadPlan
from openmsmq.bulk.message_columns import MESSAGE_SCHEMA
from openmsmq.client.dead_letters import walk
from openmsmq.client.sync import MessageQueue
from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import (
    BindError,
    MessageNotFound,
    MsmqError,
    QueueNotFound,
    SharingViolation,
    UnreadableMessage,
)
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.message import NULL_GUID, NULL_IDENTIFIER, Message, identifier_text
from openmsmq.model.queue_names import full_name
from openmsmq.model.text import as_unicode
from openmsmq.spark.options import DataSourceOptions, OptionError
from openmsmq.spark.retry import RetryPolicy

_CHUNK = 1024
_TURN = 5.0  # seconds to wait for the previous receiver to close, e.g. a stream that was just stopped
_MACHINE = {"deadletter": "DIRECT=OS:.\\SYSTEM$;DEADLETTER", "xactdeadletter": "DIRECT=OS:.\\SYSTEM$;DEADXACT"}


class RemotePlane:
    """A `plane.QueueBackend` that can also receive by lists of lookup identifiers."""

    def __init__(self, options: DataSourceOptions, is_known: bool = False) -> None:
        """Connect; retry for `retrySeconds` if the server `is_known`. Raises RpcConnectionError."""
        if options.source == "outgoing":
            raise OptionError("source=outgoing needs Arrow Flight (protocol=flight): MS-MQRR opens no outgoing queue")
        password = options.password if options.user else ""
        patience = RetryPolicy(options.retrySeconds, f"{options.host}:{options.port}", is_known)
        while True:
            try:
                self._manager = openmsmq.connect(options.host, options.port, user=options.user, password=password)
                break
            except ConnectionError as error:
                patience.wait(error)
        self._receivers: dict[tuple[str, str], MessageQueue] = {}
        self._path_names: dict[str, str] = {}

    def close(self) -> None:
        self._manager.close()

    def queues(self) -> list[QueueInfo]:
        """List private queues; their messages are not counted."""
        return [QueueInfo(name, "queue", False, 0, 0, 0) for name in self._manager.queues()]

    def check(self, queue: str, source: str = "queue") -> str:
        """Return the path name of a queue given in any form. Raises MsmqError if the caller cannot read the queue."""
        try:
            self._manager.open(_name(queue, source), "peek", protocol="remoteread").close()
        except QueueNotFound as error:  # which does not name the queue
            raise QueueNotFound(detail=queue or source) from error
        return self._path_name(queue, source)

    def position(self, queue: str, source: str = "queue", group: str | None = None) -> QueuePosition:
        sequences = sorted(m.sequence for m in self._walk(queue, source))
        if not sequences:
            return QueuePosition(0, 0, 0, 0)
        return QueuePosition(sequences[0], sequences[-1], sequences[-1], len(sequences))

    def lag(self, queue: str, source: str = "queue", start: int = 0, group: str | None = None) -> Lag:
        sequences = [message.sequence for message in self._walk(queue, source)]
        return Lag(sum(sequence > start for sequence in sequences), max(sequences, default=0))

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
        found = sorted((m.sequence, m.size) for m in self._walk(queue, source) if _within(m.sequence, start, end))
        total = 0
        for count, (_, size) in enumerate(found):
            total += size
            if count == max_messages or (max_bytes is not None and count and total > max_bytes):
                found = found[:count]
                break
        if not found:
            return ReadPlan(start if end is None else end, ())
        last = found[-1][0]
        return ReadPlan(last, (Range(start, last, len(found), sum(size for _, size in found)),))

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
        names = list(columns) if columns is not None else MESSAGE_SCHEMA.names
        chunk: list[Message] = []
        for message in self._walk(queue, source):
            if _within(message.sequence, start, end):
                chunk.append(message)
            if len(chunk) == _CHUNK:
                yield record_batch(chunk, self._path_name(queue, source), source, names, include_body)
                chunk = []
        if chunk:
            yield record_batch(chunk, self._path_name(queue, source), source, names, include_body)

    # -- receiving ---------------------------------------------------------------------------------------------

    def walk_as_receiver(self, queue: str, source: str) -> Iterator[Message]:
        """Scan from the front and exclude other receivers from now on. Raises SharingViolation."""
        for _, message in walk(self._receiver(queue, source), partial(_log_unreadable, queue or source)):
            yield message

    def read_listed(
        self, queue: str, source: str, identifiers: Sequence[int], names: Sequence[str], include_body: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Read messages by lookup identifier; skip those that are gone."""
        with self._manager.open(_name(queue, source), "peek", protocol="remoteread") as opened:
            for at in range(0, len(identifiers), _CHUNK):
                chunk = []
                for identifier in identifiers[at : at + _CHUNK]:
                    with contextlib.suppress(MessageNotFound):
                        chunk.append(opened.peek_by_lookup_id(identifier))
                yield record_batch(chunk, self._path_name(queue, source), source, names, include_body)

    def remove(self, queue: str, source: str, identifiers: Sequence[int]) -> None:
        """Remove messages by lookup identifier with two-phase receives; those that are gone were removed before."""
        opened = self._receiver(queue, source)
        for identifier in identifiers:
            with contextlib.suppress(MessageNotFound):
                opened.receive_by_lookup_id(identifier)

    def _receiver(self, queue: str, source: str) -> MessageQueue:
        """Open the queue exclusively for this process; the server closes it when the process ends."""
        if (queue, source) not in self._receivers:
            deadline = time.monotonic() + _TURN
            while True:
                try:
                    opened = self._manager.open(_name(queue, source), "receive", exclusive=True, protocol="remoteread")
                    break
                except SharingViolation as error:
                    if time.monotonic() >= deadline:
                        what = f"{queue or source} has another receiver, perhaps a stream that still runs"
                        raise SharingViolation(detail=what) from error
                    time.sleep(0.2)
            self._receivers[queue, source] = opened
        return self._receivers[queue, source]

    def _path_name(self, queue: str, source: str) -> str:
        """Return the value of the column `queue`, the same as over Arrow Flight: the path name that the server gives
        the queue."""
        if source in _MACHINE:
            return ""
        if queue not in self._path_names:
            try:
                path_name = self._manager.management(_name(queue, "queue"))["path_name"]
            except (MsmqError, BindError):  # no right to query, or no such interface: use the name as given
                path_name = None
            self._path_names[queue] = path_name or queue
        return self._path_names[queue]

    def _walk(self, queue: str, source: str) -> Iterator[Message]:
        with self._manager.open(_name(queue, source), "peek", protocol="remoteread") as opened:
            for _, message in walk(opened, partial(_log_unreadable, queue or source)):
                yield message


def _log_unreadable(queue: str, error: UnreadableMessage) -> None:
    """Log unreadable messages; not on each repeated scan of a stream."""
    LEFT_OUT.note(f"messages of {queue} by MS-MQRR", f"sequence {error.sequence}, which stays in its queue,", error)


def _within(sequence: int, start: int, end: int | None) -> bool:
    return start < sequence and (end is None or sequence <= end)


def _name(queue: str, source: str) -> str:
    if source in _MACHINE:
        return _MACHINE[source]
    name = full_name(queue)
    return f"{name};JOURNAL" if source == "journal" else name


def _time(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def _limited(seconds: int) -> int | None:
    return None if seconds == INFINITE else seconds


def _identifier(identifier: bytes) -> str | None:
    return None if identifier == NULL_IDENTIFIER else identifier_text(identifier)


# Column -> its value of a message. The caller supplies the columns of the queue.
_VALUES: dict[str, Callable[[Message], Any]] = {
    "sequence": lambda m: m.sequence,
    "lookup_id": lambda m: m.lookup_identifier,
    "message_id": lambda m: identifier_text(m.identifier),
    "correlation_id": lambda m: _identifier(m.correlation_identifier),
    "sent_time": lambda m: datetime.fromtimestamp(m.sent_time, UTC),
    "arrival_time": lambda m: datetime.fromtimestamp(m.arrival_time, UTC),
    "class": lambda m: m.message_class,
    "priority": lambda m: m.priority,
    "recoverable": lambda m: m.recoverable,
    "label": lambda m: m.label,
    "body": lambda m: m.body,
    "body_type": lambda m: m.body_type,
    "body_size": lambda m: len(m.body),
    "acknowledgment": lambda m: m.acknowledgements_requested,
    "journaling": lambda m: m.journaling_requested,
    "application_tag": lambda m: m.application_tag,
    "extension": lambda m: m.extension or None,
    "time_to_reach_queue": lambda m: _limited(m.time_to_reach_queue),
    "time_to_be_received": lambda m: _limited(m.time_to_be_received),
    "destination_queue": lambda m: m.destination_queue_format_name or None,
    "response_queue": lambda m: m.response_queue_format_name or None,
    "admin_queue": lambda m: m.administration_queue_format_name or None,
    "source_machine": lambda m: str(UUID(bytes_le=m.source_machine_identifier or NULL_GUID)),
    "sender_id": lambda m: m.sender_identifier or None,
    "sender_id_type": lambda m: m.sender_identifier_type,
    "sender_certificate": lambda m: m.sender_certificate or None,
    "authenticated": lambda m: bool(m.authentication_level),
    "privacy_level": lambda m: m.privacy_level,
    "transaction_id": lambda m: _identifier(m.transaction_identifier),
    "first_in_transaction": lambda m: m.first_in_transaction,
    "last_in_transaction": lambda m: m.last_in_transaction,
    "abort_count": lambda m: m.abort_count,
    "move_count": lambda m: m.move_count,
    "last_move_time": lambda m: _time(m.last_move_time),
}


def record_batch(
    messages: Sequence[Message], queue: str, source: str, names: Sequence[str], include_body: bool = True
) -> pa.RecordBatch:
    """Convert messages to rows of the named columns of MESSAGE_SCHEMA."""
    fixed = {"queue": queue, "source": source} | ({} if include_body else {"body": None})
    arrays = []
    for name in names:
        kind = MESSAGE_SCHEMA.field(name).type
        if name in fixed:
            arrays.append(pa.array([fixed[name]] * len(messages), kind))
        else:
            values = [_VALUES[name](message) for message in messages]
            if kind == pa.int32():  # unsigned on the wire; same bits as over Arrow Flight
                values = [value - (1 << 32) if value >= 1 << 31 else value for value in values]
            elif kind == pa.string():
                values = [None if value is None else as_unicode(value) for value in values]
            arrays.append(pa.array(values, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([MESSAGE_SCHEMA.field(name) for name in names]))
