"""A DCOM server: one exporter, the classes whose objects it makes, and the context of a call to an object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
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
_BYTES: Final = 512 << 20, 128 << 20  # in all, and of one user of a host
_COUNT: Final = 65_536, 4_096
MOST_INTERFACES: Final = 256  # that one request asks for; all objects together have less


def is_awaitable(result: object) -> TypeGuard[Awaitable[Any]]:
    """Whether the answer to a call comes later; several times as fast as `inspect.isawaitable`."""
    return hasattr(result, "__await__")


class Host(Protocol):
    """Services of the process for the server."""

    @property
    def position(self) -> int:
        """How far the store has been written."""

    def when_durable(self, action: Callable[[], object]) -> None:
        """Run an action once everything written up to now is on the disk."""

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in parallel with the calls."""


class ServedObject(Exportable, Protocol):
    """An object that is called through the server."""

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any | Awaitable[Any]:
        """Carry out an operation of `context.interface`; returns the response. Raises HResultError."""


Factory = Callable[["CallContext"], ServedObject]


@dataclass(slots=True)
class Budgets:
    """Resources that the objects of a client hold, counted by its user and host: bytes of messages, notifications that
    wait, event sinks."""

    message_bytes: ObjectBudget = field(
        default_factory=lambda: ObjectBudget("bytes of messages in automation objects", *_BYTES)
    )
    notifications: ObjectBudget = field(default_factory=lambda: ObjectBudget("notifications that wait", *_COUNT))
    sinks: ObjectBudget = field(default_factory=lambda: ObjectBudget("event sinks", *_COUNT))


@dataclass(slots=True)
class ComServer:
    """`port` is where calls to objects arrive, known once it is open; `minimum_level` is what callers have to
    negotiate. `interfaces` are all that objects can have, by IID, `classes` what makes them, by CLSID. `remote` is how
    objects of others are called, `cancelled` the HRESULT of a call that is cancelled. Where the `resolver_port` is not
    135, references name it (deviation D-84)."""

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
        """Where the object resolver is, without endpoint: the address at which the client reached us, and the name."""
        return Bindings(tuple((TCP, host) for host in self._hosts(local_host)), _SECURITY)

    def reference_bindings(self, local_host: str) -> Bindings:
        """Where the object resolver is, as references say it."""
        if self.resolver_port == RESOLVER_PORT:
            return self.resolver_bindings(local_host)
        addresses = tuple((TCP, f"{host}[{self.resolver_port}]") for host in self._hosts(local_host))
        return Bindings(addresses, _SECURITY)

    def exporter_bindings(self, local_host: str) -> Bindings:
        """Where calls to objects go."""
        return Bindings(tuple((TCP, f"{host}[{self.port}]") for host in self._hosts(local_host)), _SECURITY)

    def _hosts(self, local_host: str) -> list[str]:
        return list(dict.fromkeys(host for host in (local_host, self.computer_name) if host))

    def authentication_hint(self, call: Call) -> int:
        """The level at which the caller may use the objects that it makes now; RPC_C_AUTHN_LEVEL_NONE is 1 ([MS-RPCE]
        2.2.1.1.8). Windows activates at integrity and calls at a lower level, unless the server says more."""
        own = min(int(call.caller.level), int(AuthLevel.PKT_INTEGRITY))
        return max(int(self.minimum_level), own, int(AuthLevel.NONE))


_HERE: Final = "this machine"


def owner_of(call: Call) -> ObjectOwner:
    """Return the caller of a call. All addresses by which this machine reaches itself are one host."""
    host, caller = call.peer, call.caller
    if host == call.connection.local_host or host.startswith(("127.", "::1", "::ffff:127.")):
        host = _HERE
    return ObjectOwner(host, caller.identity.sid, caller.level)


def check_count(interfaces: int) -> None:
    """Raises ComError E_INVALIDARG for a request that asks for more interfaces than any object has (deviation D-192):
    each costs the time of a reference."""
    if interfaces > MOST_INTERFACES:
        raise ComError(
            ComResult.E_INVALIDARG, f"{interfaces} interfaces are asked for at once, limit {MOST_INTERFACES}"
        )


class ForeignReference:
    """An object of another process, to which a caller on `host` gave a reference."""

    __slots__ = ("host", "reference")

    def __init__(self, reference: StandardReference, host: str) -> None:
        self.reference, self.host = reference, host


class ServedInterface:
    """An interface for the RPC runtime (`rpc.call.Interface`), except for the calls."""

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
        """0.0 for interfaces of objects ([MS-DCOM] 2.1)."""
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
        interface: the one that is called.
        causality: the CID of the chain of calls that it belongs to (2.2.6, 3.1.1.5.4).
        must_wait: what is answered may go out only when everything written up to now is on the disk.
    """

    __slots__ = ("_passed", "call", "causality", "interface", "must_wait", "server")

    def __init__(self, server: ComServer, call: Call, interface: Interface, causality: bytes) -> None:
        self.server, self.call, self.interface, self.causality = server, call, interface, causality
        self.must_wait = False
        self._passed: list[Exportable] = []

    def end(self) -> None:
        """The call is over: release objects whose last references arrived with it."""
        for target in self._passed:
            self.server.exporter.withdraw(target)
        self._passed.clear()

    @property
    def owner(self) -> ObjectOwner:
        """The caller, which owns the objects that the call makes."""
        return owner_of(self.call)

    @property
    def local_host(self) -> str:
        """The address at which the client reached us."""
        return self.call.connection.local_host

    def reference(self, target: ServedObject, iid: UUID) -> StandardReference:
        """A reference to give to the caller. Raises ComError."""
        resolver = self.server.reference_bindings(self.local_host)
        return self.server.exporter.marshal(target, iid, resolver, self.owner)

    def marshal(self, target: Any, iid: UUID) -> MInterfacePointer | None:
        """An object as a parameter; None is NULL. Raises ComError E_NOINTERFACE."""
        if target is None:
            return None
        if isinstance(target, ForeignReference):
            return interface_pointer(target.reference.pack())
        return interface_pointer(self.reference(target, iid).pack())

    def unmarshal(self, pointer: MInterfacePointer | None) -> Any:
        """An object that the caller passes: one of ours, a ForeignReference, or None. Raises ComError."""
        if pointer is None:
            return None
        try:
            reference = unpack(pointer.abData)
        except BadStubData as error:
            raise ComError(ComResult.E_INVALIDARG, str(error)) from None
        if isinstance(reference, CustomReference):
            raise ComError(ComResult.REGDB_E_CLASSNOTREG, f"no class {reference.clsid} to read an object by value with")
        if reference.oxid == self.server.exporter.oxid:
            target = self.server.exporter.unmarshal(reference, self.owner)
            self._passed.append(target)
            return target
        return ForeignReference(reference, self.call.peer)
