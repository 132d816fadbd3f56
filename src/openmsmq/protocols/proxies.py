"""Read from another queue manager for a client: objects behind the queue handles of qmcomm.

This is the supporting server of [MS-MQMP] 3.1.1.4 to 3.1.1.6. The client has opened the queue at the other queue
manager and passed the handle on; every operation on the handle is forwarded through MS-MQQP.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from msrpc.rpc.association import Holder
from openmsmq.model import names
from openmsmq.model.constants import Access, ReceiveAction
from openmsmq.model.errors import HResult, InvalidHandle, MsmqError
from openmsmq.queueing.descriptors import Accept


class RemoteSession(Protocol):
    """A session of MS-MQQP. Its methods raise MsmqError, also for a lost connection."""

    async def read(self, action: ReceiveAction, timeout: int, cursor: int, accept: Accept) -> int:
        """Read a message, pass it to `accept` and return the resulting status. A received message is removed if it was
        accepted, and put back if it was refused or the caller is canceled before."""

    async def purge(self) -> None: ...

    async def create_cursor(self) -> int: ...

    async def close_cursor(self, cursor: int) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Result of R_QMOpenRemoteQueue at the other queue manager."""

    queue: int
    pointer: int
    context: int


class RemoteQueueManagers(Protocol):
    """Access to other queue managers."""

    async def open(self, machine: str, name: str, access: Access, opened: HandedOver) -> RemoteSession:
        """Open a session on an open queue at `machine`, a computer name or address. Raises MsmqError."""

    async def management(self, machine: str, name: str | None, *wanted: str) -> dict[str, Any]:
        """Call R_QMMgmtGetInfo at `machine`, for the queue `name` or, if that is None, for the machine: see
        `client.operations`. Raises MsmqError."""

    async def act(self, machine: str, name: str | None, action: str) -> None:
        """Call R_QMMgmtAction at `machine`; `name` as for `management`. Raises MsmqError."""


class NoRemoteQueueManagers:
    """For a queue manager without a network."""

    async def open(self, machine: str, name: str, access: Access, opened: HandedOver) -> RemoteSession:
        raise _unreachable(machine)

    async def management(self, machine: str, name: str | None, *wanted: str) -> dict[str, Any]:
        raise _unreachable(machine)

    async def act(self, machine: str, name: str | None, action: str) -> None:
        raise _unreachable(machine)


def _unreachable(machine: str) -> MsmqError:
    return MsmqError(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, f"{machine} can't be reached from here")


@dataclass(slots=True, eq=False)
class RemoteQueueProxyHandle:
    """3.1.1.5. `owner` is the client that opened it; `cursors` maps handles of cursor proxies (3.1.1.6) to remote
    cursors."""

    context: int
    format_name: names.FormatName
    access: Access
    session: RemoteSession
    owner: Holder
    cursors: dict[int, int] = field(default_factory=dict)
    _handles: Iterator[int] = field(default_factory=lambda: itertools.count(0x100))

    async def read(self, action: ReceiveAction, timeout: int, cursor: int, accept: Accept) -> int:
        return await self.session.read(action, timeout, self.cursors[cursor] if cursor else 0, accept)

    async def create_cursor(self) -> int:
        """Create a cursor proxy; return its handle."""
        remote = await self.session.create_cursor()
        handle = next(self._handles)
        self.cursors[handle] = remote
        return handle

    def check_cursor(self, cursor: int) -> None:
        """Raises InvalidHandle for a cursor of another queue; 0 means no cursor."""
        if cursor and cursor not in self.cursors:
            raise InvalidHandle(detail=f"no cursor {cursor:#x} on this queue")
