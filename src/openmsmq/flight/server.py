"""The Flight server: a process of its own, so that no stream ever holds the queue manager's event loop.

It asks the daemon for positions and decisions, and reads the records themselves from the daemon's segment files.
"""

from __future__ import annotations

import base64
import binascii
import functools
import gc
import json
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from openmsmq.bulk.message_columns import END_OF_ROWS, MESSAGE_SCHEMA
from openmsmq.flight.record_columns import KEY_COLUMNS, Records, are_sound, key_columns
from openmsmq.flight.rows import RowEncoder, checked_schema, validate
from openmsmq.flight.segment_reader import SegmentReader
from openmsmq.flight.slices import SEQUENCE_MASK, SliceReader
from openmsmq.flight.uploading import Upload
from openmsmq.model.errors import HResult, IllegalPropertyValue, MsmqError, OperationCancelled
from openmsmq.processes import logs
from openmsmq.processes.flight_requests import ACTIONS, check, invalid, parse, shown
from openmsmq.processes.link import Answer, DaemonLink

logger = logging.getLogger(__name__)

_CALLER = "caller"


T = TypeVar("T")


def failure(error: MsmqError) -> flight.FlightServerError:
    """Convert an error for Flight: HRESULT and detail for the client, a text for other programs."""
    information = json.dumps({"hresult": error.hresult, "detail": error.detail}).encode()
    return flight.FlightServerError(str(error), extra_info=information)


def _failures(error: Exception, what: str) -> Any:
    """Convert an error for a client: never a traceback, which goes to the log."""
    if isinstance(error, MsmqError):
        return failure(error)
    if isinstance(error, flight.FlightError):
        return error
    if isinstance(error, pa.ArrowException):
        return failure(invalid(f"{what}: not valid Arrow data: {str(error).partition(chr(10))[0]}"))
    logger.error("%s failed: %r", what, error, exc_info=error)
    return failure(MsmqError(HResult.MQ_ERROR, f"{what} failed, see the queue manager's log"))


def _translating(method: Callable[..., T]) -> Callable[..., T]:
    """Give the client of a call its failure as Flight carries it."""

    @functools.wraps(method)
    def translated(*arguments: Any) -> T:
        try:
            return method(*arguments)
        except Exception as error:
            raise _failures(error, method.__name__) from error

    return translated


class _Credentials(flight.ServerMiddleware):  # type: ignore[misc]
    """Credentials of a call; `user` is None for an anonymous one."""

    def __init__(self, user: str | None, password: str) -> None:
        super().__init__()
        self.user, self.password = user, password


