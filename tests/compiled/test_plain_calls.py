"""Calls that are served together: nobody can tell them from those that are served one by one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

import seeds
from compiled.test_stubs import some_receive, some_send
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces.ms_mqmq import OBJECTID
from openmsmq.model.constants import Access
from openmsmq.model.message import Message
from openmsmq.ndr import Interface, Operation
from openmsmq.protocols.plain_calls import PlainCalls
from openmsmq.protocols.qmcomm2 import QmComm2
from openmsmq.rpc.call import UNAUTHENTICATED, Call, Caller, InterfaceTable
from openmsmq.rpc.client_connection import ClientConnection
from openmsmq.rpc.pdu import AuthLevel, SyntaxId
from openmsmq.rpc.security import Identity
from openmsmq.rpc.server import MOST_GATHERED, RpcServer
from openmsmq.rpc.server_connection import ServerConnection
from openmsmq.transfer.receive_buffer import receive_buffer
from openmsmq.transfer.send_buffer import send_buffer
from protocols.clients import Server, queue_format

OPEN = m.qmcomm.operation("rpc_QMOpenQueueInternal")
SEND = m.qmcomm2.operation("rpc_ACSendMessageEx")
RECEIVE = m.qmcomm2.operation("rpc_ACReceiveMessageEx")
ALICE = Caller(Identity("alice", "", "S-1-5-21-1-2-3-1001"), AuthLevel.PKT_PRIVACY)
PROGRAMS, STEPS = 12, 120
TARGETS = (
    "a", "a", "a", "b", "b", "journaled", "small", "xact", "signed", "sealed", "DIRECT=TCP:192.0.2.7\\private$\\x",
)  # fmt: skip


class Connection:
    """A client and its connection, without a network; `said` is what the server has sent."""

    def __init__(self, manager: Server, rpc: RpcServer, caller: Caller) -> None:
        self.manager = manager
        self.server = ServerConnection(rpc.interfaces, rpc.associations, failures=rpc.failures)
        self.server.on_output = lambda: self.said.append(self.server.data_to_send())
        self.said: list[bytes] = []
        self.rpc, self.client = rpc, ClientConnection()
        for interface in (m.qmcomm, m.qmcomm2):
            self.client.bind([SyntaxId(interface.uuid, interface.version)])
            self.server.receive_data(self.client.data_to_send())
            self.client.receive_data(self.server.data_to_send())
        self.server._binder.plain_caller = caller

    def call(self, interface: Interface, opnum: int, stub: bytes) -> None:
        self.client.request(SyntaxId(interface.uuid, interface.version), opnum, stub)
        for event in self.server.receive_data(self.client.data_to_send()):
            assert isinstance(event, Call)
            self.rpc.dispatch(event)

    def ask(self, operation: Operation, request: Any) -> Any:
        """Call, and the answer."""
        self.call(m.qmcomm, operation.opnum, operation.encode_request(request))
        self.manager.sync()
        (event,) = self.client.receive_data(self.said.pop())
        return operation.decode_response(event.stub)  # type: ignore[union-attr]

    def open(self, name: str, access: Access) -> Any:
        target = queue_format(name)
        opened = self.ask(OPEN, m.rpc_QMOpenQueueInternal_Request(target, access, 0, 0, None, 0, bytes(16), "", 0, 0))
        assert opened.result == 0, hex(opened.result)
        return opened


class Door:
    """The queue manager behind an RPC server, and two clients."""

    def __init__(self, together: bool) -> None:
        self.server = Server()
        world = self.server.world
        world.create("a")
        world.create("b")
        world.create("journaled", JOURNAL=1)
        world.create("small", QUOTA=6)
        world.create("xact", TRANSACTION=1)
        world.create("signed", AUTHENTICATE=1)
        world.create("sealed", PRIV_LEVEL=2)
        sending = self.server.interfaces[1]
        assert isinstance(sending, QmComm2)
        random_bytes = random.Random(1).randbytes
        self.rpc = RpcServer(InterfaceTable(self.server.interfaces), random=random_bytes)
        if together:
            self.rpc.together = PlainCalls(self.server.environment, sending)
        self.clients = [Connection(self.server, self.rpc, caller) for caller in (UNAUTHENTICATED, ALICE)]
        self.handles = [[each.open(name, Access.SEND).phQueue for name in TARGETS] for each in self.clients]
        self.readers = [
            [each.open(name, Access.RECEIVE).pdwQMContext for name in ("a", "b", "journaled")] for each in self.clients
        ]

    def settle(self) -> None:
        """The loop comes round, and the disk has caught up."""
        self.rpc.serve_gathered()
        self.server.world.turn()
        self.server.sync()

    def contents(self) -> list[str]:
        found = []
        for name in ("a", "b", "journaled", "small", "xact", "signed", "sealed"):
            queue = self.server.world.queue(name)
            found.append(f"{name}: {queue.total_bytes} {list(queue.available)}")
            found += [repr(queue.message(key)) for key in queue.available]
        return found


def step(door: Door, chance: random.Random) -> None:
    number = chance.randrange(2)
    client = door.clients[number]
    dice = chance.random()
    if dice < 0.6:
        handle = chance.choice(door.handles[number]) if chance.random() < 0.97 else door.handles[1 - number][0]
        client.call(m.qmcomm2, SEND.opnum, some_send(chance, handle))
    elif dice < 0.85:
        client.call(m.qmcomm2, RECEIVE.opnum, some_receive(chance, chance.choice(door.readers[number])))
    elif dice < 0.94:
        door.settle()
    elif dice < 0.97:
        door.rpc.serve_gathered()
        door.server.world.now += chance.randrange(3000)
    elif dice < 0.985:
        door.rpc.serve_gathered()
        door.server.world.store.full = not door.server.world.store.full
    else:
        door.rpc.serve_gathered()
        changes = door.server.world.manager.changes
        changes.throttled = not changes.throttled


def in_a_loop(work: Callable[[], None]) -> None:
    async def run() -> None:
        work()

    asyncio.run(run())


@pytest.mark.parametrize("number", range(PROGRAMS))
def test_nothing_tells_whether_sends_are_served_together(number: int) -> None:
    seed = seeds.chance(f"plain sends {number}").random()

    def work() -> None:
        doors = [Door(together) for together in (False, True)]
        chances = [random.Random(seed) for _ in doors]
        for _ in range(STEPS):
            for door, chance in zip(doors, chances, strict=True):
                step(door, chance)
        for door in doors:
            door.rpc.serve_gathered()
            door.server.world.store.full = False
            door.settle()
        one_by_one, together = doors
        assert [each.said for each in together.clients] == [each.said for each in one_by_one.clients]
        assert together.contents() == one_by_one.contents()
        for door in doors:
            door.server.world.restart()
        assert together.contents() == one_by_one.contents()

    in_a_loop(work)


def test_plain_sends_are_served_together() -> None:
    """Of different queues, and more than are gathered; the others would show nothing if nothing were plain."""

    def work() -> None:
        door = Door(True)
        served: list[int] = []
        together = door.rpc.together
        assert together is not None

        class Counting:
            takes = together.takes

            def serve(self, calls: list[Call], start: int) -> int:
                end = together.serve(calls, start)
                served.append(end - start)
                return end

        door.rpc.together = Counting()
        ptb = send_buffer(Message(label="l", body=b"body", delivery_guarantee=1))
        for index in range(MOST_GATHERED + 10):
            request = m.rpc_ACSendMessageEx_Request(door.handles[0][index % 5], ptb, OBJECTID(bytes(16), 0))
            door.clients[0].call(m.qmcomm2, SEND.opnum, SEND.encode_request(request))
        assert served == [0, MOST_GATHERED - 1]  # the first one reserves numbers
        door.settle()
        assert served[2:] == [10] and len(door.clients[0].said) == MOST_GATHERED + 10

    in_a_loop(work)


def test_plain_receives_are_served_together() -> None:
    def work() -> None:
        door = Door(True)
        ptb = send_buffer(Message(label="l", body=b"body", delivery_guarantee=1))
        client = door.clients[0]
        for _ in range(20):
            request = m.rpc_ACSendMessageEx_Request(door.handles[0][0], ptb, None)
            client.call(m.qmcomm2, SEND.opnum, SEND.encode_request(request))
        door.settle()
        removals, store = [], door.server.world.store
        append = store.append
        store.append = lambda operations: removals.append(len(operations[0].keys)) or append(operations)
        client.said.clear()
        for _ in range(20):
            stub = RECEIVE.encode_request(m.rpc_ACReceiveMessageEx_Request(door.readers[0][0], receive_buffer(0, 0)))
            client.call(m.qmcomm2, RECEIVE.opnum, stub)
        door.settle()
        assert removals == [20] and len(client.said) == 20
        assert len(door.server.world.queue("a")) == 0

    in_a_loop(work)
