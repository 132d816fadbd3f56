"""Arrow streams over TCP or TLS: the reads of Arrow Flight for peers that have Arrow but no gRPC.

One connection carries one request. docs/bulk.md describes the protocol. Until a peer has sent its request, it costs a
socket and no thread; then the daemon decides whether the caller may do what it asks.
"""

from __future__ import annotations

import json
import logging
import selectors
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from openmsmq.flight.reading import RangeReading
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.processes.flight_requests import check, invalid, parse, shown
from openmsmq.processes.link import DaemonLink

logger = logging.getLogger(__name__)

Socket = socket.socket | ssl.SSLSocket

MOST_WAITING: Final = 256  # peers that have not sent their request; beyond that the oldest is cut off
MOST_READS: Final = 512  # at the same time
LONGEST_REQUEST: Final = 64 << 10  # bytes
REQUEST_SECONDS: Final = 10.0  # for TLS and the request, from the connection on
_STALLED_SECONDS: Final = 3600.0  # that a peer may take for one record batch
_DEAD_SECONDS: Final = 120  # without an acknowledgment of TCP
_SMALL: Final = 16 << 10  # bytes; smaller pieces are gathered before they are sent
_PAUSE: Final = 0.1  # seconds, where no descriptor is left for a new connection


@dataclass(slots=True)
class _Peer:
    """A connection without its request."""

    socket: Socket
    host: str
    deadline: float
    received: bytearray = field(default_factory=bytearray)
    is_open: bool = True  # after the handshake of TLS


class ArrowListener:
    """Accepts connections in one thread, and serves each request in a thread of its own."""

    def __init__(
        self, host: str, port: int, link: DaemonLink, layout: dict[str, Any], certificate: str = "", key: str = ""
    ) -> None:
        """Listen. Raises OSError.

        Args:
            host, port: where; port 0 is the system's choice.
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
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._reads = threading.BoundedSemaphore(MOST_READS)

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
        except OSError as error:  # the peer has gone, or no descriptor is left
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
        except OSError:  # it has gone already
            accepted.close()
            return
        peer = _Peer(wrapped, address[0], time.monotonic() + REQUEST_SECONDS, is_open=self._tls is None)
        self._peers[wrapped.fileno()] = peer
        self._selector.register(wrapped, selectors.EVENT_READ)
        if len(self._peers) > MOST_WAITING:
            self._cut_off(next(iter(self._peers.values())))

    def _forget(self, peer: _Peer) -> None:
        self._selector.unregister(peer.socket)
        del self._peers[peer.socket.fileno()]

    def _cut_off(self, peer: _Peer) -> None:
        self._forget(peer)
        peer.socket.close()

    def _hear(self, peer: _Peer) -> None:
        """Read what has come of a request, without waiting."""
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
        except OSError:  # also of TLS: a stranger who speaks something else
            self._cut_off(peer)
            return
        self._forget(peer)
        peer.socket.settimeout(_STALLED_SECONDS)
        threading.Thread(target=self._serve, args=(peer,), name=f"Arrow stream of {peer.host}", daemon=True).start()

    # -- requests --------------------------------------------------------------------------------------------------

    def _serve(self, peer: _Peer) -> None:
        with peer.socket, suppress(OSError):  # who has gone is not answered
            output = ConnectionFile(peer.socket)
            try:
                if not self._reads.acquire(blocking=False):
                    busy = HResult.MQ_ERROR_INSUFFICIENT_RESOURCES
                    raise MsmqError(busy, f"{MOST_READS} Arrow streams are being served, try again later")
                try:
                    output.line(self._answer(peer, output))
                finally:
                    self._reads.release()
            except MsmqError as error:
                output.line({"hresult": error.hresult, "detail": error.detail})
            except OSError:
                raise
            except Exception as error:
                logger.error("Arrow streams: a request failed: %r", error, exc_info=error)
                detail = "the request failed, see the queue manager's log"
                output.line({"hresult": HResult.MQ_ERROR, "detail": detail})

    def _answer(self, peer: _Peer, output: ConnectionFile) -> dict[str, Any]:
        """Carry out a request. Returns what ends its answer."""
        line, _, rest = bytes(peer.received).partition(b"\n")
        values = parse(line)
        if rest:
            raise invalid("bytes behind the request, allowed: none before its answer")
        login = check("authenticate", {**_taken(values, "user", "password"), "peer": peer.host})
        caller = self._link.call("authenticate", **login)
        ticket = values.pop("read", None)
        if values or not isinstance(ticket, dict):
            raise invalid(f"a request of {shown(sorted(values))}, allowed: read, a JSON object; and user and password")
        return _read(RangeReading(self._link, self._layout, caller, ticket), output)


def _taken(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """Take items out of a dictionary."""
    return {name: values.pop(name) for name in names if name in values}


def _read(reading: RangeReading, output: ConnectionFile) -> dict[str, Any]:
    """Send the stream of a read. Returns how many messages were selected from, and those that can't be decoded."""
    output.line({})
    messages, damaged = 0, []
    with pa.ipc.new_stream(pa.PythonFile(output, "w"), reading.schema) as stream:
        for portion in reading.portions():
            messages += portion.messages
            damaged += portion.damaged
            if portion.rows.num_rows:
                stream.write_batch(portion.rows)
    return {"messages": messages, "damaged": damaged}


def _watch(connection: socket.socket) -> None:
    """Notice a peer that has vanished, and send what is there at once."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_SECONDS * 1000)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class ConnectionFile:
    """A connection as a file for Arrow, which writes buffers and many small pieces between them."""

    closed = False

    def __init__(self, connection: Socket) -> None:
        self._connection = connection
        self._small = bytearray()

    def line(self, values: dict[str, Any]) -> None:
        """Send a line of JSON, after all that was written."""
        self.write(json.dumps(values).encode() + b"\n")
        self.flush()

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
        """The connection lives on: the end of the answer follows."""
