"""The Flight server: a process of its own, so that no stream ever holds the queue manager's event loop.

It asks the daemon for positions and decisions, and reads the records themselves from the daemon's segment files.
"""

from __future__ import annotations

import base64
import binascii
import gc
import json
import socket
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from openmsmq.bulk.columns import Records
from openmsmq.bulk.link import Answer, Link
from openmsmq.bulk.rows import Encoder, checked_schema
from openmsmq.bulk.schema import END_OF_ROWS, MESSAGE_SCHEMA
from openmsmq.bulk.segments import SegmentReader
from openmsmq.bulk.slices import SEQUENCE_MASK, SliceReader
from openmsmq.bulk.uploading import Upload
from openmsmq.model.errors import HResult, IllegalPropertyValue, MsmqError, OperationCancelled

ACTIONS = {
    "queues": "what the caller may read, with counts and last stable sequences",
    "position": "first, last and stable sequence of a queue, and its count",
    "plan": "a range divided into parts of equal count",
    "cursor": "how far a consumer group has removed messages",
    "groups": "consumer groups of the queues that the caller may receive from",
    "claim": "claim messages for a consumer group",
    "commit": "receive what a consumer group has claimed",
    "release": "put back what a consumer group has claimed",
    "finalize": "make the stages of a batch visible",
    "stages": "what is staged and not finalized, by the caller; by everybody, for administrators",
    "last_batch": "the last batch of a sink",
    "forget": "drop stages",
}
_CALLER = "caller"


def failure(error: MsmqError) -> flight.FlightServerError:
    """As Flight carries it: HRESULT and detail for the client, a text for everybody else."""
    information = json.dumps({"hresult": error.hresult, "detail": error.detail}).encode()
    return flight.FlightServerError(str(error), extra_info=information)


class _Caller(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, caller: list[str | None]) -> None:
        super().__init__()
        self.caller = caller


class Authentication(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """HTTP's basic authentication against the daemon's users."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> _Caller:
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
        try:
            return _Caller(self._link.call("authenticate", user=user, password=password))
        except MsmqError as error:
            raise flight.FlightUnauthenticatedError(error.detail) from error


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """Tickets and commands are the JSON objects that `client.BulkClient` sends."""

    def __init__(self, location: str, link: Link, certificates: list[tuple[bytes, bytes]] | None = None) -> None:
        self._link = link
        self._layout = link.call("describe")
        super().__init__(location, tls_certificates=certificates or [], middleware={_CALLER: Authentication(link)})

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        return list(ACTIONS.items())

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[bytes]:
        try:
            if action.type not in ACTIONS:
                raise MsmqError(
                    HResult.MQ_ERROR_INVALID_PARAMETER, f"no action {action.type!r}; allowed: {', '.join(ACTIONS)}"
                )
            values = _object(action.body.to_pybytes() or b"{}")
            answer = self._link.call(action.type, caller=_caller(context), **values)
        except MsmqError as error:
            raise failure(error) from error
        return iter([json.dumps(answer).encode()])

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        try:
            values = _object(ticket.ticket)
            names = values.pop("columns", None) or MESSAGE_SCHEMA.names
            unknown = [name for name in names if name not in MESSAGE_SCHEMA.names]
            if unknown:
                raise IllegalPropertyValue(
                    detail=f"columns {', '.join(unknown)}: there are {', '.join(MESSAGE_SCHEMA.names)}"
                )
            include_body = values.pop("include_body", True)
            query = {"caller": _caller(context), "queue": "", "source": "queue", "end": None, **values}
            first = self._link.ask("slice", **{"start": 0, **query})
            first.result()  # refused before the stream begins, if at all
        except MsmqError as error:
            raise failure(error) from error
        schema = pa.schema([MESSAGE_SCHEMA.field(name) for name in names])
        return flight.GeneratorStream(schema, self._batches(query, first, names, include_body))

    def _batches(
        self, query: dict[str, Any], asked: Future[Answer], names: Sequence[str], include_body: bool
    ) -> Iterator[pa.RecordBatch]:
        """Slice by slice; while one is read and sent, the next is asked for, and no more: that is the backpressure."""
        where = {name: query[name] for name in ("caller", "queue", "source")}

        def locate(keys: bytes) -> memoryview:
            return self._link.ask("locate", keys, **where).result()[1]

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
                keys, buffer, starts, sizes = reader.read(keys, data)
                if len(keys):
                    path, source, aborts = values["path"], values["source"], values["aborts"]
                    yield Records(keys, buffer, starts, sizes, path, source, include_body, aborts).batch(names)
        except MsmqError as error:
            raise failure(error) from error
        finally:
            reader.close()

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        caller = _caller(context)
        handle = None
        try:
            values = _object(descriptor.command)
            default = values.pop("default_queue", None)
            checked_schema(reader.schema)
            begun = self._link.call("begin_stage", caller=caller, **values)
            handle = begun["handle"]

            def tell(values: dict[str, Any]) -> None:
                writer.write(json.dumps(values).encode())

            upload = Upload(self._link, caller, handle, tell if values.get("collect") else None)
            encoder = Encoder(upload.target, default, bytes.fromhex(begun["sender"]), upload.refuse)
            staged = upload.run(encoder, _rows(reader))
            handle = None
        except MsmqError as error:
            raise failure(error) from error
        finally:
            if handle is not None:
                self._link.call("drop_stage", caller=caller, stage=handle)
        tell(staged)


def _rows(reader: flight.MetadataRecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Raises OperationCancelled when the stream ends without its mark."""
    for chunk in reader:
        if chunk.data is not None:
            yield chunk.data
        elif chunk.app_metadata.to_pybytes() == END_OF_ROWS:
            return
    raise OperationCancelled(detail="the rows broke off: the mark of their end did not come")


def _caller(context: flight.ServerCallContext) -> list[str | None]:
    middleware = context.get_middleware(_CALLER)
    assert isinstance(middleware, _Caller)
    return middleware.caller


def _object(text: bytes) -> dict[str, Any]:
    """The JSON object of a request. Raises MsmqError."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"not JSON: {error}") from error
    if not isinstance(values, dict) or {"op", "caller", "data"} & values.keys():
        raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "expected a JSON object of arguments")
    return values


def main() -> None:
    """Serve on the address that the daemon gives, over the socket that is file descriptor `argv[1]`."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    options = json.loads(sys.argv[2])
    certificates = None
    scheme = "grpc+tcp"
    if options["certificate"]:
        scheme = "grpc+tls"
        with open(options["certificate"], "rb") as certificate, open(options["key"], "rb") as key:
            certificates = [(certificate.read(), key.read())]
    link = Link(connection)
    try:
        server = Server(f"{scheme}://{options['host']}:{options['port']}", link, certificates)
    except (pa.ArrowException, OSError) as error:
        sys.exit(f"Arrow Flight on {options['host']}:{options['port']}: {error}")
    gc.freeze()  # the collector need not look at all modules again and again
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
