"""The results of batched calls equal those of calls served individually."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

import seeds
from compiled.test_stubs import damaged, some_receive, some_send
from msrpc.ndr import Interface, Operation
from msrpc.rpc import requests
from msrpc.rpc.call import UNAUTHENTICATED, Call, InterfaceTable, RpcCaller
from msrpc.rpc.client_connection import ClientConnection
from msrpc.rpc.connection_states import BY_TRANSPORT
from msrpc.rpc.dispatcher import MOST_GATHERED
from msrpc.rpc.pdu import AuthLevel, SyntaxId
from msrpc.rpc.security import Identity
from msrpc.rpc.server import RpcServer, _Connection
from msrpc.rpc.server_connection import ServerConnection
from openmsmq.conversion.receive_buffer import receive_buffer
from openmsmq.conversion.send_buffer import send_buffer
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces import ms_mqqp, ms_mqrr
from openmsmq.interfaces.ms_mqmq import OBJECTID
from openmsmq.model.constants import INFINITE, Access, PropId, ReceiveAction
from openmsmq.model.errors import MsmqError
from openmsmq.model.message import Message
from openmsmq.protocols.fast_path import FastPath
from openmsmq.protocols.qm2qm import PCTX_REMOTEREAD_HANDLE_TYPE
from openmsmq.protocols.qm2qm import RR_ACK as RR_ACK_OF_SESSION
from openmsmq.protocols.qm2qm import RR_NACK as RR_NACK_OF_SESSION
from openmsmq.protocols.remote_read import CLEANUP_TIMEOUT, RR_ACK, RR_NACK
from paired_transport import PairedTransport
from protocols.clients import Server, queue_format
from queueing.world import ALICE as OWNER

OPEN = m.qmcomm.operation("rpc_QMOpenQueueInternal")
SEND = m.qmcomm2.operation("rpc_ACSendMessageEx")
RECEIVE = m.qmcomm2.operation("rpc_ACReceiveMessageEx")
OPEN_REMOTE = ms_mqrr.RemoteRead.operation("R_OpenQueue")
START = ms_mqrr.RemoteRead.operation("R_StartReceive")
END = ms_mqrr.RemoteRead.operation("R_EndReceive")
OPEN_OF_OTHERS = m.qmcomm.operation("R_QMOpenRemoteQueue")
OPEN_SESSION = ms_mqqp.qm2qm.operation("RemoteQMOpenQueue")
START_OF_SESSION = ms_mqqp.qm2qm.operation("RemoteQMStartReceive")
START_2 = ms_mqqp.qm2qm.operation("RemoteQMStartReceive2")
END_OF_SESSION = ms_mqqp.qm2qm.operation("RemoteQMEndReceive")
ALICE = RpcCaller(Identity("alice", "", "S-1-5-21-1-2-3-1001"), AuthLevel.PKT_PRIVACY)
PROGRAMS, STEPS = 12, 120
TARGETS = (
    "a", "a", "a", "b", "b", "journaled", "small", "xact", "signed", "sealed", "DIRECT=TCP:192.0.2.7\\private$\\x",
)  # fmt: skip


class Connection:
    """A client and its connection, without a network."""

    def __init__(self, manager: Server, rpc: RpcServer, caller: RpcCaller) -> None:
        self.manager = manager
        self.server = ServerConnection(rpc.interfaces, rpc.associations, failures=rpc.failures)
        self.server.on_output = lambda: self._said.append(self.server.data_to_send())
        self._said: list[bytes] = []
        self.rpc, self.client = rpc, ClientConnection()
        self._bind(self.server)
        self.server._binder.default_caller = caller

    def _bind(self, core: ServerConnection) -> None:
        """Bind all interfaces in one PDU, with presentation contexts from 0 on."""
        interfaces = (m.qmcomm, m.qmcomm2, ms_mqrr.RemoteRead, ms_mqqp.qm2qm)
        self.core = core
        self.client.bind([SyntaxId(interface.uuid, interface.version) for interface in interfaces])
        core.receive_data(self.client.data_to_send())
        self.client.receive_data(core.data_to_send())

    def call(self, interface: Interface, opnum: int, stub: bytes) -> None:
        self.client.request(SyntaxId(interface.uuid, interface.version), opnum, stub)
        self.hear(self.client.data_to_send())

    def hear(self, data: bytes) -> None:
        """Pass bytes to the server."""
        for event in self.server.receive_data(data):
            assert isinstance(event, Call)
            self.rpc.calls.dispatch(event)

    def said(self) -> bytes:
        """Return the bytes that the server has sent since the last call."""
        said, self._said = self._said, []
        return b"".join(said)

    def answers(self) -> list[Any]:
        """Return the replies that the server has sent."""
        return self.client.receive_data(self.said())

    def ask(self, interface: Interface, operation: Operation, request: Any) -> Any:
        """Call; return the reply."""
        self.call(interface, operation.opnum, operation.encode_request(request))
        self.manager.sync()
        (event,) = self.answers()
        return operation.decode_response(event.stub)

    def open(self, name: str, access: Access) -> Any:
        target = queue_format(name)
        request = m.rpc_QMOpenQueueInternal_Request(target, access, 0, 0, None, 0, bytes(16), "", 0, 0)
        opened = self.ask(m.qmcomm, OPEN, request)
        assert opened.result == 0, hex(opened.result)
        return opened

    def open_remotely(self, name: str, access: Access) -> bytes:
        request = ms_mqrr.R_OpenQueue_Request(queue_format(name), access, 0, bytes(16), 1, 6, 3, 9600, 1)
        handle: bytes = self.ask(ms_mqrr.RemoteRead, OPEN_REMOTE, request).pphContext
        return handle

    def open_session(self, name: str, access: Access) -> int:
        """Open a queue for a reader of qm2qm; return its handle."""
        given = m.R_QMOpenRemoteQueue_Request(queue_format(name), 0, access, 0, bytes(16), 0x100)
        opened = self.ask(m.qmcomm, OPEN_OF_OTHERS, given)
        request = ms_mqqp.RemoteQMOpenQueue_Request(
            bytes(16), 0, opened.phQueue, opened.dwpQueue, opened.pdwContext
        )  # fmt: skip
        assert self.ask(ms_mqqp.qm2qm, OPEN_SESSION, request).result == 0
        return int(opened.phQueue)

    def held(self) -> list[bytes]:
        """Return the handles of messages that qm2qm readers of this client have started to receive."""
        entries = self.core.association.handles.entries
        return [handle for handle, entry in entries.items() if entry[0] == PCTX_REMOTEREAD_HANDLE_TYPE]


class SocketConnection(Connection):
    """A connection with real sockets: native code reads requests and sends replies."""

    def __init__(self, manager: Server, rpc: RpcServer, caller: RpcCaller) -> None:
        self.manager, self.rpc, self.client = manager, rpc, ClientConnection()
        rpc.poller = rpc.poller or requests.Poller()
        self.transport = PairedTransport()
        self.far = self.transport.far
        self.protocol = _Connection(rpc, rpc.interfaces)
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]
        core = self.protocol._core
        assert core is not None
        self._bind(core)
        core._binder.default_caller = caller

    def hear(self, data: bytes) -> None:
        if self.protocol._reader == BY_TRANSPORT:
            self.protocol.data_received(data)
            return
        while data:
            data = data[self.far.send(data) :]
            self.rpc.read_sources()
            if len(self.rpc.calls._gathered) >= MOST_GATHERED:
                self.rpc.calls.serve_gathered()
                self.rpc.read_sources()

    def said(self) -> bytes:
        self.rpc.flush()
        parts = []
        with contextlib.suppress(BlockingIOError):
            while part := self.far.recv(1 << 20):
                parts.append(part)
        parts += self.transport.later
        self.transport.later.clear()
        return b"".join(parts)


class OneByOne:
    """A batch handler that serves nothing, so that interfaces serve every call individually, in the same order."""

    def __init__(self, together: FastPath) -> None:
        self.operations, self.by_operation = together.operations, together.by_operation

    def serve(self, calls: list[Call]) -> int:
        return 0


class LocalServer:
    """The queue manager behind an RPC server, and two clients."""

    def __init__(self, together: bool, connection: type[Connection] = Connection) -> None:
        self.server = Server()
        world = self.server.world
        world.create("a")
        world.create("b")
        world.create("journaled", JOURNAL=1)
        world.create("small", QUOTA=6)
        world.create("xact", TRANSACTION=1)
        world.create("signed", AUTHENTICATE=1)
        world.create("sealed", PRIV_LEVEL=2)
        random_bytes = random.Random(1).randbytes
        self.rpc = RpcServer(InterfaceTable(self.server.interfaces), random=random_bytes)
        fast_path = FastPath(self.server.environment, self.server.interfaces)
        self.rpc.calls.together = fast_path if together else OneByOne(fast_path)
        self.clients = [connection(self.server, self.rpc, caller) for caller in (UNAUTHENTICATED, ALICE)]
        self.handles = [[each.open(name, Access.SEND).phQueue for name in TARGETS] for each in self.clients]
        self.readers = [
            [each.open(name, Access.RECEIVE).pdwQMContext for name in ("a", "b", "journaled")] for each in self.clients
        ]
        self.remote_readers = [
            [each.open_remotely(name, Access.RECEIVE) for name in ("a", "a", "b", "journaled")]
            + [each.open_remotely("a", Access.PEEK)]
            for each in self.clients
        ]
        self.sessions = [
            [each.open_session(name, Access.RECEIVE) for name in ("a", "b", "journaled")]
            + [each.open_session("a", Access.PEEK), 7]
            for each in self.clients
        ]

    def settle(self) -> None:
        """Run the event loop until everything is synced."""
        self.rpc.calls.serve_gathered()
        self.server.world.turn()
        self.server.sync()
        self.rpc.flush()

    def contents(self) -> list[str]:
        found = []
        for name in ("a", "b", "journaled", "small", "xact", "signed", "sealed"):
            queue = self.server.world.queue(name)
            found.append(f"{name}: {queue.total_bytes} {list(queue.available)} {sorted(queue.locked)}")
            found.append(f"{queue.came} {queue.left} {queue.waiters} {queue.aborts}")
            found += [repr(queue.message(key)) for key in queue.available]
        found += [f"due at {timer.due}" for timer in self.server.timers]
        return found


def some_start(chance: random.Random, handle: bytes, request: int) -> bytes:
    """Start a receive, mostly a plain one."""
    stub = START.encode_request(ms_mqrr.R_StartReceive_Request(
        handle, chance.choice((0,) * 20 + (7,)), chance.choice((0,) * 20 + (1,)),
        int(chance.choice((ReceiveAction.RECEIVE,) * 20 + (ReceiveAction.PEEK_CURRENT,))), chance.choice((0, 0, 0,
        1000)),
        request, chance.choice((1 << 20, 1 << 20, 1 << 20, 100)), 0,
    ))  # fmt: skip
    return damaged(chance, stub) if chance.random() < 0.1 else stub


def some_end(chance: random.Random, handle: bytes, request: int) -> bytes:
    acknowledgment = chance.choice((RR_ACK,) * 9 + (RR_NACK,))
    stub = END.encode_request(ms_mqrr.R_EndReceive_Request(handle, acknowledgment, request))
    return damaged(chance, stub) if chance.random() < 0.1 else stub


def step_remotely(local: LocalServer, chance: random.Random, number: int) -> None:
    """Start or end some remote receives, or let them time out."""
    client, handle = local.clients[number], chance.choice(local.remote_readers[number])
    dice, requests = chance.random(), [chance.randrange(5) for _ in range(4)]
    if dice < 0.45:
        for request in requests:
            client.call(ms_mqrr.RemoteRead, START.opnum, some_start(chance, handle, request))
    elif dice < 0.95:
        for request in requests:
            client.call(ms_mqrr.RemoteRead, END.opnum, some_end(chance, handle, request))
    else:
        local.rpc.calls.serve_gathered()
        local.server.pass_time(chance.choice((1, 100, 300)))


def some_start_of_session(chance: random.Random, queue: int) -> tuple[Operation, bytes]:
    """Start a receive by qm2qm, mostly a plain one."""
    description = ms_mqqp.REMOTEREADDESC(
        queue, chance.choice((0,) * 20 + (1,)),
        int(chance.choice((ReceiveAction.RECEIVE,) * 20 + (ReceiveAction.PEEK_CURRENT,))),
        chance.choice((0, 0, 0, 1000)),
        0, queue, chance.randrange(5), chance.choice((0, 1)), chance.choice((0, 5)), chance.choice((0, 2)),
    )  # fmt: skip
    if chance.random() < 0.05:
        description.lpBuffer, description.dwSize = b"buffer", 6
    if chance.random() < 0.5:
        operation, stub = START_OF_SESSION, START_OF_SESSION.encode_request(
            ms_mqqp.RemoteQMStartReceive_Request(description)
        )  # fmt: skip
    else:
        operation, stub = START_2, START_2.encode_request(
            ms_mqqp.RemoteQMStartReceive2_Request(ms_mqqp.REMOTEREADDESC2(description, chance.choice((0, 9))))
        )  # fmt: skip
    return operation, damaged(chance, stub) if chance.random() < 0.1 else stub


def step_by_session(local: LocalServer, chance: random.Random, number: int) -> None:
    """Start or end some receives by qm2qm."""
    client = local.clients[number]
    if chance.random() < 0.5:
        for _ in range(4):
            operation, stub = some_start_of_session(chance, chance.choice(local.sessions[number]))
            client.call(ms_mqqp.qm2qm, operation.opnum, stub)
        return
    local.rpc.calls.serve_gathered()
    held = client.held()
    for handle in chance.sample(held, min(len(held), 4)) + [bytes(20)] * (chance.random() < 0.1):
        acknowledgment = chance.choice((RR_ACK_OF_SESSION,) * 9 + (RR_NACK_OF_SESSION,))
        stub = END_OF_SESSION.encode_request(ms_mqqp.RemoteQMEndReceive_Request(handle, acknowledgment))
        for _ in range(1 + (chance.random() < 0.1)):
            client.call(ms_mqqp.qm2qm, END_OF_SESSION.opnum, damaged(chance, stub) if chance.random() < 0.1 else stub)


PROPERTIES = (
    ("JOURNAL", 1), ("JOURNAL", 0), ("QUOTA", 1), ("QUOTA", INFINITE), ("AUTHENTICATE", 1), ("AUTHENTICATE", 0),
    ("PRIV_LEVEL", 2), ("PRIV_LEVEL", 1),
)  # fmt: skip


def change_something(local: LocalServer, chance: random.Random) -> None:
    """Change the state in which the next calls are served."""
    local.rpc.calls.serve_gathered()
    world, name, kind = local.server.world, chance.choice(("a", "b", "journaled", "small")), chance.randrange(5)
    manager, number = world.manager, chance.randrange(1, 1 << 60)
    if kind == 0:
        property_name, value = chance.choice(PROPERTIES)
        values = {PropId[f"PROPID_Q_{property_name}"]: value}
        manager.administration.set_properties(world.queue(name), values, OWNER)
    elif kind == 1:
        manager.reading.purge(world.open(name))
    elif kind == 2:  # some expire, and some of these stay because the disk is full
        world.send(name, "expires", time_to_be_received=chance.randrange(3), delivery_guarantee=chance.randrange(2))
        world.store.full = chance.random() < 0.5
        world.advance(chance.choice((100, 3000)))
        world.store.full = False
    elif kind == 3:  # abort the receive of a message
        transaction = world.begin(number)
        world.send("xact", "sent twice", transaction)
        manager.transactions.commit(transaction)
        transaction = world.begin(number + 1)
        world.read(world.open("xact"), transaction=transaction)
        manager.transactions.abort(transaction)
    else:
        world.step(-chance.randrange(5000))


def step(local: LocalServer, chance: random.Random) -> None:
    if chance.random() < 0.1:
        with contextlib.suppress(MsmqError):  # the disk or a quota is full
            change_something(local, chance)
        return
    number = chance.randrange(2)
    client = local.clients[number]
    dice = chance.random()
    if dice < 0.15:
        step_remotely(local, chance, number)
    elif dice < 0.25:
        step_by_session(local, chance, number)
    elif dice < 0.35:
        for _ in range(5):
            ptb = send_buffer(Message(label="l", body=b"body" * 50, delivery_guarantee=chance.randrange(2)))
            request = m.rpc_ACSendMessageEx_Request(local.handles[number][chance.randrange(5)], ptb, None)
            client.call(m.qmcomm2, SEND.opnum, SEND.encode_request(request))
    elif dice < 0.6:
        handle = chance.choice(local.handles[number]) if chance.random() < 0.97 else local.handles[1 - number][0]
        client.call(m.qmcomm2, SEND.opnum, some_send(chance, handle))
    elif dice < 0.85:
        client.call(m.qmcomm2, RECEIVE.opnum, some_receive(chance, chance.choice(local.readers[number])))
    elif dice < 0.94:
        local.settle()
    elif dice < 0.97:
        local.rpc.calls.serve_gathered()
        local.server.world.now += chance.randrange(3000)
    elif dice < 0.985:
        local.rpc.calls.serve_gathered()
        local.server.world.store.full = not local.server.world.store.full
    else:
        local.rpc.calls.serve_gathered()
        changes = local.server.world.manager.changes
        changes.throttled = not changes.throttled


def in_a_loop(work: Callable[[], None]) -> None:
    async def run() -> None:
        work()

    asyncio.run(run())


@pytest.mark.parametrize("number", range(PROGRAMS))
def test_batched_calls_have_the_same_replies_as_single_ones(number: int) -> None:
    seed = seeds.chance(f"plain calls {number}").random()

    def work() -> None:
        servers = [LocalServer(False), LocalServer(True), LocalServer(True, SocketConnection)]
        chances = [random.Random(seed) for _ in servers]
        for _ in range(STEPS):
            for local, chance in zip(servers, chances, strict=True):
                step(local, chance)
        for local in servers:
            local.rpc.calls.serve_gathered()
            local.server.world.store.full = False
            local.settle()
        one_by_one, *others = servers
        said, contents = [each.said() for each in one_by_one.clients], one_by_one.contents()
        for local in others:
            assert [each.said() for each in local.clients] == said
            assert local.contents() == contents
        for local in servers:
            local.server.world.restart()
        contents = one_by_one.contents()
        assert [local.contents() for local in others] == [contents, contents]

    in_a_loop(work)


def counted(local: LocalServer) -> list[int]:
    """Return a list to which the size of each batch is appended."""
    served: list[int] = []
    together = local.rpc.calls.together
    assert together is not None

    class CountingBatchHandler:
        operations, by_operation = together.operations, together.by_operation

        def serve(self, calls: list[Call]) -> int:
            served.append(together.serve(calls))
            return served[-1]

    local.rpc.calls.together = CountingBatchHandler()
    return served


@pytest.mark.parametrize("connection", [Connection, SocketConnection])
def test_simple_sends_are_served_in_batches(connection: type[Connection]) -> None:
    """Sends to different queues, more than fit in a batch. The other tests prove nothing if no call is plain."""

    def work() -> None:
        local = LocalServer(True, connection)
        served = counted(local)
        ptb = send_buffer(Message(label="l", body=b"body", delivery_guarantee=1))
        for index in range(MOST_GATHERED + 10):
            request = m.rpc_ACSendMessageEx_Request(local.handles[0][index % 5], ptb, OBJECTID(bytes(16), 0))
            local.clients[0].call(m.qmcomm2, SEND.opnum, SEND.encode_request(request))
        assert served == [0, MOST_GATHERED - 1]  # the first call reserves sequence numbers
        local.settle()
        assert served[2:] == [10] and len(local.clients[0].answers()) == MOST_GATHERED + 10

    in_a_loop(work)


@pytest.mark.parametrize("connection", [Connection, SocketConnection])
def test_calls_of_several_operations_and_kinds_are_all_served_together(connection: type[Connection]) -> None:
    """Alternating calls of senders and receivers; none may be served individually."""

    def work() -> None:
        local = LocalServer(True, connection)
        client, served = local.clients[0], counted(local)
        stubs = {
            guarantee: SEND.encode_request(m.rpc_ACSendMessageEx_Request(local.handles[0][0], send_buffer(
                Message(label="l", body=b"body", delivery_guarantee=guarantee)), None))
            for guarantee in (0, 1)
        }  # fmt: skip
        receive = RECEIVE.encode_request(m.rpc_ACReceiveMessageEx_Request(local.readers[0][0], receive_buffer(0, 0)))
        for _ in range(20):
            client.call(m.qmcomm2, SEND.opnum, stubs[1])
        local.settle()
        client.answers()
        served.clear()
        for _ in range(10):
            client.call(m.qmcomm2, SEND.opnum, stubs[1])
            client.call(m.qmcomm2, RECEIVE.opnum, receive)
        local.settle()
        assert served == [10, 10]
        for guarantee in (0, 1, 1, 0, 1):
            client.call(m.qmcomm2, SEND.opnum, stubs[guarantee])
        local.settle()
        assert served == [10, 10, 1, 2, 1, 1]
        assert (len(local.server.world.queue("a")), len(client.answers())) == (25, 25)

    in_a_loop(work)


@pytest.mark.parametrize("connection", [Connection, SocketConnection])
@pytest.mark.parametrize("second", [False, True])
def test_simple_receives_by_qm2qm_are_served_in_batches(connection: type[Connection], second: bool) -> None:
    def work() -> None:
        local = LocalServer(True, connection)
        client, queue = local.clients[0], local.sessions[0][0]
        ptb = send_buffer(Message(label="l", body=b"body", delivery_guarantee=1))
        for _ in range(20):
            request = m.rpc_ACSendMessageEx_Request(local.handles[0][0], ptb, None)
            client.call(m.qmcomm2, SEND.opnum, SEND.encode_request(request))
        local.settle()
        served = counted(local)
        for number in range(10):
            description = ms_mqqp.REMOTEREADDESC(queue, dwQueue=queue, dwRequestID=number, ulTimeout=1000)
            operation, start = START_OF_SESSION, START_OF_SESSION.encode_request(
                ms_mqqp.RemoteQMStartReceive_Request(description)
            )  # fmt: skip
            if second:
                operation, start = START_2, START_2.encode_request(
                    ms_mqqp.RemoteQMStartReceive2_Request(ms_mqqp.REMOTEREADDESC2(description))
                )  # fmt: skip
            client.call(ms_mqqp.qm2qm, operation.opnum, start)
        local.settle()
        assert served == [10] and len(client.held()) == len(local.server.world.queue("a").locked) == 10
        for handle in client.held():
            request = ms_mqqp.RemoteQMEndReceive_Request(handle, RR_ACK_OF_SESSION)
            client.call(ms_mqqp.qm2qm, END_OF_SESSION.opnum, END_OF_SESSION.encode_request(request))
        local.settle()
        assert served == [10, 10] and not client.held() and len(local.server.world.queue("a")) == 10

    in_a_loop(work)


@pytest.mark.parametrize("connection", [Connection, SocketConnection])
def test_simple_receives_are_served_in_batches(connection: type[Connection]) -> None:
    def work() -> None:
        local = LocalServer(True, connection)
        ptb = send_buffer(Message(label="l", body=b"body", delivery_guarantee=1))
        client = local.clients[0]
        for _ in range(20):
            request = m.rpc_ACSendMessageEx_Request(local.handles[0][0], ptb, None)
            client.call(m.qmcomm2, SEND.opnum, SEND.encode_request(request))
        local.settle()
        removals, store = [], local.server.world.store
        append = store.append
        store.append = lambda operations: removals.append(len(operations[0].keys)) or append(operations)
        client.answers()
        for _ in range(20):
            stub = RECEIVE.encode_request(m.rpc_ACReceiveMessageEx_Request(local.readers[0][0], receive_buffer(0, 0)))
            client.call(m.qmcomm2, RECEIVE.opnum, stub)
        local.settle()
        assert removals == [20] and len(client.answers()) == 20
        assert len(local.server.world.queue("a")) == 0

    in_a_loop(work)


@pytest.mark.parametrize("connection", [Connection, SocketConnection])
def test_simple_two_phase_receives_are_served_in_batches(connection: type[Connection]) -> None:
    def work() -> None:
        local = LocalServer(True, connection)
        ptb = send_buffer(Message(label="l", body=b"body", delivery_guarantee=1))
        client, handle = local.clients[0], local.remote_readers[0][0]
        for _ in range(20):
            request = m.rpc_ACSendMessageEx_Request(local.handles[0][0], ptb, None)
            client.call(m.qmcomm2, SEND.opnum, SEND.encode_request(request))
        local.settle()
        queue, store = local.server.world.queue("a"), local.server.world.store
        removals, append, read_all = [], store.append, store.read_all
        reads: list[int] = []
        store.append = lambda operations: removals.append(len(operations[0].keys)) or append(operations)
        store.read_all = lambda locations: reads.append(len(locations)) or read_all(locations)
        client.answers()
        for request in range(20):
            stub = START.encode_request(ms_mqrr.R_StartReceive_Request(handle, 0, 0, 0, 0, request, 1 << 20, 0))
            client.call(ms_mqrr.RemoteRead, START.opnum, stub)
        local.settle()
        assert (reads, removals, len(queue.locked), len(client.answers())) == ([20], [], 20, 20)
        for request in (*range(20), 19):  # the last one has been ended by then
            stub = END.encode_request(ms_mqrr.R_EndReceive_Request(handle, RR_ACK, request))
            client.call(ms_mqrr.RemoteRead, END.opnum, stub)
        local.settle()
        assert (removals, len(queue), len(client.answers())) == ([20], 0, 21)
        local.server.pass_time(CLEANUP_TIMEOUT)
        assert not local.server.timers

    in_a_loop(work)


@pytest.mark.parametrize("two_phase", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_a_message_that_could_not_be_removed_when_it_expired_is_not_received(together: bool, two_phase: bool) -> None:
    """[MS-MQDMPR] 3.1.7.2.7: the disk was full then."""

    def work() -> None:
        local = LocalServer(together)
        client, world = local.clients[0], local.server.world
        world.send("a", "expires", delivery_guarantee=1, time_to_be_received=5)
        world.send("a", "stays", delivery_guarantee=1)
        world.store.full = True
        world.advance(6000)
        world.store.full = False
        assert len(world.queue("a")) == 2
        if two_phase:
            start = ms_mqrr.R_StartReceive_Request(local.remote_readers[0][0], 0, 0, 0, 0, 7, 1 << 20, 0)
            client.call(ms_mqrr.RemoteRead, START.opnum, START.encode_request(start))
        else:
            request = m.rpc_ACReceiveMessageEx_Request(local.readers[0][0], receive_buffer(0, 0))
            client.call(m.qmcomm2, RECEIVE.opnum, RECEIVE.encode_request(request))
        local.settle()
        (answer,) = client.answers()
        assert "stays".encode("utf-16-le") in answer.stub

    in_a_loop(work)
