"""The interface to a directory: its objects, operations and errors.

The objects are those of [MS-MQDMPR] that extend DirectoryObject, with their published attributes. The operations
correspond to the events of 3.1.7.1.18 to 3.1.7.1.24, one for each use. A directory may be on another machine, so every
operation is asynchronous, may take long, and may fail with `DirectoryNotConnected`.

Access is checked twice. First, the queue manager checks its caller against the security descriptors in the records.
Then, a directory with its own rights checks the queue manager and refuses with `DirectoryDenied`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from openmsmq.directory.lookup import Filter
from openmsmq.model.constants import INFINITE


class DirectoryError(Exception):
    """An operation on the directory failed; the message names the object. DirectoryOperationResult of [MS-MQDMPR]
    3.1.1.17."""


class DirectoryNotConnected(DirectoryError):
    """DirectoryNotConnected: the directory cannot be reached or has not answered in time."""


class ObjectNotFound(DirectoryError):
    """ObjectNotFound: no object has this identifier or name."""


class ObjectExists(DirectoryError):
    """ObjectAlreadyExists: another object has this name."""


class DirectoryDenied(DirectoryError):
    """AccessDenied: the directory refuses the operation to the queue manager."""


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """QueueManager, [MS-MQDMPR] 3.1.1.1. `public_keys` is PublicEncryptionKeyList and `signing_keys`
    PublicSigningKeyList, both MQDSPUBLICKEYS ([MS-MQMQ] 2.2.2) or empty. `security` is a self-relative descriptor with
    rights of MQQMACCESSMASK."""

    identifier: UUID
    computer_name: str
    dns_names: tuple[str, ...] = ()
    public_keys: bytes = b""
    signing_keys: bytes = b""
    security: bytes = b""


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """Queue, [MS-MQDMPR] 3.1.1.2, of type Public. Quotas are in kilobytes, times in seconds since 1970 UTC; `security`
    is a self-relative descriptor with rights of MQQUEUEACCESSMASK.

    Attributes:
        machine: the identifier of the queue manager that hosts the queue.
        path_name: the computer name of that machine, a backslash, and the name of the queue.
        position: position in the creation order of all queues; increases, never 0.
    """

    identifier: UUID
    machine: UUID
    path_name: str
    position: int = 0
    type: UUID = UUID(int=0)
    label: str = ""
    journaling: bool = False
    quota: int = INFINITE
    journal_quota: int = INFINITE
    base_priority: int = 0
    authentication: bool = False
    privacy_level: int = 1
    transactional: bool = False
    multicast_address: str = ""
    create_time: int = 0
    modify_time: int = 0
    security: bytes = b""


@dataclass(frozen=True, slots=True)
class Certificate:
    """MQUSERSIGNCERT, [MS-MQMQ] 2.2.22. `digest` is the MD5 hash of `encoded`, an X.509 certificate in DER."""

    digest: bytes
    identifier: UUID
    encoded: bytes


@dataclass(frozen=True, slots=True)
class UserRecord:
    """User, [MS-MQDMPR] 3.1.1.15. `sid` in the form S-1-... `groups` are the SIDs of the user's groups, including
    nested ones; empty if the directory has no groups."""

    sid: str
    certificates: tuple[Certificate, ...] = ()
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ListRecord:
    """A distribution list ([MS-MQMQ] 2.1.5). `members` are format names of single queues, or DL= names of other
    lists."""

    identifier: UUID
    name: str
    members: tuple[str, ...] = ()


class DirectoryProvider(Protocol):
    """A directory. Every method raises DirectoryNotConnected; changes also raise DirectoryDenied. Names are
    case-insensitive."""

    async def close(self) -> None:
        """Close connections. No calls may follow. Raises nothing."""

    # -- machines ----------------------------------------------------------------------------------------------

    async def register_machine(self, record: MachineRecord) -> None:
        """Create or update the object of a queue manager; empty keys leave the stored ones unchanged. Raises
        ObjectExists if another queue manager has the computer name."""

    async def machine(self, identifier: UUID) -> MachineRecord:
        """Return a machine by identifier. Raises ObjectNotFound."""

    async def machine_named(self, name: str) -> MachineRecord:
        """Return a machine by computer name or DNS name. Raises ObjectNotFound."""

    async def machines(self) -> Sequence[MachineRecord]:
        """Return all machines, sorted by name."""

    async def remove_machine(self, identifier: UUID) -> None:
        """Remove a machine and the records of its queues. Raises ObjectNotFound."""

    # -- queues ------------------------------------------------------------------------------------------------

    async def create_queue(self, record: QueueRecord) -> QueueRecord:
        """Create Directory Object. Returns the record with the position, and possibly a new identifier, assigned by the
        directory. Raises ObjectExists, and ObjectNotFound for an unknown machine."""

    async def queue(self, identifier: UUID) -> QueueRecord:
        """Return a queue by identifier. Raises ObjectNotFound."""

    async def queue_at(self, path_name: str) -> QueueRecord:
        """Return a queue by path name, with the computer name or a DNS name of its machine. Raises ObjectNotFound."""

    async def find_queues(self, filters: Sequence[Filter], after: int, limit: int) -> Sequence[QueueRecord]:
        """Read Directory Begin and Next: return at most `limit` queues that satisfy all `filters` and were created
        after the position `after`, in the order of creation."""

    async def update_queue(self, identifier: UUID, changes: Mapping[str, Any]) -> QueueRecord:
        """Write Directory: set attributes of QueueRecord. Returns the new record. Raises ObjectNotFound."""

    async def delete_queue(self, identifier: UUID) -> None:
        """Delete Directory Object. Raises ObjectNotFound."""

    async def directory_path(self, identifier: UUID) -> str:
        """Return Queue.DirectoryPath, such as `LDAP://CN=orders,CN=msmq,…`; empty if queues have none. Raises
        ObjectNotFound."""

    async def format_name_at(self, directory_path: str) -> str:
        """Return the format name of a queue, an alias or a distribution list by its ADsPath ([MC-MQAC] 3.12.6.1).
        Raises ObjectNotFound."""

    async def deleted_queues(self, machine: UUID) -> Sequence[UUID]:
        """Return the deleted queues of a machine whose deletion it has not confirmed by `confirm_deletion`: they can be
        deleted in the directory while the machine is unreachable."""

    async def confirm_deletion(self, identifier: UUID) -> None:
        """Confirm that the machine that hosted a deleted queue has removed it."""

    # -- users -------------------------------------------------------------------------------------------------

    async def user(self, sid: str) -> UserRecord:
        """Return a user by SID. Some directories know only users with certificates. Raises ObjectNotFound."""

    async def add_certificate(self, sid: str, certificate: Certificate) -> None:
        """Add a certificate to User.Certificates; it replaces one with the same digest."""

    async def remove_certificate(self, sid: str, digest: bytes) -> None:
        """Remove a certificate from User.Certificates. Raises ObjectNotFound."""

    # -- distribution lists ------------------------------------------------------------------------------------

    async def create_list(self, name: str, members: Sequence[str]) -> ListRecord:
        """Create a distribution list. Raises ObjectExists."""

    async def distribution_list(self, identifier: UUID) -> ListRecord:
        """Return a distribution list by identifier. Raises ObjectNotFound."""

    async def distribution_lists(self) -> Sequence[ListRecord]:
        """Return all distribution lists, sorted by name."""

    async def set_members(self, identifier: UUID, add: Sequence[str], remove: Sequence[str]) -> ListRecord:
        """Add and remove members; existing members to add and missing ones to remove are ignored. Raises
        ObjectNotFound."""

    async def remove_list(self, identifier: UUID) -> None:
        """Remove a distribution list. Raises ObjectNotFound."""
