"""Ping sets ([MS-DCOM] 1.3.6, 3.1.2): clients list the objects that they hold once, and then only ping the set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msrpc.hresults import ResolverError

MOST_SETS: Final = 65_536
MOST_SETS_OF_PEER: Final = 1024


class PingSet:
    """The objects that a client holds. `expires` in seconds of the clock of the exporter."""

    __slots__ = ("expires", "oids", "peer", "sequence")

    def __init__(self, peer: str, sequence: int, expires: float) -> None:
        self.peer, self.sequence, self.expires = peer, sequence, expires
        self.oids: set[int] = set()


class PingSets:
    """All ping sets of a resolver. `exists` returns whether an object exists; `timeout` in seconds."""

    def __init__(self, new_identifier: Callable[[], int], exists: Callable[[int], bool], timeout: float) -> None:
        self._new_identifier, self._exists, self._timeout = new_identifier, exists, timeout
        self._sets: dict[int, PingSet] = {}
        self._holders: dict[int, int] = {}  # OID -> number of sets that contain it
        self._of_peer: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sets)

    def holds(self, oid: int) -> bool:
        """Whether an object is in any set."""
        return oid in self._holders

    def ping(self, identifier: int, now: float) -> int:
        """SimplePing (3.1.2.5.1.2); returns the status."""
        found = self._sets.get(identifier)
        if found is None:
            return ResolverError.OR_INVALID_SET
        found.expires = now + self._timeout
        return 0

    def change(
        self, identifier: int, sequence: int, add: Iterable[int], remove: Iterable[int], peer: str, now: float
    ) -> tuple[int, int]:
        """ComplexPing (3.1.2.5.1.3); returns the identifier of the set (a new one for 0) and the status. Only the host
        that created a set may change it: its identifier, sent in clear text, must not let another host end objects."""
        is_new = not identifier
        if not is_new:
            found = self._sets.get(identifier)
            if found is None or found.peer != peer:
                return identifier, ResolverError.OR_INVALID_SET
            # Equal numbers are accepted (clients always send 0); only a lower number is ignored.
            if found.sequence > sequence:
                return identifier, 0
        else:
            if self._of_peer.get(peer, 0) >= MOST_SETS_OF_PEER or len(self._sets) >= MOST_SETS:
                return 0, ResolverError.OR_INVALID_SET
            identifier = self._new_identifier()
            found = self._sets[identifier] = PingSet(peer, sequence, 0.0)
            self._of_peer[peer] = self._of_peer.get(peer, 0) + 1
        status = 0
        for oid in add:
            if oid in found.oids:
                continue
            if not self._exists(oid):
                status = 0 if is_new else ResolverError.OR_INVALID_OID  # only existing sets have this error
                continue
            found.oids.add(oid)
            self._holders[oid] = self._holders.get(oid, 0) + 1
        for oid in remove:
            if oid in found.oids:
                found.oids.discard(oid)
                self._let_go(oid)
        found.sequence, found.expires = sequence, now + self._timeout
        return identifier, status

    def expire(self, now: float) -> list[int]:
        """Drop the sets that were not pinged in time. Returns the objects that are then in no set."""
        dropped: list[int] = []
        for identifier in [i for i, found in self._sets.items() if found.expires <= now]:
            found = self._sets.pop(identifier)
            self._of_peer[found.peer] -= 1
            if not self._of_peer[found.peer]:
                del self._of_peer[found.peer]
            dropped += [oid for oid in found.oids if self._let_go(oid)]
        return dropped

    def _let_go(self, oid: int) -> bool:
        """Remove an object from one set. Returns whether it was the last one."""
        self._holders[oid] -= 1
        if self._holders[oid]:
            return False
        del self._holders[oid]
        return True
