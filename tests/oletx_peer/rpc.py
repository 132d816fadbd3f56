"""A small DCE/RPC version 5 connection-oriented transport over TCP, with NDR 2.0.

The module implements the part of DCE 1.1 RPC (C706) and MS-RPCE that the test peer needs:
bind, alter_context, request, response, fault, object UUIDs, fragments, association groups,
context-handle rundown, and the operation ept_map of the endpoint mapper (client and server).
It implements no authentication.  All data is little endian.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

NDR20 = (uuid.UUID("8a885d04-1ceb-11c9-9fe8-08002b104860"), 2)
EPM_IF = (uuid.UUID("e1af8308-5d1f-11c9-91a4-08002b14a0fa"), 3)
NIL = uuid.UUID(int=0)
BTFN_PREFIX = uuid.UUID("6cb71c2c-9812-4540-0300-000000000000").bytes_le[:8]  # MS-RPCE 3.3.1.5.3

REQUEST, RESPONSE, FAULT, BIND, BIND_ACK, BIND_NAK = 0, 2, 3, 11, 12, 13
ALTER, ALTER_RESP, AUTH3, SHUTDOWN, CO_CANCEL, ORPHANED = 14, 15, 16, 17, 18, 19
FIRST, LAST, OBJECT = 0x01, 0x02, 0x80

NCA_OP_RANGE = 0x1C010002  # the wire form of RPC_S_PROCNUM_OUT_OF_RANGE
NCA_UNKNOWN_IF = 0x1C010003
NCA_CONTEXT_MISMATCH = 0x1C00001A
RPC_S_PROCNUM_OUT_OF_RANGE = 0x000006D1
RPC_X_INVALID_BOUND = 0x000006C6
RPC_X_BAD_STUB_DATA = 0x000006F7
EPT_NOT_REGISTERED = 0x16C9A0D6


class RpcFault(Exception):
    """The callee replied with a fault PDU of this status."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(f"RPC fault 0x{status:08X} {text}".rstrip())
        self.status = status


class RpcDown(Exception):
    """The association is lost, or the partner did not reply in time."""


class RpcCut(Exception):
    """Raised by a handler to close the TCP connection without a reply."""


class RpcNoAnswer(Exception):
    """Raised by a handler to send no reply and keep the TCP connection open."""


# ------------------------------------------------------------------ NDR (C706 chapter 14)


class NdrWriter:
    """Writes NDR 2.0 data in little-endian order."""

    def __init__(self) -> None:
        self.data = bytearray()

    def align(self, size: int) -> NdrWriter:
        self.data += bytes(-len(self.data) % size)
        return self

    def u16(self, value: int) -> NdrWriter:
        self.align(2).data += struct.pack("<H", value & 0xFFFF)
        return self

    def u32(self, *values: int) -> NdrWriter:
        for value in values:
            self.align(4).data += struct.pack("<I", value & 0xFFFFFFFF)
        return self

    def raw(self, data: bytes) -> NdrWriter:
        self.data += data
        return self

    def handle(self, value: bytes) -> NdrWriter:
        return self.align(4).raw(value)

    def string(
        self, text: str, wide: bool, max_count: int | None = None, offset: int = 0, count: int | None = None
    ) -> NdrWriter:
        """Write a conformant and varying string with its terminator; each count can be false."""
        body = (text + "\0").encode("utf-16-le" if wide else "latin-1")
        real = len(body) // 2 if wide else len(body)
        count = real if count is None else count
        return self.u32(count if max_count is None else max_count, offset, count).raw(body)

    def conformant(self, data: bytes, max_count: int | None = None) -> NdrWriter:
        return self.u32(len(data) if max_count is None else max_count).raw(data)


