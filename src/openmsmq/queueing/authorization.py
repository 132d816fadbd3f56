"""Authorization: callers, rights, and the one gate that every operation passes.

`GATES` lists, for each right and each kind of target, the access mask that a security descriptor must grant.
Combinations that are not listed are denied. docs/security.md has the same table in words.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from typing import Final

from openmsmq.model import security
from openmsmq.model.constants import MachineAccessMask, QueueAccessMask
from openmsmq.model.errors import AccessDenied
from openmsmq.model.rights import missing_right
from openmsmq.model.security import SecurityDescriptor
from openmsmq.queueing.auditing import Actor, Auditor, AuditRecord, NoAudit
from openmsmq.queueing.queue import SYSTEM_JOURNAL, Queue, QueueKind


@dataclass(frozen=True, slots=True)
class Caller:
    """`sid` identifies the caller; access is checked against all of `sids`."""

    sid: str
    sids: frozenset[str]
    name: str = ""
    origin: str = field(default="", compare=False)  # for the audit log, such as `rpc 10.0.0.7`

    @property
    def actor(self) -> Actor:
        return Actor(self.sid, self.name, self.origin)

    @classmethod
    def anonymous(cls) -> Caller:
        """Return an unauthenticated caller. Everyone includes it, because a server that accepts anonymous callers
        serves them."""
        return cls(security.ANONYMOUS, frozenset([security.ANONYMOUS, security.EVERYONE]), "anonymous")

    @classmethod
    def user(cls, sid: str, name: str = "", groups: frozenset[str] = frozenset()) -> Caller:
        """Return an authenticated caller; `groups` are the SIDs of the user's groups."""
        return cls(sid, groups | {sid, security.EVERYONE, security.AUTHENTICATED_USERS}, name)

    def as_administrator(self) -> Caller:
        """Return the same caller as a member of Administrators."""
        return replace(self, sids=self.sids | {security.ADMINISTRATORS})


# The queue manager itself, for operations that no client requested.
SYSTEM = Caller(security.LOCAL_SYSTEM, frozenset([security.LOCAL_SYSTEM, security.ADMINISTRATORS]), "system")


@dataclass(frozen=True, slots=True)
class Owned:
    """An object that belongs to a caller and has no security descriptor: a sink, or a stage. `sid` is the owner's."""

    sid: str
    name: str


@dataclass(frozen=True, slots=True)
class DirectoryRecord:
    """Directory entry of a queue or machine that is not local. `security` is its self-relative descriptor, `name` its
    path name or computer name; `is_machine` is False for a queue."""

    security: bytes
    name: str
    is_machine: bool = False


class Right(Enum):
    """A right on a queue, on the machine (`None`), or on an `Owned` object."""

    RECEIVE = "receive"  # open for receiving, or claim
    PEEK = "peek"  # open for peeking
    SEND = "send"  # open for sending, or stage
    MOVE = "move"  # open as the target of moves
    READ_OUTGOING = "read an outgoing queue"  # open with an admin access mode
    CREATE_QUEUE = "create a queue"
    DELETE_QUEUE = "delete a queue"
    GET_PROPERTIES = "get properties"
    SET_PROPERTIES = "set properties"
    GET_PERMISSIONS = "get permissions"
    SET_PERMISSIONS = "set permissions"
    TAKE_OWNERSHIP = "take ownership"
    SEE = "see"  # read state and counts through qmmgmt
    ADMINISTER = "administer"  # act through qmmgmt, exceed max_queues_per_owner, use what others own
    USE_OWN = "act"  # use a sink or stage


class AccessTarget(Enum):
    """Kind of object a right applies to; it determines whose descriptor decides."""

    MACHINE = "machine"
    MACHINE_JOURNAL = "machine journal"  # the machine's descriptor
    DEAD_LETTERS = "dead-letter queue"  # the machine's
    QUEUE = "private queue"  # its own
    SUBQUEUE = "subqueue"  # its parent's
    JOURNAL = "journal"  # its queue's
    CONNECTOR = "connector queue"  # its own
    OUTGOING = "outgoing queue"  # the machine's
    OWNED = "sink or staged write"  # the owner may; others need ADMINISTER


Subject = Queue | Owned | DirectoryRecord | None

_Q, _M, _R, _T = QueueAccessMask, MachineAccessMask, Right, AccessTarget


