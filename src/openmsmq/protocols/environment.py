"""Environment of the handlers: the queue manager, its store, the callers, and the release of replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

from msrpc.rpc.call import Call
from msrpc.rpc.call import RpcCaller as RpcCaller
from msrpc.rpc.dispatcher import SecurityPolicy
from openmsmq.directory.connection import DirectoryConnection
from openmsmq.model.message import Message
from openmsmq.model.once_a_minute import OnceAMinute
from openmsmq.model.security import sid_bytes
from openmsmq.protocols.coordinator import Coordinator
from openmsmq.protocols.message_security import MessageSecurity
from openmsmq.protocols.proxies import NoRemoteQueueManagers, RemoteQueueManagers, RemoteQueueProxyHandle
from openmsmq.protocols.public_queues import PublicQueues
from openmsmq.protocols.remote_read_security import RemoteReadSecurity
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.manager import QueueManager

# The MSMQ version whose behavior this queue manager follows (R_QMQueryQMRegistryInternal, query 3).
MSMQ_VERSION = "6.3.0"


T = TypeVar("T")
_CALLERS_KEPT = 4096  # cached callers of all hosts; the cache is emptied when it is full


class StoreView(Protocol):
    """Part of the store's interface that handlers use: the end of the log and the durable position."""

    @property
    def end(self) -> int: ...

    @property
    def durable_end(self) -> int: ...


class WhenDurable(Protocol):
    """Calls `callback` when everything written so far is durable; see `Committer.when_durable`."""

    def __call__(self, callback: Callable[[], object], calls: int = 1) -> None: ...


class CallTasks:
    """Tasks started by calls; each is referenced until it is done."""

    def __init__(self) -> None:
        self._tasks: Final[set[asyncio.Task[Any]]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task on the running loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


@dataclass(slots=True)
class Environment:
    """Environment of the handlers. `ports` maps fIP of R_QMGetRTQMServerPort to TCP ports; unsupported values are
    absent."""

    manager: QueueManager
    store: StoreView
    when_durable: WhenDurable
    ports: dict[int, int] = field(default_factory=dict)
    # Runs an action after a delay in seconds.
    later: Callable[[float, Callable[[], None]], object] = field(kw_only=True)
    # The monotonic clock of `later`, in seconds.
    seconds: Callable[[], float] = field(default=time.monotonic)
    # Log records about calls that a limit or the disk refused.
    refusals: OnceAMinute = field(default_factory=OnceAMinute)
    # Makes the store release unused space ([MS-MQMR] 3.1.4.2, TIDY); may take long, deletes no messages.
    tidy: Callable[[], None] = field(kw_only=True)
    # Called with the number of calls that do not wait for a sync, but that a synchronous sync would delay.
    may_hold_up: Callable[[int], None] = field(default=lambda calls: None)
    # Whether a SID, or None for anonymous callers, is an administrator.
    is_administrator: Callable[[str | None], bool] = field(default=lambda sid: False)
    # Returns the SIDs of a user's groups, given the user's SID.
    groups_of: Callable[[str], frozenset[str]] = field(default=lambda sid: frozenset())
    # The SIDs of domain users and groups that are administrators; a Kerberos login contains the user's groups.
    domain_administrators: frozenset[str] = frozenset()
    # Which callers are served, and requirements for remote readers; for interfaces that check their callers themselves.
    policy: SecurityPolicy = SecurityPolicy()
    remote_read_security: RemoteReadSecurity = RemoteReadSecurity()
    message_security: MessageSecurity = field(kw_only=True)
    public_queues: PublicQueues = field(kw_only=True)
    coordinator: Coordinator = field(kw_only=True)
    tasks: CallTasks = field(default_factory=CallTasks)
    remote: RemoteQueueManagers = field(default_factory=NoRemoteQueueManagers)
    proxies: dict[int, RemoteQueueProxyHandle] = field(default_factory=dict)  # by context
    directory: DirectoryConnection = field(default_factory=lambda: DirectoryConnection(None))
    _callers: dict[tuple[str | None, bool, frozenset[str], str], Caller] = field(default_factory=dict)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in parallel with the calls; see `CallTasks`."""
        return self.tasks.spawn(work)

    @property
    def backlog(self) -> int:
        """Bytes written to the log that are not durable yet."""
        return self.store.end - self.store.durable_end

    @property
    def is_dirty(self) -> bool:
        """Whether the log has writes that are not durable yet."""
        return self.store.end != self.store.durable_end

    def must_wait(self, message: Message | None, location: int | None = None) -> bool:
        """Whether the answer with `message` must wait for the next sync, because a message that a reader has seen must
        not vanish in a crash. If the message stays in the store, pass its `location`: then later writes do not
        matter."""
        if message is None or not message.recoverable or not self.is_dirty:
            return False
        return location is None or location >= self.store.durable_end

    def caller(self, call: Call) -> Caller:
        """Return the caller of a call, for access checks."""
        sid = call.caller.sid
        is_administrator = self.is_administrator(sid)
        groups = call.caller.identity.groups
        if sid is not None:
            groups |= self.groups_of(sid)
            is_administrator = is_administrator or not self.domain_administrators.isdisjoint({sid, *groups})
        origin = call.caller.identity.origin or f"rpc {call.peer}"
        known = (sid, is_administrator, groups, origin)
        caller = self._callers.get(known)
        if caller is None:
            if len(self._callers) >= _CALLERS_KEPT:
                self._callers.clear()
            caller = Caller.anonymous() if sid is None else Caller.user(sid, call.caller.user, groups)
            if is_administrator:
                caller = caller.as_administrator()
            caller = self._callers[known] = replace(caller, origin=origin)
        return caller

    @staticmethod
    def sender_sid(caller: RpcCaller) -> bytes:
        """Return the SID for a message without a sender: that of the caller, empty for an anonymous caller."""
        sid = caller.identity.sid
        return sid_bytes(sid) if sid is not None else b""
