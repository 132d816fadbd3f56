"""What handlers work with: the queue manager, its store, who calls, and when replies may go out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from openmsmq.model.security import sid_bytes
from openmsmq.queueing.access import Caller
from openmsmq.queueing.manager import QueueManager
from openmsmq.rpc.call import Call

# The MSMQ version whose behaviour this queue manager follows (R_QMQueryQMRegistryInternal, query 3).
MSMQ_VERSION = "6.3.0"


class StoreView(Protocol):
    """What handlers see of the store: how far it has been written, and how far that is durable."""

    @property
    def position(self) -> int: ...

    @property
    def durable_position(self) -> int: ...


class Timer(Protocol):
    """An action to come."""

    def cancel(self) -> None: ...


class TransactionCoordinator(Protocol):
    """The seam for distributed transactions ([MS-MQMP] 3.1.4.12 and 3.1.4.13)."""

    def whereabouts(self) -> bytes:
        """The SWhereabouts structure. Raises MsmqError."""

    def enlist(self, unit_of_work: bytes, cookie: bytes) -> None:
        """Enlist in an external transaction. Raises MsmqError."""


class NoCoordinator:
    """No distributed transaction coordinator is connected."""

    def whereabouts(self) -> bytes:
        raise MsmqError(HResult.MQ_ERROR_DTC_CONNECT, "no distributed transaction coordinator")

    def enlist(self, unit_of_work: bytes, cookie: bytes) -> None:
        raise MsmqError(HResult.MQ_ERROR_DTC_CONNECT, "no distributed transaction coordinator")


@dataclass(slots=True)
class Environment:
    """`ports` maps fIP of R_QMGetRTQMServerPort to TCP ports; what is not served is absent."""

    manager: QueueManager
    store: StoreView
    when_durable: Callable[[Callable[[], object]], None]
    ports: dict[int, int] = field(default_factory=dict)
    # Runs an action after so many seconds; what it returns can be cancelled.
    later: Callable[[float, Callable[[], None]], Timer] = field(kw_only=True)
    # Makes the store give back what it does not need ([MS-MQMR] 3.1.4.2, TIDY); may take its time, deletes no message.
    tidy: Callable[[], None] = field(kw_only=True)
    # Whether a SID, or None for anonymous callers, is an administrator.
    is_administrator: Callable[[str | None], bool] = field(default=lambda sid: False)
    coordinator: TransactionCoordinator = field(default_factory=NoCoordinator)
    _callers: dict[tuple[str | None, bool], Caller] = field(default_factory=dict)

    @property
    def backlog(self) -> int:
        """Bytes that are written to the log and not durable yet."""
        return self.store.position - self.store.durable_position

    @property
    def is_dirty(self) -> bool:
        """Whether something is written that is not durable yet."""
        return self.store.position != self.store.durable_position

    def must_wait(self, message: Message | None) -> bool:
        """Whether a reader may not see `message` before the next sync: what was seen must not vanish in a crash."""
        return message is not None and message.recoverable and self.is_dirty

    def caller(self, call: Call) -> Caller:
        """Who calls, as access checks see it."""
        sid = call.caller.sid
        is_administrator = self.is_administrator(sid)
        caller = self._callers.get((sid, is_administrator))
        if caller is None:
            caller = Caller.anonymous() if sid is None else Caller.user(sid, call.caller.user)
            if is_administrator:
                caller = caller.as_administrator()
            self._callers[sid, is_administrator] = caller
        return caller

    @staticmethod
    def sender_sid(call: Call) -> bytes:
        """The SID that a message without a sender gets: the caller's, or none for an anonymous one."""
        sid = call.caller.sid
        return sid_bytes(sid) if sid is not None else b""