class Authentication(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """HTTP's basic authentication. Whose call it is says `FlightServer._caller`, which knows the host, too."""

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> _Credentials:
        user: str | None = None
        password = ""
        for name, values in headers.items():
            if name.lower() == "authorization" and values:
                scheme, _, text = values[0].partition(" ")
                try:
                    decoded = base64.b64decode(text, validate=True).decode()
                except (binascii.Error, UnicodeDecodeError):
                    decoded = ""
                user, separator, password = decoded.partition(":")
                if scheme.lower() != "basic" or not separator:
                    raise flight.FlightUnauthenticatedError("the authorization header has to be Basic user:password")
        return _Credentials(user, password)


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Tickets and commands are the JSON objects that `client.BulkClient` sends."""

    def __init__(self, location: str, link: DaemonLink, certificates: list[tuple[bytes, bytes]] | None = None) -> None:
        self._link = link
        self._layout = link.call("describe")
        super().__init__(location, tls_certificates=certificates or [], middleware={_CALLER: Authentication()})

    def _caller(self, context: flight.ServerCallContext) -> list[str] | None:
        """The ticket of who calls, None for an anonymous caller. Raises FlightUnauthenticatedError."""
        given = context.get_middleware(_CALLER)
        try:
            login = check("authenticate", {"user": given.user, "password": given.password, "peer": _host(context)})
            ticket: list[str] | None = self._link.call("authenticate", **login)
        except MsmqError as error:
            raise flight.FlightUnauthenticatedError(error.detail) from error
        return ticket

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        return list(ACTIONS.items())

    @_translating
    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[bytes]:
        if action.type not in ACTIONS:
            raise invalid(f"no action {shown(action.type)}; allowed: {', '.join(ACTIONS)}")
        values = check(action.type, parse(action.body.to_pybytes() or b"{}"))
        answer = self._link.call(action.type, caller=self._caller(context), **values)
        return iter([json.dumps(answer).encode()])

    @_translating
    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        values = check("read", parse(ticket.ticket))
        names = values.pop("columns", None) or MESSAGE_SCHEMA.names
        unknown = [name for name in names if name not in MESSAGE_SCHEMA.names]
        if unknown:
            raise IllegalPropertyValue(
                detail=f"columns {', '.join(map(shown, unknown))}: there are {', '.join(MESSAGE_SCHEMA.names)}"
            )
        include_body = values.pop("include_body", True)
        query = {"caller": self._caller(context), "queue": "", "source": "queue", "start": 0, **values}
        first = self._link.ask("slice", **query)
        first.result()  # refused before the stream begins, if at all
        schema = pa.schema([MESSAGE_SCHEMA.field(name) for name in names])
        return flight.GeneratorStream(schema, self._batches(query, first, schema, include_body))

    def _batches(
        self, query: dict[str, Any], asked: Future[Answer], schema: pa.Schema, include_body: bool
    ) -> Iterator[pa.RecordBatch | tuple[pa.RecordBatch, bytes]]:
        """Slice by slice; while one is read and sent, the next is asked for, and no more: that is the backpressure."""
        where = {name: query[name] for name in ("caller", "queue", "source")}

        def locate(keys: bytes) -> memoryview:
            return self._link.ask("locate", keys, **where).result()[1]

        needs_no_records = KEY_COLUMNS.issuperset(schema.names)
        reader = SliceReader(SegmentReader(**self._layout), locate)
        try:
            while True:
                values, data = asked.result()
                count = values["count"]
                if not count:
                    return
                keys = np.frombuffer(data, np.uint64, count)
                last = int(keys[-1] & SEQUENCE_MASK)
                asked = self._link.ask("slice", **{**query, "start": last, "end": values["end"]})
                path, source, aborts = values["path"], values["source"], values["aborts"]
                if needs_no_records:
                    yield key_columns(keys, path, source, schema.names)
                    continue
                found = reader.read(keys, data)
                sound = are_sound(found.buffer, found.starts, found.sizes)
                keys, starts, sizes = found.keys[sound], found.starts[sound], found.sizes[sound]
                damaged = [*found.damaged.tolist(), *found.keys[~sound].tolist()]
                rows = pa.RecordBatch.from_pylist([], schema)
                if len(keys):
                    rows = Records(
                        keys, found.buffer, starts, sizes, path, source, include_body, aborts
                    ).batch(schema.names)  # fmt: skip
                if damaged:
                    yield rows, _damage(path or source, damaged)
                elif len(keys):
                    yield rows
        except Exception as error:
            raise _failures(error, "reading") from error
        finally:
            reader.close()

    @_translating
    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        caller = self._caller(context)
        handle = None
        try:
            values = check("write", parse(descriptor.command or b""))
            default = values.pop("default_queue", None)
            checked_schema(reader.schema)
            begun = self._link.call("begin_stage", caller=caller, **values)
            handle = begun["handle"]

            def report(values: dict[str, Any]) -> None:
                writer.write(json.dumps(values).encode())

            upload = Upload(self._link, caller, handle, report if values.get("collect") else None)
            encoder = RowEncoder(upload.target, default, bytes.fromhex(begun["sender"]), upload.refuse)
            staged = upload.run(encoder, _rows(reader))
            handle = None
        finally:
            if handle is not None:
                self._link.call("drop_stage", caller=caller, stage=handle)
        report(staged)


def _damage(queue: str, damaged: list[int]) -> bytes:
    """The metadata that reports messages which can't be decoded: `{"damaged": [lookup identifier, ...]}`."""
    for key in damaged:
        logger.error(
            "queue %s: message %#x can't be decoded and was skipped in a stream; receive it by lookup id to remove it",
            queue,
            key,
        )
    return json.dumps({"damaged": damaged}).encode()


def _rows(reader: flight.MetadataRecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Raises OperationCancelled when the stream ends without its mark."""
    for chunk in reader:
        if chunk.data is not None:
            validate(chunk.data)
            yield chunk.data
        elif chunk.app_metadata is not None and chunk.app_metadata.to_pybytes() == END_OF_ROWS:
            return
    raise OperationCancelled(detail="stream ended before its end-of-data marker: upload incomplete")


def _host(context: flight.ServerCallContext) -> str:
    """The host of a peer as gRPC names it: `ipv4:127.0.0.1:5`, `ipv6:%5B::1%5D:5`."""
    text: str = unquote(context.peer()).partition(":")[2]
    return text.rpartition(":")[0].strip("[]")


def main() -> None:
    """Serve on the address that the daemon gives, over the socket that is file descriptor `argv[1]`."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    options = json.loads(sys.stdin.readline())
    logs.configure(options["log_level"], options["log_format"])
    certificates = None
    scheme = "grpc+tcp"
    if options["certificate"]:
        scheme = "grpc+tls"
        with open(options["certificate"], "rb") as certificate, open(options["key"], "rb") as key:
            certificates = [(certificate.read(), key.read())]
    link = DaemonLink(connection)
    try:
        server = FlightServer(f"{scheme}://{options['host']}:{options['port']}", link, certificates)
    except (pa.ArrowException, OSError) as error:
        sys.exit(f"Arrow Flight on {options['host']}:{options['port']}: {error}")
    gc.freeze()  # the collector need not look at all modules again and again
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
