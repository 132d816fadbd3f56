"""Who may do what: callers, and the default security descriptors ([MS-MQDMPR] 3.1.7.1.3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from openmsmq.model import security
from openmsmq.model.constants import MachineAccessMask, QueueAccessMask
from openmsmq.model.errors import AccessDenied
from openmsmq.model.security import SecurityDescriptor


@dataclass(frozen=True, slots=True)
class Caller:
    """`sid` identifies the caller; `sids` is everything access is checked against."""

    sid: str
    sids: frozenset[str]
    name: str = ""

    @classmethod
    def anonymous(cls) -> Caller:
        """An unauthenticated caller. Everyone includes it: whoever accepts anonymous callers wants to serve them."""
        return cls(security.ANONYMOUS, frozenset([security.ANONYMOUS, security.EVERYONE]), "anonymous")

    @classmethod
    def user(cls, sid: str, name: str = "") -> Caller:
        return cls(sid, frozenset([sid, security.EVERYONE, security.AUTHENTICATED_USERS]), name)

    def as_administrator(self) -> Caller:
        """The same caller as a member of Administrators."""
        return replace(self, sids=self.sids | {security.ADMINISTRATORS})


# The queue manager itself, for what it does on its own account.
SYSTEM = Caller(security.LOCAL_SYSTEM, frozenset([security.LOCAL_SYSTEM, security.ADMINISTRATORS]), "system")


def default_queue_security(owner: str) -> SecurityDescriptor:
    """No directory, so the owner is not a domain user: Everyone gets MQSEC_QUEUE_GENERIC_ALL."""
    return SecurityDescriptor(
        owner=owner,
        group=owner,
        dacl=(
            security.allow(security.EVERYONE, QueueAccessMask.GENERIC_ALL),
            security.allow(security.LOCAL_SYSTEM, QueueAccessMask.GENERIC_ALL),
        ),
    )


def default_machine_security(readers: Iterable[str] = ()) -> SecurityDescriptor:
    """Workgroup mode: Everyone may create queues; only the system changes the machine. Deviation D-23 from
    [MS-MQDMPR] 3.1.7.1.3.1: the system queues hold messages of queues that a caller may not read, so administrators
    read them, and `readers` (SIDs)."""
    everyone = MachineAccessMask.CREATE_QUEUE | MachineAccessMask.GET_MACHINE_PROPERTIES
    reading = MachineAccessMask.RECEIVE_DEADLETTER_MESSAGE | MachineAccessMask.RECEIVE_JOURNAL_QUEUE_MESSAGE
    return SecurityDescriptor(
        owner=security.ADMINISTRATORS,
        group=security.ADMINISTRATORS,
        dacl=(
            security.allow(security.ADMINISTRATORS, MachineAccessMask.GENERIC_ALL),
            security.allow(security.LOCAL_SYSTEM, MachineAccessMask.GENERIC_ALL),
            security.allow(security.EVERYONE, everyone),
            *(security.allow(reader, reading) for reader in readers),
        ),
    )


def demand(descriptor: SecurityDescriptor, caller: Caller, wanted: int, what: str) -> None:
    """Raise AccessDenied, naming the caller, what was wanted and on what, unless it is granted."""
    if not descriptor.grants(caller.sids, wanted):
        raise AccessDenied(detail=f"{caller.name or caller.sid} lacks 0x{wanted:08x} on {what}")
