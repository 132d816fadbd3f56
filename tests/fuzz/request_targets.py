"""Fuzz targets for C modules that read requests of RPC before any Python code does: connections that they read are
answered like those that Python code reads. Where they have not been compiled, there is nothing to compare."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib.util import find_spec
from itertools import pairwise
from typing import Any
from uuid import UUID

from rpc.toys import ECHO, counter_random

from fuzz.network_targets import parts
from msrpc.errors import RemoteProtocolError
from msrpc.ndr import BadStubData
from msrpc.rpc.association import HANDLE_SIZE
from msrpc.rpc.call import UNAUTHENTICATED, Call, InterfaceTable, RpcCaller, RpcInterface
from msrpc.rpc.call_pdus import CALL_HEADER_SIZE, RequestPdu, Response, decode
from msrpc.rpc.client_connection import ClientConnection
from msrpc.rpc.connection_states import BY_POLLER, BY_TRANSPORT
from msrpc.rpc.faults import NCA_S_FAULT_CANCEL
from msrpc.rpc.limits import RpcLimits
from msrpc.rpc.pdu import HEADER_SIZE, NDR, NDR64, PFC_OBJECT_UUID, PFC_WHOLE, AuthLevel, Header, SyntaxId
from msrpc.rpc.security import Identity
from msrpc.rpc.server import RpcServer, _Connection
from msrpc.rpc.whole_pdus import request, request_in_python, response, response_in_python
from paired_transport import PairedTransport

IS_COMPILED = find_spec("msrpc.rpc.requests") is not None
if IS_COMPILED:
    from msrpc.rpc import requests


def fuzz_headers_c(data: bytes) -> None:
    """The offset of a request in one byte, its maximum size in two, then the bytes. If one is found, it is that
    of the general decoder; if none is found, there is no request of one fragment without a verifier."""
    at, most, data = (data[0] if data else 0), int.from_bytes(data[1:3], "little"), data[3:]
    found = request(data, at, most)
    assert found == request_in_python(data, at, most)
    whole = _decoded(data[at:])
    size = len(whole.pack()) if whole is not None else 0
    if found is None:
        assert whole is None or size > most
        return
    call_id, context_id, _, _, stub = found
    assert whole is not None
    target = whole.object_uuid.bytes_le if whole.object_uuid is not None else None
    assert (whole.call_id, whole.context_id, whole.opnum, target, whole.stub) == found
    assert whole.pack() == data[at : at + size]
    answer = response(call_id, context_id, stub)
    assert answer == response_in_python(call_id, context_id, stub)
    expected = Response(call_id, context_id, stub, alloc_hint=len(stub))
    assert decode(Header.unpack(answer, len(answer)), answer) == expected


def _decoded(data: bytes) -> RequestPdu | None:
    """Return the request at the start of bytes as the general decoder reads it; None if it is another PDU, or one that
    is incomplete or in another form."""
    if len(data) < CALL_HEADER_SIZE or data[4:8] != b"\x10\0\0\0":
        return None
    try:
        header = Header.unpack(data, 0xFFFF)
        if len(data) < header.frag_length:
            return None
        pdu = decode(header, data[: header.frag_length])
    except RemoteProtocolError:
        return None
    is_whole = isinstance(pdu, RequestPdu) and pdu.flags & ~PFC_OBJECT_UUID == PFC_WHOLE and not header.auth_length
    return pdu if is_whole else None  # type: ignore[return-value]


ANSWER, WAIT, OPEN, CLOSE, REVERSE, USE, SIZED = range(7)
BATCHED = (REVERSE, USE, SIZED)
KIND, OTHER_KIND = "toy", "other"
LARGEST = 8192  # bytes of a reply: more than one fragment
ALICE = RpcCaller(Identity("alice", "", "S-1-5-21-1-2-3-1001"), AuthLevel.NONE)
LIMITS = RpcLimits(max_pending=8)
PIECE = 1000  # bytes that are sent at once: fewer than 64 PDUs, after which a server serves what it has
_CANCELS = re.compile(b"\\x05.[\\x12\\x13]", re.DOTALL)  # co_cancel and orphaned
SYNTAXES = (NDR, NDR64)


class Toy:
    """An interface whose operations answer at once or later, use context handles, or are served in batches."""

    name, minimum_level, open_opnums = "toy", AuthLevel.NONE, frozenset[int]()
    transfer_syntaxes = SYNTAXES

    def __init__(self, uuid: UUID = ECHO.uuid) -> None:
        self.uuid, self.version = uuid, ECHO.version
        self.waiting: list[Call] = []

    def accepts(self, opnum: int) -> bool:
        return opnum <= SIZED

    def call(self, call: Call) -> None:
        match call.opnum:
            case 0:
                call.reply(call.stub)
            case 1:
                self.waiting.append(call)
                call.on_cancel = lambda: call.fault(NCA_S_FAULT_CANCEL)
            case 2:
                call.reply(call.handles.create(OTHER_KIND if call.stub else KIND, b"object of " + call.stub))
            case 3:
                call.reply(call.handles.close(call.stub, KIND))
            case 4:
                call.reply(call.stub[::-1])
            case 5:
                call.reply(call.handles.get(call.stub[:HANDLE_SIZE], KIND))
            case 6:
                if len(call.stub) < 4:
                    raise BadStubData("too short")
                call.reply(_sized(int.from_bytes(call.stub[:4], "little")))

    def answer_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            if not call.over:
                call.reply(b"late")


def _sized(word: int) -> bytes:
    return word.to_bytes(4, "little").ljust(word % LARGEST, b"-")


class Batches:
    """Serves batches with the functions of the C module."""

    def operations(self, interface: RpcInterface) -> Collection[int]:
        return BATCHED

    def by_operation(self, calls: list[Any]) -> list[list[Any]]:
        return requests.by_operation(calls)

    def serve(self, calls: list[Any]) -> int:
        assert not requests.any_abandoned(calls)
        opnum = calls[0].opnum
        if opnum == REVERSE:
            answers = [stub[::-1] for stub in requests.stubs(calls)]
        elif opnum == USE:
            answers = requests.held(calls, KIND)
        else:
            answers = list(map(_sized, requests.leading_words(calls)))
        requests.answer(calls[: len(answers)], answers)
        return len(answers)


class Side:
    """A server and its clients, whose connections C code reads, or only Python code does."""

    def __init__(self, in_c: bool) -> None:
        self.toys = Toy(), Toy(UUID(int=7))
        self.rpc = RpcServer(InterfaceTable(self.toys), random=counter_random(), limits=LIMITS)
        self.rpc.calls.together = Batches()
        self.rpc.poller = requests.Poller()
        self.clients: list[tuple[_Connection, PairedTransport, bytearray]] = []
        group = 0
        for caller in (UNAUTHENTICATED, ALICE):
            transport, client = PairedTransport(), ClientConnection(assoc_group_id=group)
            protocol = _Connection(self.rpc, self.rpc.interfaces)
            protocol.connection_made(transport)  # type: ignore[arg-type]
            if not in_c:
                protocol._source = None
            core = protocol._core
            assert core is not None
            client.bind([SyntaxId(toy.uuid, toy.version) for toy in self.toys])
            core.receive_data(client.data_to_send())
            client.receive_data(core.data_to_send())
            core._channels.default_caller = caller
            group = client.assoc_group_id
            self.clients.append((protocol, transport, bytearray()))
            protocol.data_received(RequestPdu(1, 0, ANSWER, b"").pack())
            assert protocol._reader == (BY_POLLER if in_c else BY_TRANSPORT)
        self.settle()

    def hear(self, number: int, data: bytes) -> None:
        """Pass bytes of a client to the server."""
        protocol, transport, _ = self.clients[number]
        if transport.closed:
            return
        if protocol._reader == BY_TRANSPORT:
            protocol.data_received(data)
        else:
            assert transport.far.send(data) == len(data)
            self.rpc.read_sources()
            assert not _received(transport.near)

    def settle(self) -> None:
        """Serve what has been gathered, and gather the replies."""
        self.rpc.calls.serve_gathered()
        self.rpc.flush()
        for _, transport, said in self.clients:
            said += _received(transport.far)
            said += b"".join(transport.later)
            transport.later.clear()

    @property
    def state(self) -> list[Any]:
        """The replies of each connection by call; then whether it is closed, or what it occupies."""
        return [
            (_by_call(said), transport.closed or self._left(protocol)) for protocol, transport, said in self.clients
        ]

    def _left(self, protocol: _Connection) -> tuple[Any, ...]:
        """Return the pending calls, whether a PDU is incomplete, and the context handles."""
        core = protocol._core
        assert core is not None and core.association is not None
        return sorted(core.unanswered), protocol._waits_since is not None, sorted(core.association.handles.entries)

    def close(self) -> None:
        for protocol, transport, _ in self.clients:
            protocol.connection_lost(None)
            transport.near.close()
            transport.far.close()
        assert self.rpc.poller is not None
        self.rpc.poller.close()


def _received(sock: socket.socket) -> bytes:
    found = bytearray()
    with suppress(BlockingIOError):
        while part := sock.recv(1 << 18):
            found += part
    return bytes(found)


def _by_call(said: bytearray) -> dict[int, bytes]:
    """Return what was sent for each call. Calls that are served together are answered in any order."""
    found: dict[int, bytes] = {}
    while said:
        header = Header.unpack(said)
        pdu, said = bytes(said[: header.frag_length]), said[header.frag_length :]
        assert len(pdu) >= HEADER_SIZE
        found[header.call_id] = found.get(header.call_id, b"") + pdu
    return found


def _pieces(data: bytes) -> list[bytes]:
    """Cut before each PDU that may cancel a call, and into pieces that are not too large."""
    ends = {*(found.start() for found in _CANCELS.finditer(data)), *range(0, len(data), PIECE), len(data)}
    return [data[start:end] for start, end in pairwise(sorted(ends))]


def _compare(data: bytes) -> None:
    sent = list(parts(data))
    # A canceled call makes Python code serve what it has gathered, which C code may do later.
    waits = not _CANCELS.search(b"".join(part[1:] for part in sent))
    sides = [Side(in_c) for in_c in (True, False)]
    try:
        for part in sent:
            flags = part[0] if part else 0
            for side in sides:
                for piece in _pieces(part[1:]):
                    side.hear(flags & 1, piece)
                    if flags & 2 or not waits:
                        side.settle()
                if flags & 4:
                    for toy in side.toys:
                        toy.answer_waiting()
        for side in sides:
            side.settle()
        assert sides[0].state == sides[1].state
        for side in sides:
            for toy in side.toys:
                toy.answer_waiting()
            side.settle()
        assert sides[0].state == sides[1].state
    finally:
        for side in sides:
            side.close()


def fuzz_requests_c(data: bytes) -> None:
    """Two servers get the same parts: C code reads the connections of one, Python code those of the other. Each part
    follows its length; its first byte selects one of two clients, and what the server does next."""
    if not IS_COMPILED:
        return

    async def work() -> None:
        _compare(data)

    asyncio.run(work())


TARGETS: dict[str, Callable[[bytes], None]] = {"headers_c": fuzz_headers_c, "requests_c": fuzz_requests_c}
