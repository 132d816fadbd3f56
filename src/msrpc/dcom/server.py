"""A DCOM server: an exporter, the classes of objects, and the context of a call to an object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol, TypeGuard
from uuid import UUID

from msrpc.dcom.activation import interface_pointer
from msrpc.dcom.bindings import SPNEGO, TCP, WINNT, Bindings
from msrpc.dcom.budget import ObjectBudget
from msrpc.dcom.exporter import Exportable, Exporter, ObjectOwner
from msrpc.dcom.objref import CustomReference, StandardReference, unpack
from msrpc.dcom.remote import RESOLVER_PORT, RemoteProcesses
from msrpc.errors import ComError
from msrpc.hresults import ComResult
from msrpc.interfaces.ms_dcom import MInterfacePointer
from msrpc.ndr import BadStubData, Interface, Operation
from msrpc.rpc.call import Call
from msrpc.rpc.pdu import AuthLevel

_SECURITY = ((WINNT, ""), (SPNEGO, ""))
_BYTES: Final = 512 << 20, 128 << 20  # in total, and per user of a host
_COUNT: Final = 65_536, 4_096
MOST_INTERFACES: Final = 256  # maximum interfaces in a request; all objects together have fewer


def is_awaitable(result: object) -> TypeGuard[Awaitable[Any]]:
    """Whether the result of a call is awaitable; several times as fast as `inspect.isawaitable`."""
    return hasattr(result, "__await__")


class Host(Protocol):
    """Services of the process for the server."""

    @property
    def position(self) -> int:
        """The current end of the store's log."""

    def when_durable(self, action: Callable[[], object]) -> None:
        """Run an action once everything written so far is on the disk."""

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine concurrently with calls."""


class ServedObject(Exportable, Protocol):
    """An object that is called through the server."""

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any | Awaitable[Any]:
        """Run an operation of `context.interface` and return the response. Raises HResultError."""


Factory = Callable[["CallContext"], ServedObject]


@dataclass(slots=True)
class Budgets:
    """Resources of the objects of clients, counted by user and host: bytes of messages, pending notifications, and
    event sinks."""

    message_bytes: ObjectBudget = field(
        default_factory=lambda: ObjectBudget("bytes of messages in automation objects", *_BYTES)
    )
    notifications: ObjectBudget = field(default_factory=lambda: ObjectBudget("pending notifications", *_COUNT))
    sinks: ObjectBudget = field(default_factory=lambda: ObjectBudget("event sinks", *_COUNT))


@dataclass(slots=True)
class ComServer:
    """A server. `port` is the port for calls to objects, set once it is open; `minimum_level` is the minimum
    authentication level of callers. `interfaces` are all interfaces of objects by IID, `classes` the factories by
    CLSID. `remote` calls objects of other processes; `cancelled` is the HRESULT of a canceled call. If `resolver_port`
    is not 135, references contain it (deviation D-84)."""

    exporter: Exporter
    host: Host
    classes: Mapping[UUID, Factory]
    interfaces: Mapping[UUID, Interface]
    minimum_level: AuthLevel = AuthLevel.NONE
    computer_name: str = ""
    port: int = 0
    resolver_port: int = RESOLVER_PORT
    budgets: Budgets = field(default_factory=Budgets)
    remote: RemoteProcesses = field(default_factory=lambda: RemoteProcesses({}))
    cancelled: int = ComResult.E_ABORT
    rem_unknown: ServedObject = field(init=False)

    def resolver_bindings(self, local_host: str) -> Bindings:
        """Bindings of the object resolver, without endpoint: the address that the client used, and the computer
        name."""
        return _bindings(local_host, self.computer_name, None)

    def reference_bindings(self, local_host: str) -> Bindings:
        """Bindings of the object resolver in references."""
        port = self.resolver_port
        return _bindings(local_host, self.computer_name, None if port == RESOLVER_PORT else port)

    def exporter_bindings(self, local_host: str) -> Bindings:
        """Bindings for calls to objects."""
        return _bindings(local_host, self.computer_name, self.port)

    def authentication_hint(self, call: Call) -> int:
        """Return the level at which the caller may use the objects that it creates in this call; RPC_C_AUTHN_LEVEL_NONE
        is 1 ([MS-RPCE] 2.2.1.1.8). Windows activates at integrity and calls at a lower level, unless the server
        requires more."""
        own = min(int(call.caller.level), int(AuthLevel.PKT_INTEGRITY))
        return max(int(self.minimum_level), own, int(AuthLevel.NONE))


@lru_cache(256)  # a machine has few addresses
def _bindings(local_host: str, computer_name: str, port: int | None) -> Bindings:
    """Return the bindings of this machine, with a port in each address unless it is None."""
    endpoint = "" if port is None else f"[{port}]"
    hosts = dict.fromkeys(host for host in (local_host, computer_name) if host)
    return Bindings(tuple((TCP, host + endpoint) for host in hosts), _SECURITY)


_HERE: Final = "this machine"


def owner_of(call: Call) -> ObjectOwner:
    """Return the caller of a call. All local addresses of this machine count as one host."""
    host, caller = call.peer, call.caller
    if host == call.connection.local_host or host.startswith(("127.", "::1", "::ffff:127.")):
        host = _HERE
    return ObjectOwner(host, caller.identity.sid, caller.level)


def check_count(interfaces: int) -> None:
    """Check the number of interfaces in a request, because each costs the time of a reference. Raises ComError
    E_INVALIDARG if it exceeds the number of existing interfaces (deviation D-192)."""
    if interfaces > MOST_INTERFACES:
        raise ComError(ComResult.E_INVALIDARG, f"the request has {interfaces} interfaces, limit {MOST_INTERFACES}")


class ForeignReference:
    """An object of another process, to which a caller on `host` passed a reference."""

    __slots__ = ("host", "reference")

    def __init__(self, reference: StandardReference, host: str) -> None:
        self.reference, self.host = reference, host


class ServedInterface:
    """Base of interfaces for the RPC runtime (`rpc.call.RpcInterface`); subclasses handle calls."""

    first_opnum = 0
    open_opnums: frozenset[int] = frozenset()

    def __init__(self, server: ComServer, description: Interface) -> None:
        self.server, self.description = server, description

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def uuid(self) -> UUID:
        return self.description.uuid

    @property
    def version(self) -> tuple[int, int]:
        """The version; 0.0 for interfaces of objects ([MS-DCOM] 2.1)."""
        return self.description.version

    @property
    def minimum_level(self) -> AuthLevel:
        return self.server.minimum_level

    def accepts(self, opnum: int) -> bool:
        operations = self.description.operations
        return self.first_opnum <= opnum < len(operations) and operations[opnum].used_on_wire


class CallContext:
    """One call to an object, or an activation.

    Attributes:
        interface: the called interface.
        owner: the caller, which owns the objects that the call creates.
        causality: the CID of the chain of calls (2.2.6, 3.1.1.5.4).
        on_cancel: ends the work that the response awaits, which then returns or raises the outcome. If it is None, a
            canceled call cancels the task that awaits the work, which may not have begun, or have its result already.
        must_wait: the response must be sent only after everything written so far is on the disk.
    """

    __slots__ = ("_passed", "call", "causality", "interface", "must_wait", "on_cancel", "owner", "server")

    def __init__(
        self, server: ComServer, call: Call, interface: Interface, causality: bytes, owner: ObjectOwner
    ) -> None:
        self.server, self.call, self.interface, self.causality = server, call, interface, causality
        self.owner = owner
        self.must_wait = False
        self.on_cancel: Callable[[], None] | None = None
        self._passed: list[Exportable] = []

    def end(self) -> None:
        """End the call: release objects whose last references were passed with it."""
        for target in self._passed:
            self.server.exporter.withdraw(target)
        self._passed.clear()

    def release(self, target: Exportable) -> None:
        """Release an object that this call has made and does not return. Does nothing if a client refers to it."""
        self.server.exporter.discard(target)

    @property
    def local_host(self) -> str:
        """The local address that the client used."""
        return self.call.connection.local_host

    def reference(self, target: ServedObject, iid: UUID) -> StandardReference:
        """Create a reference for the caller. Raises ComError."""
        resolver = self.server.reference_bindings(self.local_host)
        return self.server.exporter.marshal(target, iid, resolver, self.owner)

    def marshal(self, target: Any, iid: UUID) -> MInterfacePointer | None:
        """Encode an object as a parameter; None becomes NULL. Raises ComError E_NOINTERFACE."""
        if target is None:
            return None
        if isinstance(target, ForeignReference):
            return interface_pointer(target.reference.pack())
        return interface_pointer(self.reference(target, iid).pack())

    def unmarshal(self, pointer: MInterfacePointer | None) -> Any:
        """Decode an object passed by the caller: a local object, a ForeignReference, or None. Raises ComError."""
        if pointer is None:
            return None
        try:
            reference = unpack(pointer.abData)
        except BadStubData as error:
            raise ComError(ComResult.E_INVALIDARG, str(error)) from None
        if isinstance(reference, CustomReference):
            raise ComError(ComResult.REGDB_E_CLASSNOTREG, f"cannot unmarshal an object of the class {reference.clsid}")
        if reference.oxid == self.server.exporter.oxid:
            target = self.server.exporter.unmarshal(reference, self.owner)
            self._passed.append(target)
            return target
        return ForeignReference(reference, self.call.peer)
