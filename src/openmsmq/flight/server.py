"""The Flight server: a separate process, so that streams never block the queue manager's event loop.

It requests positions and decisions from the daemon, and reads the records directly from the daemon's segment files.
"""

from __future__ import annotations

import base64
import functools
import gc
import json
import logging
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.flight as flight

from openmsmq.bulk.message_columns import END_OF_ROWS
from openmsmq.flight.arrow_listener import ArrowListener
from openmsmq.flight.reading import RangeReading
from openmsmq.flight.rows import validate
from openmsmq.flight.uploading import staged
from openmsmq.model.errors import HResult, MsmqError, OperationCancelled
from openmsmq.processes import logs
from openmsmq.processes.flight_requests import ACTIONS, LONGEST_WAIT, check, invalid, parse, shown
from openmsmq.processes.link import DaemonLink

logger = logging.getLogger(__name__)

_CALLER = "caller"
_TURN = 0.5  # seconds for which a claim waits before it looks whether its client is still there

T = TypeVar("T")


def failure(error: MsmqError) -> flight.FlightServerError:
    """Convert an error for Flight: HRESULT and detail for the client, a text for other programs."""
    information = json.dumps({"hresult": error.hresult, "detail": error.detail}).encode()
    return flight.FlightServerError(str(error), extra_info=information)


def _failures(error: Exception, what: str) -> Any:
    """Convert an error for a client, without its traceback, which is logged."""
    if isinstance(error, MsmqError):
        return failure(error)
    if isinstance(error, flight.FlightError):
        return error
    if isinstance(error, pa.ArrowException):
        return failure(invalid(f"{what}: not valid Arrow data: {str(error).partition(chr(10))[0]}"))
    logger.error("%s failed: %r", what, error, exc_info=error)
    return failure(MsmqError(HResult.MQ_ERROR, f"{what} failed, see the queue manager's log"))


def _translating(method: Callable[..., T]) -> Callable[..., T]:
    """Convert exceptions of a call to Flight errors for its client."""

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
    """HTTP basic authentication. `FlightServer._caller` authenticates the call, because it also knows the host."""

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> _Credentials:
        user: str | None = None
        password = ""
        for name, values in headers.items():
            if name.lower() == "authorization" and values:
                scheme, _, text = values[0].partition(" ")
                try:
                    decoded = base64.b64decode(text, validate=True).decode()
                except ValueError:  # not ASCII, not base64 or not UTF-8
                    decoded = ""
                user, separator, password = decoded.partition(":")
                if scheme.lower() != "basic" or not separator:
                    raise flight.FlightUnauthenticatedError("the authorization header has to be Basic user:password")
        return _Credentials(user, password)


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Tickets and commands are the JSON objects that `client.BulkClient` sends."""

    def __init__(
        self,
        location: str,
        link: DaemonLink,
        layout: dict[str, Any],
        arrow_port: int | None,
        certificates: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        """`layout` is that of the store, as described by the daemon; `arrow_port` is that of `ArrowListener`, None if
        it does not listen."""
        self._link, self._layout, self._arrow_port = link, layout, arrow_port
        super().__init__(location, tls_certificates=certificates or [], middleware={_CALLER: Authentication()})

    def _caller(self, context: flight.ServerCallContext) -> list[str] | None:
        """Return the ticket of the caller, None for an anonymous one. Raises FlightUnauthenticatedError."""
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
        values, caller = check(action.type, parse(action.body.to_pybytes() or b"{}")), self._caller(context)
        if action.type == "arrow_port":
            answer: Any = {"port": self._arrow_port, "abilities": ["write", "decode"]}
        elif action.type == "queues":
            return iter([self._link.ask("queues", caller=caller).result()[1].tobytes()])
        elif action.type == "claim":
            answer = self._claim(context, caller, values)
        else:
            answer = self._link.call(action.type, caller=caller, **values)
        return iter([json.dumps(answer).encode()])

    def _claim(self, context: flight.ServerCallContext, caller: list[str] | None, values: dict[str, Any]) -> Any:
        """Wait for messages in short turns, and only while the client waits: a claim for a client that is gone would
        fence its successor."""
        end = time.monotonic() + min(values.pop("wait_seconds", None) or 0, LONGEST_WAIT)
        while True:
            remaining = end - time.monotonic()
            answer = self._link.call("claim", caller=caller, wait_seconds=max(0, min(remaining, _TURN)), **values)
            if answer["count"] or remaining <= _TURN or context.is_cancelled():
                return answer
            values["token"] = answer["token"] or None

    @_translating
    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        values = check("read", parse(ticket.ticket))
        reading = RangeReading(self._link, self._layout, self._caller(context), values)
        return flight.GeneratorStream(reading.schema, self._batches(reading))

    def _batches(self, reading: RangeReading) -> Iterator[pa.RecordBatch | tuple[pa.RecordBatch, bytes]]:
        try:
            for portion in reading.portions():
                if portion.damaged:
                    yield portion.rows, json.dumps({"damaged": portion.damaged}).encode()
                elif portion.rows.num_rows:
                    yield portion.rows
        except Exception as error:
            raise _failures(error, "reading") from error

    @_translating
    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        def report(values: dict[str, Any]) -> None:
            writer.write(json.dumps(values).encode())

        values = check("write", parse(descriptor.command or b""))
        report(staged(self._link, self._caller(context), values, reader.schema, _rows(reader), report))


def _rows(reader: flight.MetadataRecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an upload. Raises OperationCancelled if the stream ends without its end marker."""
    for chunk in reader:
        if chunk.data is not None:
            validate(chunk.data)
            yield chunk.data
        elif chunk.app_metadata is not None and chunk.app_metadata.to_pybytes() == END_OF_ROWS:
            return
    raise OperationCancelled(detail="stream ended before its end-of-data marker: upload incomplete")


def _host(context: flight.ServerCallContext) -> str:
    """Return the host of a peer address of gRPC: `ipv4:127.0.0.1:5`, `ipv6:%5B::1%5D:5`."""
    text: str = unquote(context.peer()).partition(":")[2]
    return text.rpartition(":")[0].strip("[]")


def _arrow_listener(options: dict[str, Any], link: DaemonLink, layout: dict[str, Any]) -> ArrowListener | None:
    """Start listening for plain Arrow streams. If the default port is in use, the Flight server runs without them."""
    host, port = options["host"].strip("[]"), options["arrow_port"]
    try:
        listener = ArrowListener(host, port, link, layout, options["certificate"], options["key"])
    except OSError as error:
        if options["arrow_port_is_given"]:
            sys.exit(f"Arrow streams on {host}:{port} (setting arrow_port): {error}")
        logger.warning(
            "Arrow streams on %s:%d: %s; the Spark connector can't be used here. Setting arrow_port names another "
            "port", host, port, error,
        )  # fmt: skip
        return None
    listener.start()
    return listener


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
    layout = link.call("describe")
    listener = _arrow_listener(options, link, layout)
    location = f"{scheme}://{options['host']}:{options['port']}"
    try:
        server = FlightServer(location, link, layout, None if listener is None else listener.port, certificates)
    except (pa.ArrowException, OSError) as error:
        sys.exit(f"Arrow Flight on {options['host']}:{options['port']}: {error}")
    gc.freeze()  # exclude the imported modules from garbage collection
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
