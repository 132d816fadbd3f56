"""A call on the server, its caller, and the protocol that an interface implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from msrpc.errors import LocalProtocolError
from msrpc.ndr import Operation
from msrpc.rpc.association import Association, HeldHandles, Holder
from msrpc.rpc.channel import Channel
from msrpc.rpc.faults import RPC_S_ACCESS_DENIED, Fault
from msrpc.rpc.pdu import NDR, AuthLevel, ByteOrder, SyntaxId
from msrpc.rpc.security import ANONYMOUS, Identity
from msrpc.rpc.sockets import peer_has_closed
from msrpc.rpc.throttle import Attempt, PeerFailures
from msrpc.rpc.timing import Timings

_NDR_ALONE: Final = (NDR,)


class RpcInterface(Protocol):
    """One RPC interface as a server offers it.

    Calls below the authentication level `minimum_level` are refused with access denied. Operations in `open_opnums` are
    exempt: they require no authentication, or check the caller themselves.

    It is served in NDR 2.0 only, unless it has an attribute `transfer_syntaxes`: the supported ones in order of
    preference ([MS-RPCE] 3.3.3.1.3, 3.3.3.1.4). If NDR64 is one of them, it has to ask each call for its codecs
    (`Call.in_syntax`).
    """

    @property
    def name(self) -> str: ...
    @property
    def uuid(self) -> UUID: ...
    @property
    def version(self) -> tuple[int, int]: ...
    @property
    def minimum_level(self) -> AuthLevel: ...
    @property
    def open_opnums(self) -> frozenset[int]: ...

    def accepts(self, opnum: int) -> bool:
        """Whether the operation exists; otherwise the call is answered with nca_s_op_rng_error."""

    def call(self, call: Call) -> None:
        """Serve the call: call `call.reply` or `call.fault` now or later, or raise `Fault`."""


def transfer_syntaxes(interface: RpcInterface) -> tuple[SyntaxId, ...]:
    """Return the transfer syntaxes that an interface supports, in order of preference."""
    found: tuple[SyntaxId, ...] = getattr(interface, "transfer_syntaxes", _NDR_ALONE)
    return found


class InterfaceTable:
    """The interfaces behind one endpoint."""

    def __init__(self, interfaces: Iterable[RpcInterface] = ()) -> None:
        self._interfaces: dict[tuple[UUID, int], RpcInterface] = {}
        for interface in interfaces:
            self.add(interface)

    def __iter__(self) -> Iterator[RpcInterface]:
        return iter(tuple(self._interfaces.values()))

    def add(self, interface: RpcInterface) -> None:
        """Add an interface; connections can bind it from now on."""
        self._interfaces[interface.uuid, interface.version[0]] = interface

    def find(self, syntax: SyntaxId) -> RpcInterface | None:
        """Return the interface for clients of a version: same major version, at least their minor version (C706
        6.1.2)."""
        interface = self._interfaces.get((syntax.uuid, syntax.version[0]))
        if interface is None or interface.version[1] < syntax.version[1]:
            return None
        return interface


@dataclass(frozen=True, slots=True)
class RpcCaller:
    """A caller and its protection. An anonymous caller has no SID and is not `authenticated`."""

    identity: Identity
    level: AuthLevel

    @property
    def sid(self) -> str | None:
        return self.identity.sid

    @property
    def user(self) -> str:
        return self.identity.user

    @property
    def domain(self) -> str:
        return self.identity.domain

    @property
    def authenticated(self) -> bool:
        return self.identity.sid is not None


UNAUTHENTICATED: Final = RpcCaller(ANONYMOUS, AuthLevel.NONE)


class CallConnection(ABC):
    """The connection of a call; `server_connection.ServerConnection` is one.

    Attributes:
        peer_host: address of the client's host; `local_host` that by which it reached this one.
        failures: limits repeated failures of the client's host.
        descriptor: file descriptor of the socket, to detect a disconnected peer early; -1 for none.
    """

    def __init__(self, peer_host: str, local_host: str, failures: PeerFailures) -> None:
        self.peer_host = peer_host
        self.local_host = local_host
        self.failures = failures
        self.descriptor = -1

    @property
    @abstractmethod
    def association(self) -> Association | None:
        """The association group; None before the bind. Kept after `leave`, for calls that end later."""

    @abstractmethod
    def awaits(self, call: Call) -> bool:
        """Whether a reply to the call would be sent: false if it was answered or orphaned, or the connection is
        lost."""

    @abstractmethod
    def send_reply(self, call: Call, stub: bytes) -> None:
        """Answer a call with its marshalled out parameters."""

    @abstractmethod
    def send_fault(self, call: Call, status: int) -> None:
        """Answer a call with a fault."""


class Call:
    """One call on the server. Exactly one `reply` or `fault` ends it; it is `over` then.

    `object_uuid` has the 16 bytes of the UUID, little-endian; None if the request has none.
    """

    __slots__ = (
        "_cancelled",
        "_on_cancel",
        "byte_order",
        "call_id",
        "caller",
        "channel",
        "connection",
        "context_id",
        "interface",
        "is_ndr64",
        "object_uuid",
        "opnum",
        "over",
        "started",
        "stub",
        "timings",
    )

    def __init__(
        self,
        connection: CallConnection,
        interface: RpcInterface,
        caller: RpcCaller,
        channel: Channel | None,
        call_id: int,
        context_id: int,
        opnum: int,
        stub: bytes,
        byte_order: ByteOrder = "<",
        object_uuid: bytes | None = None,
        is_ndr64: bool = False,
    ) -> None:
        self.connection = connection
        self.interface = interface
        self.caller = caller
        self.channel = channel
        self.call_id = call_id
        self.context_id = context_id
        self.opnum = opnum
        self.stub = stub
        self.byte_order: ByteOrder = byte_order
        self.object_uuid = object_uuid
        self.is_ndr64 = is_ndr64  # whether NDR64 is the transfer syntax of the presentation context, otherwise NDR 2.0
        self._on_cancel: Callable[[], None] | None = None
        self._cancelled = False
        self.over = False
        self.timings: Timings | None = None  # start of a timed call
        self.started = 0.0

    def in_syntax(self, operation: Operation) -> Operation:
        """Return an operation with the codecs of the call's transfer syntax, which the reply must use, too."""
        return operation.ndr64 if self.is_ndr64 else operation

    @property
    def association(self) -> Association:
        """The association group of the connection, which holds its context handles."""
        association = self.connection.association
        assert association is not None  # a call needs a bind before it
        return association

    @property
    def holder(self) -> Holder:
        """Owner of the objects that this call creates, and of the handles that it may use."""
        return self.handles.holder

    @property
    def handles(self) -> HeldHandles:
        """The context handles of the caller in its association."""
        caller, association = self.caller, self.connection.association
        assert association is not None  # a call needs a bind before it
        return association.held_by(caller, caller.identity.sid, caller.level)

    @property
    def peer(self) -> str:
        """The address of the client's host."""
        return self.connection.peer_host

    @property
    def abandoned(self) -> bool:
        """Whether the client has canceled or orphaned the call or disconnected, so that nobody will read the reply.
        Queries the kernel."""
        descriptor = self.connection.descriptor
        return self.cancelled or (descriptor >= 0 and peer_has_closed(descriptor))

    def failed_guess(self) -> None:
        """Count a call with an invalid secret value, such as a handle; see `throttle`. Raises `Fault`
        when the client has used up its attempts."""
        failures = self.connection.failures
        if failures.refuses(self.peer, Attempt.CALL):
            raise Fault(RPC_S_ACCESS_DENIED)
        failures.count(self.peer, Attempt.CALL)

    @property
    def cancelled(self) -> bool:
        """Whether the client canceled or orphaned the call, or has disconnected. `cancel` may follow later."""
        return self._cancelled or not self.connection.awaits(self)

    @property
    def on_cancel(self) -> Callable[[], None] | None:
        """Callback for when the client cancels or orphans the call, or its connection is lost, before the reply.

        It is called once; immediately if this has happened before it is set. It may reply to the call; after a lost
        connection, the reply is dropped.
        """
        return self._on_cancel

    @on_cancel.setter
    def on_cancel(self, callback: Callable[[], None] | None) -> None:
        if self._cancelled and callback is not None and not self.over:
            callback()
        else:
            self._on_cancel = callback

    def reply(self, stub: bytes) -> None:
        """Answer with the marshalled out parameters. Raises `LocalProtocolError` if the call was answered before."""
        self._finish()
        self.connection.send_reply(self, stub)

    def fault(self, status: int) -> None:
        """Answer with a fault. Raises `LocalProtocolError` if the call was answered before."""
        self._finish()
        self.connection.send_fault(self, status)

    def waits(self) -> None:
        """Exclude the call from latency statistics: it waits for an external event."""
        self.timings = None

    def cancel(self) -> None:
        """Notify the handler that the client has canceled the call (C706 9.1.1.4)."""
        if self._cancelled or self.over:
            return
        self._cancelled = True
        callback, self._on_cancel = self._on_cancel, None
        if callback is not None:
            callback()

    def _finish(self) -> None:
        if self.over:
            raise LocalProtocolError("the call has already been answered")
        self.over = True
        self._on_cancel = None
        timings = self.timings
        if timings is not None:
            timings.ended(self.interface.name, self.opnum, self.started)
