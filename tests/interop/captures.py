"""TCP connections recorded by proxies, and the capture file that a sniffer at the server would have written.

No privileges are needed: the proxies see the bytes and their order, and the headers below TCP's payload are made.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from interop.loop_thread import LoopThread

_CHUNK = 1 << 16
_FIRST_CLIENT = 1024  # port; servers of tests have ports from 20,000
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Chunk:
    """Bytes that arrived together, at a time in nanoseconds since 1970."""

    time: int
    is_from_client: bool
    data: bytes


@dataclass
class Connection:
    """One TCP connection: the scenario in which it was made, and its bytes in the order in which they were seen. The
    port of the client is that in the capture, where no other connection has it."""

    scenario: str
    client_port: int
    server_port: int
    chunks: list[Chunk] = field(default_factory=list)

    def stream(self, *, is_from_client: bool) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks if chunk.is_from_client == is_from_client)


class Recorder:
    """Proxies in front of the ports of a server, each on a port of its own. A capture names the server's real ports,
    because its replies contain them."""

    def __init__(self, ports: Iterable[int]) -> None:
        self.connections: list[Connection] = []
        self.proxies: dict[int, int] = {}
        self._scenario = ""
        self._ports = list(ports)
        self._thread = LoopThread()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def __enter__(self) -> Recorder:
        self._thread.run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.run(self._end())
        self._thread.close()

    @contextmanager
    def scenario(self, name: str) -> Iterator[None]:
        """Name the connections that are made in the block, and lead the clients of this process to the proxies.

        References to objects and replies of the endpoint mapper name the server's own port, so it is not enough to
        give clients another one. Proxies connect with `connect_ex`, which is not replaced."""
        connect = socket.socket.connect

        def redirected(connecting: socket.socket, address: Any) -> None:
            if address[0] == HOST and address[1] in self.proxies:
                address = (HOST, self.proxies[address[1]])
            connect(connecting, address)

        self._scenario = name
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket.socket, "connect", redirected)
            yield

    async def _listen(self) -> None:
        for port in self._ports:
            server = await asyncio.start_server(lambda *pair, port=port: self._accept(port, *pair), HOST, 0)
            self.proxies[port] = server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks)

    async def _accept(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = Connection(self._scenario, _FIRST_CLIENT + len(self.connections), port)
        self.connections.append(connection)
        onward = socket.socket()
        onward.connect_ex((HOST, port))
        from_server, to_server = await asyncio.open_connection(sock=onward)
        self._writers += (writer, to_server)
        await asyncio.gather(
            self._pump(connection, True, reader, to_server), self._pump(connection, False, from_server, writer)
        )

    async def _pump(
        self, connection: Connection, is_from_client: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Record bytes before they are forwarded, so that a reply is recorded after its request."""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                connection.chunks.append(Chunk(time.time_ns(), is_from_client, data))
                writer.write(data)
                await writer.drain()
        writer.close()


# -- the capture file --------------------------------------------------------------------------------------------------

_LOCAL = socket.inet_aton(HOST)
_ETHERNET = bytes(12) + b"\x08\x00"  # as on the loopback interface of Linux
_SYN, _FIN, _PUSH, _ACK = 2, 1, 8, 16
_LARGEST = 32_768  # payload of a segment, which fits the 16 bits of a packet's length
_WINDOW = 65_535
# Returns positions in a stream of a connection at which segments end, as well as where the bytes arrived.
FindEnds = Callable[[Connection, bytes], Iterable[int]]


def _checksum(data: bytes) -> int:
    """RFC 1071."""
    padded = data + bytes(len(data) % 2)
    total: int = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _packet(number: int, ports: tuple[int, int], sequence: int, acknowledged: int, flags: int, data: bytes) -> bytes:
    """Return an Ethernet frame with IPv4 and TCP."""
    offset = 5 << 12
    tcp = struct.pack(">HHIIHHHH", *ports, sequence, acknowledged if flags & _ACK else 0, offset | flags, _WINDOW, 0, 0)
    pseudo = _LOCAL + _LOCAL + struct.pack(">BBH", 0, socket.IPPROTO_TCP, len(tcp) + len(data))
    tcp = tcp[:16] + struct.pack(">H", _checksum(pseudo + tcp + data)) + tcp[18:]
    length = 20 + len(tcp) + len(data)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, length, number & 0xFFFF, 0x4000, 64, socket.IPPROTO_TCP, 0) + _LOCAL + _LOCAL
    ip = ip[:10] + struct.pack(">H", _checksum(ip)) + ip[12:]
    return _ETHERNET + ip + tcp + data


def _cut(data: bytes, ends: Iterable[int]) -> Iterator[bytes]:
    """Yield parts that are not too large for a segment, cut at `ends`."""
    places = {*range(0, len(data), _LARGEST), *(end for end in ends if 0 < end < len(data)), len(data)}
    return (data[start:end] for start, end in itertools.pairwise(sorted(places)))


def _segments(connection: Connection, find_ends: FindEnds) -> Iterator[tuple[int, bool, int, bytes]]:
    """Yield time, direction, flags and payload of each segment, from the handshake to the last acknowledgment."""
    ends = {side: list(find_ends(connection, connection.stream(is_from_client=side))) for side in (True, False)}
    sent = {True: 0, False: 0}
    first = connection.chunks[0].time if connection.chunks else 0
    yield first, True, _SYN, b""
    yield first, False, _SYN | _ACK, b""
    yield first, True, _ACK, b""
    last = first
    for chunk in connection.chunks:
        last, side = chunk.time, chunk.is_from_client
        for part in _cut(chunk.data, [end - sent[side] for end in ends[side]]):
            yield last, side, _PUSH | _ACK, part
            yield last, not side, _ACK, b""
        sent[side] += len(chunk.data)
    yield last, True, _FIN | _ACK, b""
    yield last, False, _FIN | _ACK, b""
    yield last, True, _ACK, b""


def _frames(connection: Connection, find_ends: FindEnds, numbers: Iterator[int]) -> Iterator[tuple[int, bytes]]:
    """Yield time and frame of each segment."""
    following = {True: 1000, False: 5000}  # the next sequence number of the client and of the server
    ports = (connection.client_port, connection.server_port)
    for moment, is_from_client, flags, data in _segments(connection, find_ends):
        sequence = following[is_from_client]
        ends = ports if is_from_client else ports[::-1]
        yield moment, _packet(next(numbers), ends, sequence, following[not is_from_client], flags, data)
        following[is_from_client] += len(data) + bool(flags & (_SYN | _FIN))


def write_capture(path: Path, connections: Sequence[Connection], find_ends: FindEnds) -> None:
    """Write a classic pcap file with the connections, one after the other."""
    numbers = itertools.count(1)
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 1))
        for connection in connections:
            for moment, frame in _frames(connection, find_ends, numbers):
                seconds, rest = divmod(moment, 1_000_000_000)
                file.write(struct.pack("<IIII", seconds, rest // 1000, len(frame), len(frame)))
                file.write(frame)


def damaged(connection: Connection, number: int, position: int, new: bytes) -> Connection:
    """Return a copy with other bytes at a position of one chunk."""
    chunk = connection.chunks[number]
    data = chunk.data[:position] + new + chunk.data[position + len(new) :]
    chunks = [*connection.chunks[:number], replace(chunk, data=data), *connection.chunks[number + 1 :]]
    return replace(connection, chunks=chunks)
