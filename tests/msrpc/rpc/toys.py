"""A toy interface, and two cores joined in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from msrpc.rpc.association import AssociationTable
from msrpc.rpc.call import Call, InterfaceTable
from msrpc.rpc.client_connection import ClientConnection
from msrpc.rpc.faults import Fault
from msrpc.rpc.limits import RpcLimits
from msrpc.rpc.pdu import AuthLevel, SyntaxId
from msrpc.rpc.server import RpcServer
from msrpc.rpc.server_connection import CallCancelled, ServerConnection

ECHO = SyntaxId(UUID("0b5c9a52-6f0c-4c5e-9d7e-6c1d3b1f0a01"), (1, 0))
OTHER = SyntaxId(UUID("0b5c9a52-6f0c-4c5e-9d7e-6c1d3b1f0a02"), (2, 3))

NULL, REVERSE, WAIT, CRASH, WHO, OPEN, CLOSE, BIG = range(8)


class Toy:
    """Reverses its input; other operations wait, crash, return the caller, or use context handles."""

    name = "toy"
    minimum_level = AuthLevel.NONE
    open_opnums: frozenset[int] = frozenset({NULL})

    def __init__(self, syntax: SyntaxId = ECHO, minimum_level: AuthLevel = AuthLevel.NONE) -> None:
        self.uuid, self.version = syntax.uuid, syntax.version
        self.minimum_level = minimum_level
        self.waiting: list[Call] = []
        self.cancelled: list[Call] = []
        self.rundowns: list[str] = []
        self.calls: list[Call] = []

    def accepts(self, opnum: int) -> bool:
        return opnum <= BIG

    def call(self, call: Call) -> None:
        self.calls.append(call)
        match call.opnum:
            case 0:
                call.reply(b"")
            case 1:
                call.reply(bytes(call.stub)[::-1])
            case 2:
                self.waiting.append(call)
                call.on_cancel = lambda: self._on_cancel(call)
            case 3:
                raise RuntimeError("a bug")
            case 4:
                caller = call.caller
                call.reply(f"{caller.domain}|{caller.user}|{caller.sid}|{caller.level}|{call.object_uuid}".encode())
            case 5:
                call.reply(call.handles.create("toy", "object", self.rundowns.append))
            case 6:
                call.handles.close(call.stub, "toy")
                call.reply(bytes(20))
            case 7:
                call.reply(bytes(int.from_bytes(call.stub, "little")))

    def _on_cancel(self, call: Call) -> None:
        self.cancelled.append(call)
        call.fault(0x1C00000D)


def counter_random() -> Any:
    state = iter(range(1, 1 << 30))
    return lambda n: next(state).to_bytes(n, "little")


class Pair:
    """A client core and a server core joined in memory, which exchange `chunk` bytes at a time."""

    def __init__(self, *toys: Toy, acceptor: Any = None, chunk: int = 0, max_fragment: int = 0, **limits: int) -> None:
        self.associations = AssociationTable(counter_random())
        self.toys = toys or (Toy(),)
        self.server = ServerConnection(
            InterfaceTable(self.toys), self.associations, acceptor=acceptor, limits=RpcLimits(**limits)
        )
        self.client = ClientConnection()
        if max_fragment:
            # Announced in the bind. The bind_ack cannot be fragmented, so the splitter accepts a larger one.
            self.client.limits = RpcLimits(max_fragment=max_fragment)
        self.chunk = chunk
        self.answering = True
        self.ended: list[str] = []

    def _portions(self, data: bytes) -> Iterator[bytes]:
        step = self.chunk or max(1, len(data))
        return (data[i : i + step] for i in range(0, len(data), step))

    def serve(self, data: bytes) -> None:
        for portion in self._portions(data):
            events = self.server.receive_data(portion)
            while self.server.more:
                events += self.server.receive_data(b"")
            for event in events:
                if isinstance(event, Call):
                    if not self.answering:
                        continue
                    try:
                        event.interface.call(event)
                    except Fault as fault:
                        event.fault(fault.status)
                elif isinstance(event, CallCancelled):
                    event.call.cancel()
                else:
                    self.ended.append(event.reason)

    def exchange(self) -> list[Any]:
        """Exchange bytes until neither side has more to send. Returns the client's events."""
        events: list[Any] = []
        while True:
            upward = self.client.data_to_send()
            self.serve(upward)
            downward = self.server.data_to_send()
            for portion in self._portions(downward):
                events += self.client.receive_data(portion)
            if not upward and not downward:
                return events


@contextmanager
def running_server(*toys: Any, host: str = "127.0.0.1", **arguments: Any) -> Iterator[tuple[RpcServer, int]]:
    """Run an `RpcServer` on a loopback port in a thread. Yields the server and its port."""
    loop = asyncio.new_event_loop()
    server = RpcServer(InterfaceTable(toys), **arguments)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        _, port = asyncio.run_coroutine_threadsafe(server.listen(host, 0), loop).result(5)
        yield server, port
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.call_later, 0.01, loop.stop)
        thread.join(5)
        loop.close()