def _guarded(mask: int) -> dict[AccessTarget, int]:
    """Map every target that is protected by a queue's descriptor to `mask`."""
    return dict.fromkeys((_T.QUEUE, _T.SUBQUEUE, _T.JOURNAL, _T.CONNECTOR), mask)


_DESTINATIONS: Final = (_T.QUEUE, _T.SUBQUEUE, _T.CONNECTOR)
_ADMINISTER: Final = int(_M.SET_MACHINE_PROPERTIES)
#: Right -> target -> the mask that the descriptor must grant.
GATES: Final[dict[Right, dict[AccessTarget, int]]] = {
    _R.RECEIVE: {
        **dict.fromkeys(_DESTINATIONS, int(_Q.RECEIVE_MESSAGE)),
        _T.JOURNAL: int(_Q.RECEIVE_JOURNAL_MESSAGE),
        _T.MACHINE_JOURNAL: int(_M.RECEIVE_JOURNAL_QUEUE_MESSAGE),
        _T.DEAD_LETTERS: int(_M.RECEIVE_DEADLETTER_MESSAGE),
    },
    _R.PEEK: {
        **_guarded(int(_Q.PEEK_MESSAGE)),
        _T.MACHINE_JOURNAL: int(_M.PEEK_JOURNAL_QUEUE_MESSAGE),
        _T.DEAD_LETTERS: int(_M.PEEK_DEADLETTER_MESSAGE),
    },
    _R.SEND: dict.fromkeys(_DESTINATIONS, int(_Q.WRITE_MESSAGE)),
    _R.MOVE: dict.fromkeys(_DESTINATIONS, int(_Q.RECEIVE_MESSAGE)),  # receiving includes moving aside
    _R.READ_OUTGOING: {_T.OUTGOING: _ADMINISTER},
    _R.CREATE_QUEUE: {_T.MACHINE: int(_M.CREATE_QUEUE)},
    _R.DELETE_QUEUE: _guarded(int(_Q.DELETE_QUEUE)),
    _R.GET_PROPERTIES: _guarded(int(_Q.GET_QUEUE_PROPERTIES)),
    _R.SET_PROPERTIES: _guarded(int(_Q.SET_QUEUE_PROPERTIES)),
    _R.GET_PERMISSIONS: _guarded(int(_Q.GET_QUEUE_PERMISSIONS)),
    _R.SET_PERMISSIONS: _guarded(int(_Q.CHANGE_QUEUE_PERMISSIONS)),
    _R.TAKE_OWNERSHIP: _guarded(int(_Q.TAKE_QUEUE_OWNERSHIP)),
    _R.SEE: {
        **_guarded(int(_Q.GET_QUEUE_PROPERTIES)),
        **dict.fromkeys((_T.MACHINE, _T.MACHINE_JOURNAL, _T.DEAD_LETTERS, _T.OUTGOING), int(_M.GET_MACHINE_PROPERTIES)),
    },
    _R.ADMINISTER: {_T.MACHINE: _ADMINISTER},
    _R.USE_OWN: {_T.OWNED: _ADMINISTER},
}


#: Rights whose denial is audited, with their names in the audit log; using the other rights changes nothing.
AUDITED: Final = {
    _R.CREATE_QUEUE: "queue.create", _R.DELETE_QUEUE: "queue.delete", _R.SET_PROPERTIES: "queue.properties",
    _R.SET_PERMISSIONS: "queue.permissions", _R.TAKE_OWNERSHIP: "queue.owner", _R.ADMINISTER: "machine.act",
    _R.READ_OUTGOING: "outgoing.open", _R.RECEIVE: "messages.open",
}  # fmt: skip
#: Rights whose use is audited here even when allowed: no other part records it.
_ALONE: Final = (_R.ADMINISTER, _R.READ_OUTGOING, _R.RECEIVE)
_ADMINISTRATIVE: Final = (_T.MACHINE_JOURNAL, _T.DEAD_LETTERS, _T.JOURNAL, _T.OUTGOING)  # sources of receives


