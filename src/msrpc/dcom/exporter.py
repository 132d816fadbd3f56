"""The object exporter ([MS-DCOM] 3.1.1): exported objects, their interfaces, and the references of clients.

An object lives while a client holds a reference to one of its interfaces and is not known to be gone (`pinging`). The
identifier of an interface (IPID) is random, but is sent in clear text in each request, so it does not authenticate a
caller: only its owner may use an object.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol
from uuid import UUID

from msrpc.dcom.bindings import Bindings
from msrpc.dcom.budget import ObjectBudget
from msrpc.dcom.objref import StandardReference
from msrpc.dcom.pinging import PingSets
from msrpc.errors import ComError, LimitReached
from msrpc.hresults import ComResult
from msrpc.rpc.pdu import AuthLevel

logger = logging.getLogger(__name__)

REFERENCES: Final = 5  # references in a marshaled interface; 3.1.1.5.1 recommends this number
MOST_OBJECTS: Final = 100_000
MOST_OBJECTS_OF_PEER: Final = 16_384


class ObjectOwner:
    """Owner of an object, or caller: a user, or an anonymous client on a host, with its authentication level ([MC-MQAC]
    3.1.4.1; deviation D-191). Not a dataclass: each call creates one, and the constructor would be interpreted."""

    __slots__ = ("host", "level", "sid")

    def __init__(self, host: str, sid: str | None, level: AuthLevel) -> None:
        self.host: Final = host
        self.sid: Final = sid
        self.level: Final = level

    def __str__(self) -> str:
        return f"{self.host} ({self.sid or 'anonymous'})"

    @property
    def source(self) -> tuple[str, str | None]:
        """The source whose budget is charged."""
        return self.host, self.sid

    def admits(self, caller: ObjectOwner) -> bool:
        """Whether a caller may use objects of this owner. It must be the same user, from any host, because references
        may be passed to another process of the user. Unsigned requests must not act for a user who signs. Windows
        activates at a higher level than it calls, so integrity is sufficient for an object created at privacy."""
        if self.sid is None:
            return caller.sid is None and caller.host == self.host
        return caller.sid == self.sid and caller.level >= min(self.level, AuthLevel.PKT_INTEGRITY)


#: Owner of objects that any caller with the IPID may call: objects that a client exports for its server.
ANYBODY: Final = None


class Exportable(Protocol):
    """Interface of an exported object."""

    def query(self, iid: UUID) -> bool:
        """Whether the object currently has this interface."""

    def released(self) -> None:
        """Called when the last reference is released or the holder is gone."""


class ExportedInterface:
    """An interface of an exported object (an IPID entry). References are counted: public ones in total, private ones by
    client."""

    __slots__ = ("iid", "ipid", "object", "private", "public")

    def __init__(self, exported: ExportedObject, iid: UUID, ipid: bytes) -> None:
        self.object, self.iid, self.ipid = exported, iid, ipid
        self.public = 0
        self.private: dict[tuple[str, str | None], int] | None = None

    @property
    def is_held(self) -> bool:
        return bool(self.public or self.private)


class ExportedObject:
    """An exported object (an OID entry). `called` is the time of the last call in seconds."""

    __slots__ = ("called", "interfaces", "oid", "owner", "target")

    def __init__(self, oid: int, target: Exportable, owner: ObjectOwner | None, called: float) -> None:
        self.oid, self.target, self.owner, self.called = oid, target, owner, called
        self.interfaces: tuple[ExportedInterface, ...] = ()  # few; a dictionary would take 130 bytes more


class Exporter:
    """The exported objects of a process. `clock` is in seconds; `random(n)` returns n random bytes."""

    def __init__(
        self,
        clock: Callable[[], float],
        random: Callable[[int], bytes],
        ping_period: float = 120.0,
        most_objects: int = MOST_OBJECTS,
        most_of_peer: int = MOST_OBJECTS_OF_PEER,
    ) -> None:
        """`ping_period` is how often clients ping; a client that misses three periods is gone (3.1.2.2)."""
        self._clock, self._random = clock, random
        self._budget = ObjectBudget(
            "automation objects", most_objects, most_of_peer, ("max_com_objects", "max_com_objects_per_peer")
        )
        self.oxid = self._identifier()
        self.rem_unknown = random(16)  # the IPID of IRemUnknown
        self.pings = PingSets(self._identifier, lambda oid: oid in self._objects, 3 * ping_period)
        self._ping_period = ping_period
        self._objects: dict[int, ExportedObject] = {}
        self._by_target: dict[int, ExportedObject] = {}
        self._interfaces: dict[bytes, ExportedInterface] = {}

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def interfaces(self) -> int:
        """Number of interfaces with references."""
        return len(self._interfaces)

    # -- references --------------------------------------------------------------------------------------------

    def marshal(
        self,
        target: Exportable,
        iid: UUID,
        resolver: Bindings,
        owner: ObjectOwner | None = ANYBODY,
        references: int = REFERENCES,
    ) -> StandardReference:
        """Create a reference to an interface (3.1.1.5.1); a newly exported object belongs to `owner`. Raises ComError:
        E_NOINTERFACE, or E_OUTOFMEMORY if the process or the owner has too many objects; this object is then released,
        because no client can hold a reference to it.
        """
        if not target.query(iid):
            raise ComError(ComResult.E_NOINTERFACE, f"{type(target).__name__} has no interface {iid}")
        exported = self._exported(target, owner)
        interface = self._interface(exported, iid)
        interface.public += references
        exported.called = self._clock()
        return StandardReference(iid, references, self.oxid, exported.oid, interface.ipid, resolver)

    def admit(self, target: Exportable, owner: ObjectOwner) -> None:
        """Export an object before an action for it that cannot be undone. If it never gets a reference, it ends like
        other objects without references. Raises ComError E_OUTOFMEMORY."""
        self._exported(target, owner)

    def withdraw(self, target: Exportable) -> None:
        """Release an admitted object if there is no reference to it."""
        exported = self._by_target.get(id(target))
        if exported is not None and not exported.interfaces:
            self._end(exported)

    def discard(self, target: Exportable) -> None:
        """Release an object, unless it is exported."""
        if id(target) not in self._by_target:
            _released(target)

    def _exported(self, target: Exportable, owner: ObjectOwner | None) -> ExportedObject:
        exported = self._by_target.get(id(target))
        if exported is not None:
            return exported
        if owner is not None:
            try:
                self._budget.take(owner.source)
            except LimitReached as error:
                logger.warning("refused to create an object for %s: %s", owner, error.detail)
                _released(target)
                raise ComError(ComResult.E_OUTOFMEMORY, error.detail) from None
        exported = ExportedObject(self._identifier(), target, owner, self._clock())
        self._objects[exported.oid] = self._by_target[id(target)] = exported
        return exported

    def _interface(self, exported: ExportedObject, iid: UUID) -> ExportedInterface:
        for interface in exported.interfaces:
            if interface.iid == iid:
                return interface
        made = ExportedInterface(exported, iid, self._random(16))
        self._interfaces[made.ipid] = made
        exported.interfaces += (made,)
        return made

    def unmarshal(self, reference: StandardReference, caller: ObjectOwner) -> Exportable:
        """Take back a reference to one of our own objects (3.1.1.5.3). Even if this was the last reference, the object
        lives until `withdraw`, because the current call uses it. Raises ComError: E_NOINTERFACE, or E_ACCESSDENIED for
        an object of another owner.
        """
        interface = self._interfaces.get(reference.ipid)
        if interface is None or interface.object.oid != reference.oid:
            raise ComError(
                ComResult.E_NOINTERFACE,
                f"no object {reference.oid:#x} with interface {UUID(bytes_le=reference.ipid)}",
            )
        self._permit(interface, caller)
        self._drop(interface, caller, reference.public_refs, 0)
        return interface.object.target

    def find(self, ipid: bytes, caller: ObjectOwner) -> ExportedInterface | None:
        """Return the target of a call, None if there is none, and record the time of the call. Raises ComError
        E_ACCESSDENIED for an object of another owner: 3.1.1.5.4 checks permissions first."""
        interface = self._interfaces.get(ipid)
        if interface is not None:
            self._permit(interface, caller)
            interface.object.called = self._clock()
        return interface

    def permit(self, ipids: Iterable[bytes], caller: ObjectOwner) -> None:
        """Raise ComError E_ACCESSDENIED if an interface belongs to another owner's object."""
        for ipid in ipids:
            if ipid in self._interfaces:
                self._permit(self._interfaces[ipid], caller)

    @staticmethod
    def _permit(interface: ExportedInterface, caller: ObjectOwner) -> None:
        owner = interface.object.owner
        if owner is not None and not owner.admits(caller):
            kind = type(interface.object.target).__name__
            raise ComError(
                ComResult.E_ACCESSDENIED,
                f"{kind} of {owner}, created at {owner.level.name}, was refused to {caller} at {caller.level.name}",
            )

    def query(
        self, ipid: bytes, iid: UUID, references: int, resolver: Bindings, caller: ObjectOwner
    ) -> StandardReference:
        """RemQueryInterface for one interface. Raises ComError: RPC_E_INVALID_OBJECT, E_ACCESSDENIED or
        E_NOINTERFACE."""
        interface = self.find(ipid, caller)
        if interface is None:
            raise ComError(ComResult.RPC_E_INVALID_OBJECT, f"no interface {UUID(bytes_le=ipid)}")
        return self.marshal(interface.object.target, iid, resolver, interface.object.owner, references)

    def add_references(self, ipid: bytes, caller: ObjectOwner, public: int, private: int) -> int:
        """RemAddRef for one interface; returns the HRESULT. Raises ComError E_ACCESSDENIED."""
        interface = self.find(ipid, caller)
        if interface is None:
            return ComResult.CO_E_OBJNOTREG
        interface.public += public
        if private:
            interface.private = interface.private or {}
            interface.private[caller.source] = interface.private.get(caller.source, 0) + private
        return ComResult.S_OK

    def release(self, ipid: bytes, caller: ObjectOwner, public: int, private: int) -> None:
        """RemRelease for one interface. An object without references is released. Raises ComError E_ACCESSDENIED."""
        interface = self._interfaces.get(ipid)
        if interface is not None:
            self._permit(interface, caller)
            self._drop(interface, caller, public, private)
            if not interface.object.interfaces:
                self._end(interface.object)

    def _drop(self, interface: ExportedInterface, caller: ObjectOwner, public: int, private: int) -> None:
        interface.public = max(0, interface.public - public)
        client = caller.source
        if private and interface.private and client in interface.private:
            left = interface.private[client] - private
            if left > 0:
                interface.private[client] = left
            else:
                del interface.private[client]
        if not interface.is_held:
            del self._interfaces[interface.ipid]
            exported = interface.object
            exported.interfaces = tuple(other for other in exported.interfaces if other is not interface)

    # -- pings -------------------------------------------------------------------------------------------------

    def ping(self, identifier: int) -> int:
        """SimplePing; returns the status."""
        return self.pings.ping(identifier, self._clock())

    def change_pings(
        self, identifier: int, sequence: int, add: Iterable[int], remove: Iterable[int], peer: str
    ) -> tuple[int, int]:
        """ComplexPing; returns the identifier of the set and the status."""
        return self.pings.change(identifier, sequence, add, remove, peer, self._clock())

    # -- the end of objects ------------------------------------------------------------------------------------

    def _end(self, exported: ExportedObject) -> None:
        for interface in exported.interfaces:
            del self._interfaces[interface.ipid]
        exported.interfaces = ()
        del self._objects[exported.oid]
        del self._by_target[id(exported.target)]
        if exported.owner is not None:
            self._budget.give_back(exported.owner.source)
        _released(exported.target)

    def collect(self) -> int:
        """Release the objects of clients that are gone (3.1.1.6.2, 3.1.2.6). Returns their number."""
        now = self._clock()
        dropped = self.pings.expire(now)
        gone = [
            exported
            for exported in self._gone(dropped, now)
            if exported.oid in self._objects and now - exported.called >= self._ping_period
        ]
        for exported in gone:
            logger.info("released object %#x: client %s stopped pinging it", exported.oid, exported.owner)
            self._end(exported)
        return len(gone)

    def _gone(self, dropped: Sequence[int], now: float) -> Iterator[ExportedObject]:
        """Yield objects in no ping set: those dropped from their sets, and those whose clients never created one."""
        unset = [oid for oid, e in self._objects.items() if now - e.called >= 3 * self._ping_period]
        for oid in dict.fromkeys([*dropped, *unset]):
            if not self.pings.holds(oid) and oid in self._objects:
                yield self._objects[oid]

    def end_all(self) -> None:
        """Release all objects, because the process ends."""
        for exported in list(self._objects.values()):
            self._end(exported)

    def _identifier(self) -> int:
        """Return a random nonzero number for an OXID, OID or SETID."""
        return int.from_bytes(self._random(8), "little") or 1


def _released(target: Exportable) -> None:
    try:
        target.released()
    except Exception:  # the object is gone for its clients, even if it could not free a resource
        logger.exception("releasing %s failed", type(target).__name__)
