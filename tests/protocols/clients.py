"""Clients of the protocol handlers without a network: real stubs and calls, and a connection that keeps the replies."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from msrpc.ndr import Operation
from msrpc.rpc.association import Association, ContextHandles
from msrpc.rpc.call import UNAUTHENTICATED, Call, RpcCaller
from msrpc.rpc.faults import Fault
from msrpc.rpc.throttle import PeerFailures
from msrpc.rpc.timing import Timings
from openmsmq.conversion.propvariants import pack
from openmsmq.conversion.queue_format import to_queue_format
from openmsmq.conversion.receive_buffer import BufferSizes, receive_buffer
from openmsmq.conversion.send_buffer import send_buffer
from openmsmq.directory.connection import DirectoryConnection
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces.ms_mqmq import QUEUE_FORMAT
from openmsmq.model import names
from openmsmq.model.constants import Access, ReceiveAction, VarType
from openmsmq.model.message import Message
from openmsmq.oletx.session import PartnerCall, Session
from openmsmq.protocols.coordinator import Coordinator
from openmsmq.protocols.dispatch import NdrInterface
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.message_security import MessageSecurity
from openmsmq.protocols.public_queues import PublicQueues
from openmsmq.protocols.qm2qm import Qm2Qm
from openmsmq.protocols.qmcomm import QmComm
from openmsmq.protocols.qmcomm2 import QmComm2
from openmsmq.protocols.qmmgmt import QmMgmt
from openmsmq.protocols.remote_read import RemoteRead
from openmsmq.protocols.transaction_security import TransactionSecurity
from openmsmq.protocols.xnremote import XnRemote
from queueing.world import World


class Connection:
    """The parts of a connection that a call needs. `orphans`: whether the client orphans the call before it is
    served."""

    peer_host = "192.0.2.1"
    descriptor = -1
    failures = PeerFailures(lambda: 0.0)

    def __init__(self, association: Association, orphans: bool = False) -> None:
        self.association = association
        self.orphans = orphans

    def awaits(self, call: Call) -> bool:
        return not self.orphans

    def send_reply(self, call: Call, stub: bytes) -> None:
        self.answer = stub

    def send_fault(self, call: Call, status: int) -> None:
        raise Fault(status)


class Pending:
    """A call and its response, once it is complete."""

    def __init__(self, call: Call, connection: Connection, decode: Callable[[bytes], Any], world: World) -> None:
        self.call, self._connection, self._decode, self._world = call, connection, decode, world

    @property
    def over(self) -> bool:
        self._world.turn()
        return self.call.over

    def orphan(self) -> None:
        """Stop waiting for the response."""
        self._connection.orphans = True

    @property
    def response(self) -> Any:
        assert self.over, "not answered yet"
        return self._decode(self._connection.answer)


class PartnerCalls:
    """Records the calls that sessions make; the test replies to them. See `session.CallSender`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.made: list[tuple[Session, PartnerCall]] = []
        self.hung_up: list[Session] = []
        self._guids = itertools.count(1000)

    def call(self, session: Session, call: PartnerCall) -> None:
        self.made.append((session, call))

    def hang_up(self, session: Session) -> None:
        self.hung_up.append(session)

    def later(self, seconds: float, action: Callable[[], None]) -> FakeTimer:
        return self._server.later(seconds, action)

    def new_guid(self) -> UUID:
        return UUID(int=next(self._guids))


@dataclass
class FakeTimer:
    due: float
    action: Callable[[], None]

    def cancel(self) -> None:
        self.action = lambda: None


class Server:
    def __init__(self, transactions: TransactionSecurity | None = None) -> None:
        """Create the server. `transactions` determines which partners may take part in distributed transactions;
        None allows none."""
        self.world = World()
        self.partner_calls = PartnerCalls(self)
        self.waiting_for_disk: list[Callable[[], object]] = []
        self.timers: list[FakeTimer] = []
        self.seconds = 0.0
        self.tidied: list[bool] = []
        self.administrators: set[str | None] = set()  # SIDs; None for anonymous callers
        self.environment = Environment(
            self.world.manager,
            self.world.store,
            self.when_durable,
            {0: 2103},
            later=self.later,
            seconds=lambda: self.seconds,
            tidy=lambda: self.tidied.append(True),
            is_administrator=lambda sid: sid in self.administrators,
            message_security=MessageSecurity.without_keys(self.world.manager.machine.identifier),
            public_queues=PublicQueues(self.world.manager, DirectoryConnection(None)),
            coordinator=Coordinator(self.world.manager, self.partner_calls, "HERE", transactions, self.when_durable),
        )
        self.interfaces: list[NdrInterface] = [
            QmComm(self.environment), QmComm2(self.environment), QmMgmt(self.environment),
            RemoteRead(self.environment), Qm2Qm(self.environment),
            XnRemote(self.environment)]  # fmt: skip
        self._groups = itertools.count(1)
        self.random = itertools.count(1)

    def when_durable(self, callback: Callable[[], object], calls: int = 1) -> None:
        self.waiting_for_disk.append(callback)

    def sync(self) -> None:
        """Sync the disk."""
        self.world.store.sync()
        waiting, self.waiting_for_disk[:] = list(self.waiting_for_disk), []
        for reply in waiting:
            reply()

    def later(self, seconds: float, action: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self.seconds + seconds, action)
        self.timers.append(timer)
        return timer

    def pass_time(self, seconds: float) -> None:
        """Let time pass and run due timers."""
        self.seconds += seconds
        while due := [timer for timer in self.timers if timer.due <= self.seconds]:
            for timer in due:
                self.timers.remove(timer)
                timer.action()

    def client(self) -> Client:
        return Client(self)