class Authorization:
    """Checks rights against the descriptors of the machine and its queues, and reports to the auditor."""

    def __init__(self, machine: SecurityDescriptor, auditor: Auditor | None = None) -> None:
        self.machine = machine
        self._auditor: Final = auditor or NoAudit()

    def authorize(self, caller: Caller, target: Subject, right: Right, act: str = "") -> None:
        """Check that the caller has a right. Raises AccessDenied, naming the caller, the right and the target.

        Args:
            target: None for the queue manager itself.
            act: the intended action, for the audit log.
        """
        if isinstance(target, Owned) and target.sid == caller.sid:
            return
        kind = _kind_of(target)
        wanted = GATES[right].get(kind)
        allowed = wanted is not None and self._decides(target).grants(caller.sids, wanted)
        if right in AUDITED and _is_recorded(target, kind, right, allowed):
            after = {"act": act} if act else None
            deed = AuditRecord(
                caller.actor, AUDITED[right], kind.value, _name_of(target), denied=not allowed, after=after
            )
            self._auditor.record(deed)
        if allowed:
            return
        if wanted is None:
            raise AccessDenied(detail=f"{caller.name or caller.sid}: nobody may {right.value} on {_name_of(target)}")
        who = caller.name or caller.sid
        queue = _guard_of(target)
        name = None if queue is None else queue.properties.path_name
        detail = f"{who} may not {right.value} on {_name_of(target)}: {missing_right(wanted, who, name)}"
        raise AccessDenied(detail=detail)

    def allows(self, caller: Caller, target: Subject, right: Right) -> bool:
        """Whether `authorize` would grant the right. Writes no audit record."""
        wanted = GATES[right].get(_kind_of(target))
        if isinstance(target, Owned) and target.sid == caller.sid:
            return True
        return wanted is not None and self._decides(target).grants(caller.sids, wanted)

    def _decides(self, target: Subject) -> SecurityDescriptor:
        """Return the descriptor that applies: for a journal or subqueue that of its queue, for a target without a
        descriptor that of the machine."""
        if isinstance(target, DirectoryRecord):
            if not target.security:
                return _UNGUARDED
            found = _parsed(target.security)
            return found.of_machine() if target.is_machine else found
        guard = _guard_of(target)
        if guard is None:
            return self.machine
        return _parsed(guard.properties.security) if guard.properties.security else _UNGUARDED


def _guard_of(target: Subject) -> Queue | None:
    """Return the queue whose descriptor applies; None if it is the machine's."""
    if not isinstance(target, Queue):
        return None
    guard = target.owner or target.parent or target
    return None if guard.kind is QueueKind.SYSTEM or guard.kind is QueueKind.OUTGOING else guard


_UNGUARDED: Final = SecurityDescriptor()  # grants everything
_TARGETS: Final = {
    QueueKind.PRIVATE: _T.QUEUE,
    QueueKind.PUBLIC: _T.QUEUE,
    QueueKind.SUBQUEUE: _T.SUBQUEUE,
    QueueKind.JOURNAL: _T.JOURNAL,
    QueueKind.CONNECTOR: _T.CONNECTOR,
    QueueKind.OUTGOING: _T.OUTGOING,
}
_parsed: Final = lru_cache(maxsize=1024)(SecurityDescriptor.parse)  # once for each descriptor, not for each open


def _kind_of(target: Subject) -> AccessTarget:
    if target is None:
        return AccessTarget.MACHINE
    if isinstance(target, Owned):
        return AccessTarget.OWNED
    if isinstance(target, DirectoryRecord):
        return AccessTarget.MACHINE if target.is_machine else AccessTarget.QUEUE
    if target.kind is QueueKind.SYSTEM:
        return AccessTarget.MACHINE_JOURNAL if target.number == SYSTEM_JOURNAL else AccessTarget.DEAD_LETTERS
    return _TARGETS[target.kind]


def _is_recorded(target: Subject, kind: AccessTarget, right: Right, allowed: bool) -> bool:
    """Whether a decision is recorded in the audit log by this module; see `auditing`."""
    if right is Right.RECEIVE:
        return kind in _ADMINISTRATIVE
    return not allowed or right in _ALONE or isinstance(target, DirectoryRecord)


def is_administrative(queue: Queue) -> bool:
    """Whether receiving from a queue is an administrative act: true for journals, system queues and outgoing queues."""
    return _kind_of(queue) in _ADMINISTRATIVE


def _name_of(target: Subject) -> str:
    if target is None:
        return "the queue manager"
    return target.properties.path_name if isinstance(target, Queue) else target.name
