"""Association groups and their context handles.

C706 5.1.6, 9.3.3.2 and [MS-RPCE] 3.3.1.5.7, 2.2.1.1.4: connections of one client share a group, a context handle is
valid only in its group, and when the last connection of a group ends, its handles are run down. The identifier of a
group is no secret, so (deviation D-15) a handle is also bound to the caller that created it, and to the authentication
level of that call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from msrpc.rpc.faults import NCA_S_FAULT_CONTEXT_MISMATCH, NCA_S_FAULT_REMOTE_NO_MEMORY, RPC_S_ACCESS_DENIED, Fault
from msrpc.rpc.pdu import AuthLevel
from msrpc.shares import Shares

log = logging.getLogger(__name__)

HANDLE_SIZE: Final = 20
NULL_HANDLE: Final = bytes(HANDLE_SIZE)
# Context handles of one association. An application holds one for each open queue, cursor and transaction; this
# bounds what a client that never closes anything can cost.
MAX_HANDLES: Final = 16384
MAX_HANDLES_IN_ALL: Final = 524_288  # some 200 MB
MAX_HANDLES_OF_HOST: Final = 262_144


@dataclass(frozen=True, slots=True)
class Holder:
    """Holder of an object behind a handle: a caller in an association, with a level of protection.

    Attributes:
        association: where the handle is valid.
        sid: security identifier of the caller; None for an anonymous caller, which differs from every other caller.
        level: minimum authentication level for using the handle. An unsigned request, which anyone could have forged,
            must not act for a caller who signs.
    """

    association: Association
    sid: str | None
    level: AuthLevel

    def __str__(self) -> str:
        return f"{self.association.peer_host} ({self.sid or 'anonymous'}, {self.level.name})"

    def admits(self, caller: Holder) -> bool:
        """Whether a caller may use what this holder has."""
        if caller is self:
            return True
        return caller.association is self.association and caller.sid == self.sid and caller.level >= self.level

    def admits_user(self, caller: Holder) -> bool:
        """Do what `admits` does, but an authenticated user is the same in any association: a client that calls some
        interfaces at a higher level than others has one for each level."""
        return self.admits(caller) or (self.sid is not None and caller.sid == self.sid and caller.level >= self.level)


Random = Callable[[int], bytes]
Rundown = Callable[[Any], None]


class ContextHandles:
    """The context handles of one association group. On the wire a handle is 20 octets: attributes 0 and a UUID."""

    def __init__(
        self, random: Random, maximum: int = MAX_HANDLES, shares: Shares[str] | None = None, host: str = ""
    ) -> None:
        """`shares` counts the handles of all associations by host; None counts them nowhere."""
        self._random = random
        self._maximum = maximum
        self._shares, self._host = shares, host
        self.entries: Final[dict[bytes, tuple[str, Any, Rundown | None, Holder]]] = {}
        self._charged = 0
        self._over = False

    def __len__(self) -> int:
        return len(self.entries)

    def create(self, holder: Holder, kind: str, obj: Any, rundown: Rundown | None = None) -> bytes:
        """Create a handle for `obj`. `rundown(obj)` is called if the client disconnects without closing it.

        If the client has already disconnected during the call, `rundown` is called at once. It is also called if the
        association has too many handles; then `Fault` is raised.
        """
        if self._over:
            _run_down(kind, obj, rundown)
            return bytes(4) + self._random(16)
        try:
            self._check_room()
        except Fault:
            _run_down(kind, obj, rundown)
            raise
        handle = bytes(4) + self._random(16)
        self.entries[handle] = (kind, obj, rundown, holder)
        if self._shares is not None:
            self._shares.charge(self._host)
        return handle

    def charge(self, by: int) -> None:
        """Count an object without a context handle, such as a cursor; -1 removes it from the count. Raises as
        `create`."""
        if by > 0:
            self._check_room()
        if self._over:  # run-down queues have already removed their cursors from the count
            return
        self._charged += by
        if self._shares is not None:
            if by > 0:
                self._shares.charge(self._host, by)
            else:
                self._shares.give_back(self._host, -by)

    def _check_room(self) -> None:
        shares = self._shares
        if len(self.entries) + self._charged < self._maximum and (shares is None or shares.has_room(self._host)):
            return
        log.warning(
            "%s has too many open queues, cursors and transactions: %d in one association (limit %d), %d of the host "
            "(limit %d), %d in all (limit %d)", self._host, len(self.entries) + self._charged, self._maximum,
            0 if shares is None else shares.of(self._host), MAX_HANDLES_OF_HOST, 0 if shares is None else shares.held,
            MAX_HANDLES_IN_ALL,
        )  # fmt: skip
        raise Fault(NCA_S_FAULT_REMOTE_NO_MEMORY)

    def get(self, holder: Holder, handle: bytes, kind: str) -> Any:
        """Return the object behind the handle. Raises `Fault`: context mismatch for one that is null, unknown here or
        of another kind, access denied for one of another caller or a better protected one."""
        entry = self.entries.get(bytes(handle))
        if entry is None or entry[0] != kind:
            raise Fault(NCA_S_FAULT_CONTEXT_MISMATCH)
        if not entry[3].admits(holder):
            log.warning("%s: a %s handle was refused to another caller or at a lower level", holder, kind)
            raise Fault(RPC_S_ACCESS_DENIED)
        return entry[1]

    def find(self, holder: Holder, handle: bytes, kind: str) -> Any:
        """Return the result of `get`, or None where that raises."""
        entry = self.entries.get(handle)
        return entry[1] if entry is not None and entry[0] == kind and entry[3].admits(holder) else None

    def close(self, holder: Holder, handle: bytes, kind: str) -> Any:
        """Remove the handle without running it down, and return its object. Raises as `get`."""
        obj = self.get(holder, handle, kind)
        del self.entries[bytes(handle)]
        if self._shares is not None:
            self._shares.give_back(self._host)
        return obj

    def run_down(self) -> None:
        """Run every handle down, newest first: a cursor before the queue it belongs to."""
        self._over = True
        if self._shares is not None and (held := len(self.entries) + self._charged):
            self._shares.give_back(self._host, held)
        while self.entries:
            _, (kind, obj, rundown, _) = self.entries.popitem()
            _run_down(kind, obj, rundown)


def _run_down(kind: str, obj: Any, rundown: Rundown | None) -> None:
    if rundown is not None:
        try:
            rundown(obj)
        except Exception:
            log.exception("rundown of a %s handle failed", kind)


class HeldHandles:
    """The context handles of one caller in an association."""

    __slots__ = ("_handles", "entries", "holder")

    def __init__(self, handles: ContextHandles, holder: Holder) -> None:
        self._handles, self.holder, self.entries = handles, holder, handles.entries

    def create(self, kind: str, obj: Any, rundown: Rundown | None = None) -> bytes:
        """See `ContextHandles.create`."""
        return self._handles.create(self.holder, kind, obj, rundown)

    def get(self, handle: bytes, kind: str) -> Any:
        """See `ContextHandles.get`."""
        return self._handles.get(self.holder, handle, kind)

    def find(self, handle: bytes, kind: str) -> Any:
        """See `ContextHandles.find`."""
        return self._handles.find(self.holder, handle, kind)

    def close(self, handle: bytes, kind: str) -> Any:
        """See `ContextHandles.close`."""
        return self._handles.close(self.holder, handle, kind)


class Association:
    """One association group."""

    __slots__ = ("_latest", "_latest_caller", "connections", "group_id", "handles", "peer_host")

    def __init__(self, group_id: int, peer_host: str, handles: ContextHandles) -> None:
        self._latest_caller: object = None
        self._latest: HeldHandles | None = None
        self.group_id = group_id
        self.peer_host = peer_host
        self.handles = handles
        self.connections = 0

    def held_by(self, caller: object, sid: str | None, level: AuthLevel) -> HeldHandles:
        """Return the handles of a caller. Those of the last caller are cached, because it usually makes the next
        call."""
        latest = self._latest
        if latest is None or self._latest_caller is not caller:
            latest = self._latest = HeldHandles(self.handles, Holder(self, sid, level))
            self._latest_caller = caller
        return latest


class AssociationTable:
    """All association groups of a server."""

    def __init__(self, random: Random, max_handles: int = MAX_HANDLES) -> None:
        self._random = random
        self._max_handles = max_handles
        self.shares: Final[Shares[str]] = Shares(MAX_HANDLES_IN_ALL, MAX_HANDLES_OF_HOST)  # number of handles by host
        self._groups: dict[int, Association] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def join(self, group_id: int, peer_host: str) -> Association | None:
        """Add a connection to the group, or to a new one for 0.

        Returns None if the group does not exist or belongs to another host ([MS-RPCE] 3.3.1.5.7).
        """
        if group_id:
            group = self._groups.get(group_id)
            if group is None or group.peer_host != peer_host:
                return None
        else:
            while not group_id or group_id in self._groups:
                group_id = int.from_bytes(self._random(4), "little")
            handles = ContextHandles(self._random, self._max_handles, self.shares, peer_host)
            group = Association(group_id, peer_host, handles)
            self._groups[group_id] = group
        group.connections += 1
        return group

    def leave(self, association: Association) -> None:
        """Remove a connection; removing the last one runs the context handles down."""
        association.connections -= 1
        if association.connections == 0:
            self._groups.pop(association.group_id, None)
            association.handles.run_down()