class NdrReader:
    """Reads NDR 2.0 data and raises RpcFault for data that does not conform."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def align(self, size: int) -> None:
        self.at += -self.at % size

    def raw(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise RpcFault(RPC_X_BAD_STUB_DATA, "the stub is too short")
        self.at += size
        return self.data[self.at - size : self.at]

    def u16(self) -> int:
        self.align(2)
        return struct.unpack("<H", self.raw(2))[0]

    def u32(self) -> int:
        self.align(4)
        return struct.unpack("<I", self.raw(4))[0]

    def handle(self) -> bytes:
        self.align(4)
        return self.raw(20)

    def string(self, wide: bool, low: int = 0, high: int = 1 << 20) -> str:
        """Read a conformant and varying string; `low` and `high` are its range attribute."""
        max_count, offset, count = self.u32(), self.u32(), self.u32()
        if offset or count > max_count or not count:
            raise RpcFault(RPC_X_BAD_STUB_DATA, "bad string counts")
        if not low <= count <= high or not low <= max_count <= high:
            raise RpcFault(RPC_X_INVALID_BOUND, "string out of range")
        text = self.raw(count * (2 if wide else 1)).decode("utf-16-le" if wide else "latin-1")
        if text[-1] != "\0" or "\0" in text[:-1]:
            raise RpcFault(RPC_X_BAD_STUB_DATA, "the string has no terminator at its end")
        return text[:-1]

    def conformant(self, size: int) -> bytes:
        if self.u32() != size:
            raise RpcFault(RPC_X_BAD_STUB_DATA, "conformance differs from size_is")
        return self.raw(size)


# ------------------------------------------------------------------ PDUs (C706 chapter 12)


@dataclass
class Pdu:
    ptype: int
    flags: int
    call_id: int
    body: bytes
    auth_length: int = 0


def encode_pdu(ptype: int, flags: int, call_id: int, body: bytes) -> bytes:
    return struct.pack("<BBBB4sHHI", 5, 0, ptype, flags, b"\x10\0\0\0", 16 + len(body), 0, call_id) + body


def _recv_exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise RpcDown("the partner closed the connection")
        data += part
    return bytes(data)


def read_pdu(sock: socket.socket) -> Pdu:
    head = _recv_exactly(sock, 16)
    major, _, ptype, flags, drep, length, auth, call_id = struct.unpack("<BBBB4sHHI", head)
    if major != 5 or length < 16 or drep[0] != 0x10:
        raise RpcDown("not a little-endian PDU of version 5")
    body = _recv_exactly(sock, length - 16)
    if auth:  # the peer ignores security trailers
        body = body[: len(body) - auth - 8]
    return Pdu(ptype, flags, call_id, body, auth)


def _syntax(value: tuple[uuid.UUID, int]) -> bytes:
    return value[0].bytes_le + struct.pack("<I", value[1])


def close_socket(sock: socket.socket) -> None:
    for action in (lambda: sock.shutdown(socket.SHUT_RDWR), sock.close):
        with contextlib.suppress(OSError):
            action()


# ------------------------------------------------------------------ client


class RpcConnection:
    """One TCP connection of an association, bound to one interface."""

    def __init__(
        self,
        address: tuple[str, int],
        interface: tuple[uuid.UUID, int],
        group: int = 0,
        timeout: float = 10.0,
        fragment: int = 4280,
    ) -> None:
        self.fragment, self.calls = fragment, itertools.count(2)
        try:
            self.sock = socket.create_connection(address, timeout)
        except OSError as error:
            raise RpcDown(f"cannot connect to {address}: {error}") from error
        try:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            body = (
                struct.pack("<HHIB3x", fragment, fragment, group, 1)
                + struct.pack("<HBx", 0, 1)
                + _syntax(interface)
                + _syntax(NDR20)
            )
            self.sock.sendall(encode_pdu(BIND, FIRST | LAST, 1, body))
            answer = read_pdu(self.sock)
        except (OSError, RpcDown) as error:
            self.close()
            raise RpcDown(f"bind fails at {address}: {error}") from error
        if answer.ptype != BIND_ACK:
            self.close()
            raise RpcDown(f"bind is refused (PDU type {answer.ptype})")
        xmit, _, self.group, port = struct.unpack_from("<HHIH", answer.body)
        self.fragment = max(64, min(fragment, xmit)) if xmit else fragment
        at = 10 + port
        at += -at % 4
        result, reason = struct.unpack_from("<HH", answer.body, at + 4)
        if result:
            self.close()
            raise RpcDown(f"the interface is refused (result {result}, reason {reason})")

    def send_request(self, opnum: int, stub: bytes, obj: uuid.UUID | None) -> int:
        """Send a request in as many fragments as it needs."""
        call, flags = next(self.calls), FIRST
        room = (self.fragment - 24 - (16 if obj else 0)) & ~7
        head = struct.pack("<HH", 0, opnum) + (obj.bytes_le if obj else b"")
        at = 0
        while True:
            part = stub[at : at + room]
            if at + room >= len(stub):
                flags |= LAST
            body = struct.pack("<I", len(stub) - at) + head + part
            self.sock.sendall(encode_pdu(REQUEST, flags | (OBJECT if obj else 0), call, body))
            at, flags = at + room, 0
            if at >= len(stub):
                return call

    def call(self, opnum: int, stub: bytes, obj: uuid.UUID | None = None, timeout: float | None = 30.0) -> bytes:
        try:
            self.sock.settimeout(timeout)
            call, out = self.send_request(opnum, stub, obj), bytearray()
            while True:
                pdu = read_pdu(self.sock)
                if pdu.call_id != call or pdu.ptype not in (RESPONSE, FAULT):
                    continue
                if pdu.ptype == FAULT:
                    raise RpcFault(struct.unpack_from("<I", pdu.body, 8)[0])
                out += pdu.body[8:]
                if pdu.flags & LAST:
                    return bytes(out)
        except (OSError, struct.error) as error:
            self.close()
            raise RpcDown(str(error) or type(error).__name__) from error
        except RpcDown:
            self.close()
            raise

    def close(self) -> None:
        close_socket(self.sock)


class RpcBinding:
    """A binding handle: an association group with one connection per concurrent call."""

    def __init__(
        self,
        address: tuple[str, int],
        interface: tuple[uuid.UUID, int],
        obj: uuid.UUID | None = None,
        timeout: float = 12.0,
        fragment: int = 4280,
    ) -> None:
        self.address, self.interface, self.obj = address, interface, obj
        self.timeout, self.fragment, self.group = timeout, fragment, 0
        self.free: list[RpcConnection] = []
        self.all: set[RpcConnection] = set()
        self.lock, self.closed = threading.Lock(), False

    def call(self, opnum: int, stub: bytes, timeout: float | None = None) -> bytes:
        with self.lock:
            if self.closed:
                raise RpcDown("the binding handle is closed")
            connection = self.free.pop() if self.free else None
            group = self.group
        if connection is None:
            connection = RpcConnection(self.address, self.interface, group, timeout or self.timeout, self.fragment)
            with self.lock:
                self.group = self.group or connection.group
                self.all.add(connection)
                closed = self.closed
            if closed:
                connection.close()
                raise RpcDown("the binding handle is closed")
        try:
            answer = connection.call(opnum, stub, self.obj, timeout or self.timeout)
        except RpcDown:
            with self.lock:
                self.all.discard(connection)
            raise
        except RpcFault:
            with self.lock:
                self.free.append(connection)
            raise
        with self.lock:
            self.free.append(connection)
        return answer

    def close(self) -> None:
        with self.lock:
            self.closed = True
            connections, self.all, self.free = list(self.all), set(), []
        for connection in connections:
            connection.close()


# ------------------------------------------------------------------ server


@dataclass
class RpcCall:
    """One incoming call, as its handler sees it."""

    interface: tuple[uuid.UUID, int]
    opnum: int
    obj: uuid.UUID | None
    stub: bytes
    group: int
    fragments: int
    client: tuple[str, int]
    server: RpcServer = field(repr=False)


Handler = Callable[[RpcCall], bytes]


class RpcServer:
    """Accepts TCP connections and serves calls, one at a time on each connection."""

    def __init__(
        self,
        listen: tuple[str, int],
        interfaces: dict[tuple[uuid.UUID, int], Handler],
        rundown: Callable[[int], None] | None = None,
        fragment: int = 4280,
    ) -> None:
        self.interfaces, self.rundown, self.fragment = interfaces, rundown, fragment
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind(listen)
        self.sock.listen(64)
        self.address: tuple[str, int] = self.sock.getsockname()
        self.lock, self.closed = threading.Lock(), False
        self.connections: dict[socket.socket, int] = {}
        self.next_group = itertools.count(0x1001)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self.closed:
            try:
                sock, client = self.sock.accept()
            except OSError:
                return
            with self.lock:
                if self.closed:
                    close_socket(sock)
                    return
                self.connections[sock] = 0
            threading.Thread(target=self._serve, args=(sock, client), daemon=True).start()

    def close(self) -> None:
        with self.lock:
            self.closed = True
            sockets, self.connections = list(self.connections), {}
        for sock in [self.sock, *sockets]:
            close_socket(sock)

    def cut_group(self, group: int) -> None:
        """Close each TCP connection of an association group."""
        with self.lock:
            sockets = [sock for sock, of in self.connections.items() if of == group]
        for sock in sockets:
            close_socket(sock)

    def _serve(self, sock: socket.socket, client: tuple[str, int]) -> None:
        contexts: dict[int, tuple[uuid.UUID, int]] = {}
        pending: dict[int, list] = {}
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                pdu = read_pdu(sock)
                if pdu.ptype in (BIND, ALTER):
                    sock.sendall(self._bind(sock, pdu, contexts))
                elif pdu.ptype == REQUEST:
                    self._request(sock, client, pdu, contexts, pending)
        except (OSError, RpcDown, RpcCut, struct.error):
            pass
        finally:
            with self.lock:
                group = self.connections.pop(sock, 0)
                last = group and group not in self.connections.values()
            close_socket(sock)
            if last and self.rundown and not self.closed:
                self.rundown(group)

    def _bind(self, sock: socket.socket, pdu: Pdu, contexts: dict[int, tuple[uuid.UUID, int]]) -> bytes:
        _xmit, recv, group, count = struct.unpack_from("<HHIB", pdu.body)
        with self.lock:
            if pdu.ptype == BIND:
                if not group or group not in self.connections.values():
                    group = next(self.next_group)
                self.connections[sock] = group
            group = self.connections.get(sock, group)
        at, results = 12, b""
        for _ in range(count):
            ident, transfers = struct.unpack_from("<HB", pdu.body, at)
            abstract = (uuid.UUID(bytes_le=pdu.body[at + 4 : at + 20]), struct.unpack_from("<I", pdu.body, at + 20)[0])
            at, accepted, answer = at + 24, False, struct.pack("<HH20x", 2, 2)
            for _ in range(transfers):
                syntax = (uuid.UUID(bytes_le=pdu.body[at : at + 16]), struct.unpack_from("<I", pdu.body, at + 16)[0])
                at += 20
                if syntax[0].bytes_le[:8] == BTFN_PREFIX:
                    answer = struct.pack("<HH20x", 3, 0)
                elif syntax == NDR20 and abstract in self.interfaces:
                    accepted = True
            if abstract not in self.interfaces and answer[:2] != b"\x03\0":
                answer = struct.pack("<HH20x", 2, 1)
            if accepted:
                contexts[ident] = abstract
                answer = struct.pack("<HH", 0, 0) + _syntax(NDR20)
            results += answer
        port = (str(self.address[1]) + "\0").encode() if pdu.ptype == BIND else b""
        body = struct.pack("<HHIH", min(recv or 5840, self.fragment), self.fragment, group, len(port)) + port
        body += bytes(-len(body) % 4) + struct.pack("<B3x", count) + results
        kind = BIND_ACK if pdu.ptype == BIND else ALTER_RESP
        return encode_pdu(kind, FIRST | LAST, pdu.call_id, body)

    def _request(
        self,
        sock: socket.socket,
        client: tuple[str, int],
        pdu: Pdu,
        contexts: dict[int, tuple[uuid.UUID, int]],
        pending: dict[int, list],
    ) -> None:
        _, context, opnum = struct.unpack_from("<IHH", pdu.body)
        obj, at = None, 8
        if pdu.flags & OBJECT:
            obj, at = uuid.UUID(bytes_le=pdu.body[8:24]), 24
        if pdu.flags & FIRST:
            pending[pdu.call_id] = [context, opnum, obj, bytearray(), 0]
        entry = pending.get(pdu.call_id)
        if entry is None:
            raise RpcDown("a fragment has no first fragment")
        entry[3] += pdu.body[at:]
        entry[4] += 1
        if not pdu.flags & LAST:
            return
        del pending[pdu.call_id]
        context, opnum, obj, stub, fragments = entry
        try:
            if context not in contexts:
                raise RpcFault(NCA_UNKNOWN_IF)
            call = RpcCall(
                contexts[context], opnum, obj, bytes(stub), self.connections.get(sock, 0), fragments, client, self
            )
            answer = self.interfaces[contexts[context]](call)
        except RpcFault as fault:
            body = struct.pack("<IHBBI4x", 0, context, 0, 0, fault.status)
            sock.sendall(encode_pdu(FAULT, FIRST | LAST, pdu.call_id, body))
            return
        except RpcNoAnswer:
            return
        flags, room, at = FIRST, (self.fragment - 24) & ~7, 0
        while True:
            if at + room >= len(answer):
                flags |= LAST
            body = struct.pack("<IHBB", len(answer) - at, context, 0, 0) + answer[at : at + room]
            sock.sendall(encode_pdu(RESPONSE, flags, pdu.call_id, body))
            at, flags = at + room, 0
            if at >= len(answer):
                return


# ------------------------------------------------------------------ endpoint mapper (C706 O)


def encode_tower(interface: tuple[uuid.UUID, int], host: str, port: int) -> bytes:
    """Encode a tower of five floors for ncacn_ip_tcp (C706 appendix L)."""

    def floor(left: bytes, right: bytes) -> bytes:
        return struct.pack("<H", len(left)) + left + struct.pack("<H", len(right)) + right

    def name(value: tuple[uuid.UUID, int]) -> bytes:
        return b"\x0d" + value[0].bytes_le + struct.pack("<H", value[1] & 0xFFFF)

    return (
        struct.pack("<H", 5)
        + floor(name(interface), struct.pack("<H", interface[1] >> 16))
        + floor(name(NDR20), b"\0\0")
        + floor(b"\x0b", b"\0\0")
        + floor(b"\x07", struct.pack(">H", port))
        + floor(b"\x09", socket.inet_aton(host))
    )


def decode_tower(data: bytes) -> tuple[tuple[uuid.UUID, int], str, int]:
    """Decode a tower and return (interface, host, port)."""
    floors, at = [], 2
    for _ in range(struct.unpack_from("<H", data)[0]):
        size = struct.unpack_from("<H", data, at)[0]
        left = data[at + 2 : at + 2 + size]
        at += 2 + size
        size = struct.unpack_from("<H", data, at)[0]
        floors.append((left, data[at + 2 : at + 2 + size]))
        at += 2 + size
    if len(floors) < 5 or floors[3][0][:1] != b"\x07" or floors[4][0][:1] != b"\x09":
        raise RpcFault(RPC_X_BAD_STUB_DATA, "not a tower of ncacn_ip_tcp")
    left = floors[0][0]
    interface = (uuid.UUID(bytes_le=left[1:17]), struct.unpack_from("<H", left, 17)[0])
    return interface, socket.inet_ntoa(floors[4][1]), struct.unpack(">H", floors[3][1])[0]


def _read_twr(reader: NdrReader) -> bytes:
    reader.u32()
    return reader.raw(reader.u32())


def ept_map(
    mapper: tuple[str, int], interface: tuple[uuid.UUID, int], obj: uuid.UUID = NIL, max_towers: int = 4
) -> list[tuple[str, int]]:
    """Return the endpoints of an interface and an object from an endpoint mapper."""
    tower = encode_tower(interface, "0.0.0.0", 0)
    writer = NdrWriter().u32(1).raw(obj.bytes_le).u32(2).conformant(struct.pack("<I", len(tower)) + tower, len(tower))
    writer.align(4).raw(bytes(20)).u32(max_towers)
    connection = RpcConnection(mapper, EPM_IF)
    try:
        reader = NdrReader(connection.call(3, bytes(writer.data)))
    finally:
        connection.close()
    reader.handle()
    count = reader.u32()
    reader.u32(), reader.u32()
    referents = [reader.u32() for _ in range(reader.u32())]
    towers = [_read_twr(reader) for referent in referents if referent]
    status = reader.u32()
    if status or not count:
        raise RpcFault(status or EPT_NOT_REGISTERED, "ept_map")
    return [decode_tower(tower)[1:] for tower in towers]


class PeerEndpointMapper:
    """A server of ept_map with a table of (interface, object) -> endpoint."""

    def __init__(self, listen: tuple[str, int] = ("127.0.0.1", 135)) -> None:
        self.entries: list[tuple[tuple[uuid.UUID, int], uuid.UUID, str, int]] = []
        self.queries: list[tuple[tuple[uuid.UUID, int], uuid.UUID]] = []
        self.server = RpcServer(listen, {EPM_IF: self._handle})
        self.address = self.server.address

    def register(self, interface: tuple[uuid.UUID, int], obj: uuid.UUID, host: str, port: int) -> None:
        """Register an endpoint; IXnRemote registers its CID as the object (MS-CMPO 3.3.3)."""
        self.unregister(obj)
        self.entries.append((interface, obj, host, port))

    def unregister(self, obj: uuid.UUID) -> None:
        self.entries = [entry for entry in self.entries if entry[1] != obj]

    def _handle(self, call: RpcCall) -> bytes:
        if call.opnum != 3:
            raise RpcFault(NCA_OP_RANGE)
        reader = NdrReader(call.stub)
        obj = uuid.UUID(bytes_le=reader.raw(16)) if reader.u32() else NIL
        reader.u32()
        interface = decode_tower(_read_twr(reader))[0]
        reader.handle()
        limit = reader.u32()
        self.queries.append((interface, obj))
        found = [entry for entry in self.entries if entry[0] == interface and obj in (NIL, entry[1])][:limit]
        writer = NdrWriter().raw(bytes(20)).u32(len(found), limit, 0, len(found))
        writer.u32(*(3 + n for n in range(len(found))))
        for entry in found:
            tower = encode_tower(entry[0], entry[2], entry[3])
            writer.u32(len(tower), len(tower)).raw(tower)
        return bytes(writer.u32(0 if found else EPT_NOT_REGISTERED).data)

    def close(self) -> None:
        self.server.close()
