"""Arrow streams over TCP or TLS: the reads and uploads of Arrow Flight for peers that have Arrow but no gRPC.

One connection carries one request. docs/bulk.md describes the protocol. Until a peer has sent its request, it uses a
socket but no thread; then the daemon decides whether the caller may execute it.
"""

from __future__ import annotations

import json
import logging
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from openmsmq.flight.reading import RangeReading
from openmsmq.flight.rows import validate
from openmsmq.flight.uploading import staged
from openmsmq.model.errors import HResult, InsufficientResources, MsmqError, OperationCancelled
from openmsmq.model.shares import Shares
from openmsmq.processes.flight_requests import check, invalid, parse, shown
from openmsmq.processes.link import DaemonLink

logger = logging.getLogger(__name__)

Socket = socket.socket | ssl.SSLSocket

MOST_WAITING: Final = 256  # peers without a request; above this, the oldest is disconnected
WAITING_OF_HOST: Final = 64  # of one host; above this, its oldest is disconnected
MOST_READS: Final = 512  # at the same time
READS_OF_HOST: Final = 256
MOST_UPLOADS: Final = 256  # concurrent writers; separate, so that stalled writers never delay readers
UPLOADS_OF_HOST: Final = 128
LONGEST_REQUEST: Final = 64 << 10  # bytes
REQUEST_SECONDS: Final = 10.0  # seconds from connection to complete request, including TLS
_STALLED_SECONDS: Final = 3600.0  # seconds a peer may take for one record batch
_DEAD_SECONDS: Final = 120  # seconds without a TCP acknowledgment
_DRAIN_SECONDS: Final = 30.0  # seconds for reading the rest of a refused upload
_SMALL: Final = 16 << 10  # bytes; smaller pieces are combined before they are sent
_LARGEST_PART: Final = 512 << 20  # maximum bytes in the body of one record batch
_PAUSE: Final = 0.1  # seconds to wait if no descriptor is left for a new connection


class _Busy(InsufficientResources):
    """Too many requests are being served; the same request may succeed later."""


@dataclass(slots=True)
class _Peer:
    """A connection whose request is incomplete."""

    socket: Socket
    host: str
    deadline: float
    received: bytearray = field(default_factory=bytearray)
    is_open: bool = True  # after the handshake of TLS


