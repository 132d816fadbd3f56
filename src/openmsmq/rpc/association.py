"""Association groups and the context handles that live in them.

C706 5.1.6, 9.3.3.2 and [MS-RPCE] 3.3.1.5.7, 2.2.1.1.4: connections of one client share a group, a context handle is
valid in its group only, and when the group's last connection goes its handles are run down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from openmsmq.rpc.faults import NCA_S_FAULT_CONTEXT_MISMATCH, NCA_S_FAULT_REMOTE_NO_MEMORY, Fault

log = logging.getLogger(__name__)

HANDLE_SIZE: Final = 20
NULL_HANDLE: Final = bytes(HANDLE_SIZE)
# Context handles of one association. An application holds one for each open queue, cursor and transaction; this
# bounds what a client that never closes anything can cost.
MAX_HANDLES: Final = 16384

Random = Callable[[int], bytes]
Rundown = Callable[[Any], None]


class ContextHandles:
    """The context handles of one association group. On the wire a handle is 20 octets: attributes 0 and a UUID."""

    def __init__(self, random: Random, maximum: int = MAX_HANDLES) -> None:
        self._random = random
        self._maximum = maximum
        self._entries: dict[bytes, tuple[str, Any, Rundown | None]] = {}
        self._over = False

    def __len__(self) -> int:
        return len(self._entries)

    def create(self, kind: str, obj: Any, rundown: Rundown | None = None) -> bytes:
        """A new handle for `obj`. `rundown(obj)` is called if the client goes without closing it.

        If the client is gone already, which happens to a call that was under way, it is called at once. Raises
        `Fault` when the association holds too many.
        """
        if self._over:
            _run_down(kind, obj, rundown)
            return bytes(4) + self._random(16)
        if len(self._entries) >= self._maximum:
            raise Fault(NCA_S_FAULT_REMOTE_NO_MEMORY)
        handle = bytes(4) + self._random(16)
        self._entries[handle] = (kind, obj, rundown)
        return handle

    def get(self, handle: bytes, kind: str) -> Any:
        """What the handle stands for. Raises `Fault` for one that is null, unknown here, or of another kind."""
        entry = self._entries.get(bytes(handle))
        if entry is None or entry[0] != kind:
            raise Fault(NCA_S_FAULT_CONTEXT_MISMATCH)
        return entry[1]

    def close(self, handle: bytes, kind: str) -> Any:
        """Forget the handle without running it down, and return what it stood for. Raises as `get` does."""
        obj = self.get(handle, kind)
        del self._entries[bytes(handle)]
        return obj

    def run_down(self) -> None:
        """Run every handle down, newest first: a cursor before the queue it belongs to."""
        self._over = True
        while self._entries:
            _, entry = self._entries.popitem()
            _run_down(*entry)


def _run_down(kind: str, obj: Any, rundown: Rundown | None) -> None:
    if rundown is not None:
        try:
            rundown(obj)
        except Exception:
            log.exception("rundown of a %s handle failed", kind)


class Association:
    """One association group."""

    __slots__ = ("connections", "group_id", "handles", "peer_host")

    def __init__(self, group_id: int, peer_host: str, handles: ContextHandles) -> None:
        self.group_id = group_id
        self.peer_host = peer_host
        self.handles = handles
        self.connections = 0


class AssociationTable:
    """All association groups of a server."""

    def __init__(self, random: Random, max_handles: int = MAX_HANDLES) -> None:
        self._random = random
        self._max_handles = max_handles
        self._groups: dict[int, Association] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def join(self, group_id: int, peer_host: str) -> Association | None:
        """Add a connection to the group, or to a new one for 0.

        None if there is no such group or it belongs to another host ([MS-RPCE] 3.3.1.5.7).
        """
        if group_id:
            group = self._groups.get(group_id)
            if group is None or group.peer_host != peer_host:
                return None
        else:
            while not group_id or group_id in self._groups:
                group_id = int.from_bytes(self._random(4), "little")
            group = Association(group_id, peer_host, ContextHandles(self._random, self._max_handles))
            self._groups[group_id] = group
        group.connections += 1
        return group

    def leave(self, association: Association) -> None:
        """Take a connection away; the last one runs the context handles down."""
        association.connections -= 1
        if association.connections == 0:
            self._groups.pop(association.group_id, None)
            association.handles.run_down()
