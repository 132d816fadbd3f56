"""The object exporter ([MS-DCOM] 3.1.1): which objects others may call, by which interfaces, and who holds them.

An object lives as long as a client holds a reference to one of its interfaces and is not known to be gone (`pinging`).
The identifier of an interface (IPID) is random: whoever names it was given it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol
from uuid import UUID

from openmsmq.dcom.bindings import Bindings
from openmsmq.dcom.hresults import ComError, ComResult
from openmsmq.dcom.objref import StandardReference
from openmsmq.dcom.pinging import PingSets

logger = logging.getLogger(__name__)

REFERENCES: Final = 5  # that a marshaled interface comes with; 3.1.1.5.1 recommends this
MOST_OBJECTS: Final = 100_000
MOST_OBJECTS_OF_PEER: Final = 16_384


class Exportable(Protocol):
    """What an exporter asks of an object."""

    def query(self, iid: UUID) -> bool:
        """Whether the object has this interface now."""

    def released(self) -> None:
        """Nobody holds the object any more, or its holder is gone."""


class ExportedInterface:
    """An interface of an exported object (an IPID entry). References are counted: public ones together, private ones by
    client."""

    __slots__ = ("iid", "ipid", "object", "private", "public")

    def __init__(self, exported: ExportedObject, iid: UUID, ipid: bytes) -> None:
        self.object, self.iid, self.ipid = exported, iid, ipid
        self.public = 0
        self.private: dict[str, int] | None = None

    @property
    def is_held(self) -> bool:
        return bool(self.public or self.private)


class ExportedObject:
    """An object that others may call (an OID entry). `peer` is the host that it was made for, `called` the time of the
    last call in seconds."""

    __slots__ = ("called", "interfaces", "oid", "peer", "target")

    def __init__(self, oid: int, target: Exportable, peer: str, called: float) -> None:
        self.oid, self.target, self.peer, self.called = oid, target, peer, called
        self.interfaces: tuple[ExportedInterface, ...] = ()  # few: a dictionary would take 130 bytes more


class Exporter:
    """The objects of one process. `clock` is in seconds; `random` returns so many random bytes."""

    def __init__(
        self,
        clock: Callable[[], float],
        random: Callable[[int], bytes],
        ping_period: float = 120.0,
        most_objects: int = MOST_OBJECTS,
        most_of_peer: int = MOST_OBJECTS_OF_PEER,
    ) -> None:
        """`ping_period` is how often clients ping; whoever does not for three periods is gone (3.1.2.2)."""
        self._clock, self._random = clock, random
        self._most, self._most_of_peer = most_objects, most_of_peer
        self.oxid = self._identifier()
        self.rem_unknown = random(16)  # the IPID of IRemUnknown
        self.pings = PingSets(self._identifier, lambda oid: oid in self._objects, 3 * ping_period)
        self._ping_period = ping_period
        self._objects: dict[int, ExportedObject] = {}
        self._by_target: dict[int, ExportedObject] = {}
        self._interfaces: dict[bytes, ExportedInterface] = {}
        self._of_peer: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def interfaces(self) -> int:
        """How many interfaces of objects are held."""
        return len(self._interfaces)

    # -- references --------------------------------------------------------------------------------------------

    def marshal(
        self, target: Exportable, iid: UUID, resolver: Bindings, peer: str, references: int = REFERENCES
    ) -> StandardReference:
        """Give away a reference to an interface (3.1.1.5.1). Raises ComError: E_NOINTERFACE, or E_OUTOFMEMORY when the
        process or the peer has too many objects."""
        if not target.query(iid):
            raise ComError(ComResult.E_NOINTERFACE, f"{type(target).__name__} has no interface {iid}")
        exported = self._by_target.get(id(target)) or self._export(target, peer)
        interface = self._interface(exported, iid)
        interface.public += references
        exported.called = self._clock()
        return StandardReference(iid, references, self.oxid, exported.oid, UUID(bytes_le=interface.ipid), resolver)

    def _export(self, target: Exportable, peer: str) -> ExportedObject:
        count = self._of_peer.get(peer, 0)
        if len(self._objects) >= self._most or count >= self._most_of_peer:
            limit = f"{self._most_of_peer} for {peer}" if count >= self._most_of_peer else f"{self._most} in all"
            logger.warning("an object for %s was refused: too many objects are held (limit %s)", peer, limit)
            raise ComError(ComResult.E_OUTOFMEMORY, f"too many objects are held, limit {limit}")
        exported = ExportedObject(self._identifier(), target, peer, self._clock())
        self._objects[exported.oid] = self._by_target[id(target)] = exported
        self._of_peer[peer] = count + 1
        return exported

    def _interface(self, exported: ExportedObject, iid: UUID) -> ExportedInterface:
        for interface in exported.interfaces:
            if interface.iid == iid:
                return interface
        made = ExportedInterface(exported, iid, self._random(16))
        self._interfaces[made.ipid] = made
        exported.interfaces += (made,)
        return made

    def unmarshal(self, reference: StandardReference) -> Exportable:
        """Take back a reference to one of our own objects (3.1.1.5.3). Raises ComError E_NOINTERFACE."""
        interface = self._interfaces.get(reference.ipid.bytes_le)
        if interface is None or interface.object.oid != reference.oid:
            raise ComError(ComResult.E_NOINTERFACE, f"no object {reference.oid:#x} with interface {reference.ipid}")
        target = interface.object.target
        self._drop(interface, "", reference.public_refs, 0)
        return target

    def find(self, ipid: bytes) -> ExportedInterface | None:
        """What a call names; the object counts as called."""
        interface = self._interfaces.get(ipid)
        if interface is not None:
            interface.object.called = self._clock()
        return interface

    def query(self, ipid: bytes, iid: UUID, references: int, resolver: Bindings) -> StandardReference:
        """RemQueryInterface for one interface. Raises ComError: RPC_E_INVALID_OBJECT or E_NOINTERFACE."""
        interface = self.find(ipid)
        if interface is None:
            raise ComError(ComResult.RPC_E_INVALID_OBJECT, f"no interface {UUID(bytes_le=ipid)}")
        return self.marshal(interface.object.target, iid, resolver, interface.object.peer, references)

    def add_references(self, ipid: bytes, client: str, public: int, private: int) -> int:
        """RemAddRef for one interface; returns the HRESULT."""
        interface = self.find(ipid)
        if interface is None:
            return ComResult.CO_E_OBJNOTREG
        interface.public += public
        if private:
            interface.private = interface.private or {}
            interface.private[client] = interface.private.get(client, 0) + private
        return ComResult.S_OK

    def release(self, ipid: bytes, client: str, public: int, private: int) -> None:
        """RemRelease for one interface. The object that nobody holds any more ends."""
        interface = self._interfaces.get(ipid)
        if interface is not None:
            self._drop(interface, client, public, private)

    def _drop(self, interface: ExportedInterface, client: str, public: int, private: int) -> None:
        interface.public = max(0, interface.public - public)
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
            if not exported.interfaces:
                self._end(exported)

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
        self._of_peer[exported.peer] -= 1
        if not self._of_peer[exported.peer]:
            del self._of_peer[exported.peer]
        try:
            exported.target.released()
        except Exception:  # the object is gone for its clients, whatever it failed to give back
            logger.exception("the release of %s failed", type(exported.target).__name__)

    def collect(self) -> int:
        """End what belongs to clients that are gone (3.1.1.6.2, 3.1.2.6); returns how many objects."""
        now = self._clock()
        dropped = self.pings.expire(now)
        gone = [
            exported
            for exported in self._gone(dropped, now)
            if exported.oid in self._objects and now - exported.called >= self._ping_period
        ]
        for exported in gone:
            logger.info("object %#x of %s is not pinged any more and ends", exported.oid, exported.peer)
            self._end(exported)
        return len(gone)

    def _gone(self, dropped: Sequence[int], now: float) -> Iterator[ExportedObject]:
        """Objects in no ping set: those which were dropped from theirs, and those whose clients never made one."""
        unset = [oid for oid, e in self._objects.items() if now - e.called >= 3 * self._ping_period]
        for oid in dict.fromkeys([*dropped, *unset]):
            if not self.pings.holds(oid) and oid in self._objects:
                yield self._objects[oid]

    def end_all(self) -> None:
        """The process ends."""
        for exported in list(self._objects.values()):
            self._end(exported)

    def _identifier(self) -> int:
        """A number that is not zero, for an OXID, OID or SETID."""
        return int.from_bytes(self._random(8), "little") or 1