class ArrowListener:
    """Accepts connections in one thread and serves each request in its own thread."""

    def __init__(
        self, host: str, port: int, link: DaemonLink, layout: dict[str, Any], certificate: str = "", key: str = ""
    ) -> None:
        """Listen. Raises OSError.

        Args:
            host, port: address; with port 0, the system chooses.
            link, layout: as for `RangeReading`.
            certificate, key: PEM files; plain text without.
        """
        self._tls: ssl.SSLContext | None = None
        if certificate:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
            self._tls.load_cert_chain(certificate, key)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=128)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._link, self._layout = link, layout
        self._peers: dict[int, _Peer] = {}  # by descriptor, the oldest first
        self._waiting = Shares[str](MOST_WAITING, WAITING_OF_HOST)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._served = {
            "read": Shares[str](MOST_READS, READS_OF_HOST), "write": Shares[str](MOST_UPLOADS, UPLOADS_OF_HOST),
        }  # fmt: skip
        self._serving = threading.Lock()  # guards the above

    def start(self) -> None:
        threading.Thread(target=self._run, name="Arrow streams", daemon=True).start()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select(self._patience()):
                if key.fileobj is self._listener:
                    self._accept()
                elif (peer := self._peers.get(key.fd)) is not None:
                    self._hear(peer)
            now = time.monotonic()
            for peer in [peer for peer in self._peers.values() if peer.deadline <= now]:
                self._cut_off(peer)

    def _patience(self) -> float | None:
        oldest = next(iter(self._peers.values()), None)
        return None if oldest is None else max(0.0, oldest.deadline - time.monotonic())

    # -- peers without a request -----------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            accepted, address = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # the peer has disconnected, or no descriptor is left
            if self._peers:
                self._cut_off(next(iter(self._peers.values())))
            else:
                logger.error("Arrow streams: a connection could not be accepted: %s", error)
                time.sleep(_PAUSE)
            return
        try:
            accepted.setblocking(False)
            _watch(accepted)
            wrapped: Socket = accepted
            if self._tls is not None:
                wrapped = self._tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        except OSError:  # it has already disconnected
            accepted.close()
            return
        peer = _Peer(wrapped, address[0], time.monotonic() + REQUEST_SECONDS, is_open=self._tls is None)
        if not self._waiting.has_room(peer.host):
            is_of_host = self._waiting.of(peer.host) >= self._waiting.each
            self._cut_off(next(other for other in self._peers.values() if not is_of_host or other.host == peer.host))
        self._waiting.charge(peer.host)
        self._peers[wrapped.fileno()] = peer
        self._selector.register(wrapped, selectors.EVENT_READ)

    def _forget(self, peer: _Peer) -> None:
        self._selector.unregister(peer.socket)
        del self._peers[peer.socket.fileno()]
        self._waiting.give_back(peer.host)

    def _cut_off(self, peer: _Peer) -> None:
        self._forget(peer)
        peer.socket.close()

    def _hear(self, peer: _Peer) -> None:
        """Read the available bytes of a request, without waiting."""
        try:
            if not peer.is_open:
                assert isinstance(peer.socket, ssl.SSLSocket)
                peer.socket.do_handshake()
                peer.is_open = True
            while b"\n" not in peer.received:
                data = peer.socket.recv(LONGEST_REQUEST)
                peer.received += data
                if not data or len(peer.received) > LONGEST_REQUEST:
                    self._cut_off(peer)
                    return
        except (BlockingIOError, ssl.SSLWantReadError):
            self._selector.modify(peer.socket, selectors.EVENT_READ)
            return
        except ssl.SSLWantWriteError:
            self._selector.modify(peer.socket, selectors.EVENT_WRITE)
            return
        except OSError:  # including TLS errors: a peer with another protocol
            self._cut_off(peer)
            return
        self._forget(peer)
        peer.socket.settimeout(_STALLED_SECONDS)
        threading.Thread(target=self._serve, args=(peer,), name=f"Arrow stream of {peer.host}", daemon=True).start()

    # -- requests --------------------------------------------------------------------------------------------------

    def _serve(self, peer: _Peer) -> None:
        with peer.socket, suppress(OSError):  # a disconnected peer gets no reply
            output = ConnectionFile(peer.socket)
            try:
                self._answer(peer, output)
            except MsmqError as error:
                output.error(error)
            except OSError:
                raise
            except Exception as error:
                logger.error("Arrow streams: a request failed: %r", error, exc_info=error)
                output.error(MsmqError(HResult.MQ_ERROR, "the request failed, see the queue manager's log"))

    def _answer(self, peer: _Peer, output: ConnectionFile) -> None:
        """Execute a request."""
        line, _, rest = bytes(peer.received).partition(b"\n")
        values = parse(line)
        if rest:
            raise invalid("bytes behind the request, allowed: none before its answer")
        login = check("authenticate", {**_taken(values, "user", "password"), "peer": peer.host})
        names = sorted(values)
        if names not in (["read"], ["write"]) or not isinstance(values[names[0]], dict):
            raise invalid(f"a request of {shown(names)}, allowed: read or write, a JSON object; and user and password")
        with self._place(names[0], peer.host):
            caller = self._link.call("authenticate", **login)
            if names == ["read"]:
                _read(RangeReading(self._link, self._layout, caller, values["read"]), output)
            else:
                self._write(peer.socket, caller, check("write", values["write"]), output)

    @contextmanager
    def _place(self, kind: str, host: str) -> Iterator[None]:
        """Count a request as being served. Raises _Busy if too many are."""
        served = self._served[kind]
        with self._serving:
            if not served.take(host):
                is_of_host = served.of(host) >= served.each
                most, whose = (served.each, f" of host {host}") if is_of_host else (served.total, "")
                raise _Busy(detail=f"{most} Arrow streams ({kind}){whose} are being served, try again later")
        try:
            yield
        finally:
            with self._serving:
                served.give_back(host)

    def _write(
        self, connection: Socket, caller: list[str] | None, command: dict[str, Any], output: ConnectionFile
    ) -> None:
        """Stage the rows of the stream that follows; send the handle of the stage and the number of rows."""
        if command.get("collect"):
            raise invalid("collect is true, allowed for Arrow streams: false; Arrow Flight collects refused rows")
        output.line({})
        incoming = _Incoming(connection)
        try:
            try:
                with pa.ipc.open_stream(pa.PythonFile(incoming, "r")) as stream:
                    done = staged(self._link, caller, command, stream.schema, _rows(stream, incoming))
            except pa.ArrowException as error:
                raise invalid(f"not valid Arrow data: {str(error).partition(chr(10))[0]}") from error
        except MsmqError as error:
            output.error(error)
            _drain(connection)
            return
        output.line({"handle": done["handle"], "rows": done["rows"]})