class Client:
    """One client process: an association with its context handles. `caller` is the account and its protection level."""

    caller = UNAUTHENTICATED
    timings: Timings | None = None  # of calls that start from now on
    orphans = False  # whether it orphans them before they are served

    def __init__(self, server: Server) -> None:
        self.server = server
        handles = ContextHandles(lambda count: next(server.random).to_bytes(count, "little"))
        self.association = Association(next(server._groups), "192.0.2.1", handles)

    def joined_by(self, caller: RpcCaller) -> Client:
        """Return another process on the same machine that has joined this association."""
        other = Client(self.server)
        other.association, other.caller = self.association, caller
        return other

    def start(self, name: str, /, **arguments: Any) -> Pending:
        """Start an operation, which may complete later."""
        operation = self._find(name)[1]
        assert operation.request is not None
        return self.start_stub(name, operation.encode_request(operation.request(**arguments)))

    def start_stub(self, name: str, stub: bytes) -> Pending:
        """Start an operation with these bytes as stub."""
        interface, operation = self._find(name)
        connection = Connection(self.association, self.orphans)
        call = Call(connection, interface, self.caller, None, 1, 0, operation.opnum, stub)  # type: ignore[arg-type]
        call.timings = self.timings
        interface.call(call)
        return Pending(call, connection, operation.decode_response, self.server.world)

    def _find(self, name: str) -> tuple[NdrInterface, Operation]:
        for interface in self.server.interfaces:
            for operation in interface.description.operations:
                if operation.name == name:
                    return interface, operation
        raise KeyError(name)

    def call(self, name: str, **arguments: Any) -> Any:
        """Call an operation and wait for the disk. Raises Fault."""
        pending = self.start(name, **arguments)
        self.server.sync()
        return pending.response

    def leave(self) -> None:
        """Close the client's last connection."""
        self.association.handles.run_down()

    # -- common first steps of tests ---------------------------------------------------------------------------

    def create(self, name: str = "q", **more: Any) -> Any:
        values: dict[str, Any] = {"aProp": [103], "apVar": [text_variant(f".\\private$\\{name}")], "cp": 1} | more
        return self.call(
            "R_QMCreateObjectInternal", dwObjectType=1, lpwcsPathName=f".\\private$\\{name}", **values
        )  # fmt: skip

    def open(self, name: str = "q", access: int = Access.RECEIVE, share: int = 0, **more: Any) -> Any:
        return self.call(
            "rpc_QMOpenQueueInternal", pQueueFormat=queue_format(name), dwDesiredAccess=access, dwShareMode=share,
            hRemoteQueue=0, lplpRemoteQueueName=None, lpClientName="", dwpQueue=0, pLicGuid=bytes(16),
            dwpRemoteContext=0,
            **{"dwRemoteProtocol": 0} | more,
        )  # fmt: skip

    def send(self, handle: bytes, message: Message, uow: bytes | None = None) -> Any:
        return self.call("rpc_ACSendMessageEx", hQueue=handle, ptb=send_buffer(message, uow), pMessageID=None)

    def start_receive(
        self, context: int, action: int = ReceiveAction.RECEIVE, timeout: int = 0, **more: Any
    ) -> Pending:
        uow, cursor = more.pop("uow", None), more.pop("cursor", 0)
        sizes = BufferSizes(**{"certificate": 4096, "key": 512, "signature": 512, "provider": 64} | more)
        ptb = receive_buffer(ReceiveAction.RECEIVE, timeout, cursor, uow, sizes)
        assert ptb.old.Receive is not None
        ptb.old.Receive.Action = int(action)
        return self.start("rpc_ACReceiveMessageEx", hQMContext=context, ptb=ptb)

    def receive(self, context: int, action: int = ReceiveAction.RECEIVE, **more: Any) -> Any:
        pending = self.start_receive(context, action, **more)
        self.server.sync()
        return pending.response


def queue_format(name: str) -> QUEUE_FORMAT:
    text = name if "=" in name else f"DIRECT=OS:.\\private$\\{name}"
    return to_queue_format(names.parse_format_name(text))


def object_format(name: str = "q") -> m.OBJECT_FORMAT:
    return m.OBJECT_FORMAT(1, queue_format(name))


def text_variant(text: str) -> Any:
    return pack(VarType.VT_LPWSTR, text)