def _taken(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """Remove items from a dictionary and return them."""
    return {name: values.pop(name) for name in names if name in values}


def _read(reading: RangeReading, output: ConnectionFile) -> None:
    """Send the stream of a read, then the end of its reply (docs/bulk.md)."""
    output.line({})
    messages, odd, damaged = 0, 0, []
    with pa.ipc.new_stream(pa.PythonFile(output, "w"), reading.schema) as stream:
        for portion in reading.portions():
            messages += portion.messages
            odd += portion.odd
            damaged += portion.damaged
            if portion.rows.num_rows:
                stream.write_batch(portion.rows)
    output.line({"messages": messages, "damaged": damaged, **({"odd": odd} if odd else {})})


def _rows(stream: pa.RecordBatchStreamReader, incoming: _Incoming) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an upload. Raises OperationCancelled if the stream ends without its end-of-stream marker."""
    for batch in stream:
        validate(batch)
        yield batch
    if incoming.is_cut_off:
        raise OperationCancelled(detail="the stream ended before its end-of-stream marker: upload incomplete")


class _Incoming:
    """File object from which Arrow reads a connection.

    Attributes:
        is_cut_off: whether the peer closed the connection; Arrow treats that as the end of the stream.
    """

    closed = False

    def __init__(self, connection: Socket) -> None:
        self._connection = connection
        self.is_cut_off = False

    def read_buffer(self, size: int) -> pa.Buffer:
        """Read exactly `size` bytes; fewer only if the connection was closed. Raises MsmqError for too many, and
        TimeoutError if they do not arrive in time, however many arrive at once."""
        if size > _LARGEST_PART:
            raise invalid(f"a record batch of {size} bytes, allowed: at most {_LARGEST_PART}")
        data = np.empty(size, np.uint8)
        view, done = data.data, 0
        deadline = time.monotonic() + _STALLED_SECONDS
        while done < size:
            self._connection.settimeout(max(deadline - time.monotonic(), 1e-3))
            count = self._connection.recv_into(view[done:])
            if not count:
                self.is_cut_off = True
                break
            done += count
        return pa.py_buffer(data[:done])

    def read(self, size: int) -> bytes:
        return bytes(self.read_buffer(size))

    def close(self) -> None:
        """Do nothing: the connection stays open for the reply."""


def _drain(connection: Socket) -> None:
    """Discard what a refused peer still sends. Closing the connection with unread data would reset it, and the peer
    might lose the error."""
    deadline = time.monotonic() + _DRAIN_SECONDS
    unread = bytearray(1 << 16)
    while (patience := deadline - time.monotonic()) > 0:
        connection.settimeout(patience)
        if not connection.recv_into(unread):
            return


def _watch(connection: socket.socket) -> None:
    """Set socket options: detect a vanished peer, and send data without delay."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_SECONDS * 1000)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class ConnectionFile:
    """File object for a connection to which Arrow writes buffers and many small pieces between them."""

    closed = False

    def __init__(self, connection: Socket) -> None:
        self._connection = connection
        self._small = bytearray()

    def line(self, values: dict[str, Any]) -> None:
        """Send a line of JSON after the data written so far."""
        self.write(json.dumps(values).encode() + b"\n")
        self.flush()

    def error(self, error: MsmqError) -> None:
        """Send the error of a request as the last line of its reply."""
        again = {"retry": True} if isinstance(error, _Busy) else {}
        self.line({"hresult": error.hresult, "detail": error.detail, **again})

    def write(self, data: bytes | pa.Buffer) -> int:
        size = len(data)
        if size > _SMALL:
            self.flush()
            self._connection.sendall(data)
        else:
            self._small += data
            if len(self._small) > _SMALL:
                self.flush()
        return size

    def flush(self) -> None:
        if self._small:
            self._connection.sendall(self._small)
            self._small = bytearray()

    def close(self) -> None:
        """Do nothing: the connection stays open for the end of the reply."""
