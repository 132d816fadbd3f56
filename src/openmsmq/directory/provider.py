"""The seam to a directory: what it keeps, what it is asked, and how it fails.

The objects are those of [MS-MQDMPR] that extend DirectoryObject, with the attributes that are published; the operations
stand for the events of 3.1.7.1.18 to 3.1.7.1.24, one for each use of them. A directory may be on another machine: every
operation is asynchronous, may take long, and may fail with `DirectoryNotConnected`.

Who may do what is decided twice. The queue manager checks its caller by the descriptors that the records carry, before
it asks; a directory with rights of its own then checks the queue manager, and refuses with `DirectoryDenied`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from openmsmq.directory.lookup import Filter
from openmsmq.model.constants import INFINITE


class DirectoryError(Exception):
    """An operation on the directory failed; the text says on what. DirectoryOperationResult of [MS-MQDMPR] 3.1.1.17."""


class DirectoryNotConnected(DirectoryError):
    """DirectoryNotConnected: the directory can't be reached, or has not answered in time."""


class ObjectNotFound(DirectoryError):
    """ObjectNotFound: no object has this identifier or name."""


class ObjectExists(DirectoryError):
    """ObjectAlreadyExists: another object has this name."""


class DirectoryDenied(DirectoryError):
    """AccessDenied: the directory does not let the queue manager do it."""


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
        position: where the queue stands among all in the order of creation, larger for later ones, never 0.
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
    """User, [MS-MQDMPR] 3.1.1.15. `sid` in the form S-1-... `groups` are the SIDs of the groups that the directory has
    the user in, also by way of groups; a directory without groups knows none."""

    sid: str
    certificates: tuple[Certificate, ...] = ()
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ListRecord:
    """A distribution list ([MS-MQMQ] 2.1.5). `members` are format names of single queues, or DL= of further lists."""

    identifier: UUID
    name: str
    members: tuple[str, ...] = ()


class DirectoryProvider(Protocol):
    """A directory. Every method raises DirectoryAway, and DirectoryDenied where something is changed. Names are
    compared without regard to case."""

    async def close(self) -> None:
        """Nothing more is asked. Raises nothing."""

    # -- machines ----------------------------------------------------------------------------------------------

    async def register_machine(self, record: MachineRecord) -> None:
        """Create the object of a queue manager, or bring it up to date; empty keys leave what is there. Raises
        ObjectExists where another queue manager has the computer name."""

    async def machine(self, identifier: UUID) -> MachineRecord:
        """Raises ObjectNotFound."""

    async def machine_named(self, name: str) -> MachineRecord:
        """By computer name or DNS name. Raises ObjectNotFound."""

    async def machines(self) -> Sequence[MachineRecord]:
        """All, by name."""

    async def remove_machine(self, identifier: UUID) -> None:
        """With the records of its queues. Raises ObjectNotFound."""

    # -- queues ------------------------------------------------------------------------------------------------

    async def create_queue(self, record: QueueRecord) -> QueueRecord:
        """Create Directory Object. Returns the record with what the directory gives: identifier (where it draws its
        own) and position. Raises ObjectExists, and ObjectNotFound for a machine that it does not know."""

    async def queue(self, identifier: UUID) -> QueueRecord:
        """Raises ObjectNotFound."""

    async def queue_at(self, path_name: str) -> QueueRecord:
        """By its path name, with the computer name or a DNS name of its machine. Raises ObjectNotFound."""

    async def find_queues(self, filters: Sequence[Filter], after: int, limit: int) -> Sequence[QueueRecord]:
        """Read Directory Begin and Next: the queues that satisfy all `filters` and were created after that position, in
        the order of creation, at most `limit`."""

    async def update_queue(self, identifier: UUID, changes: Mapping[str, Any]) -> QueueRecord:
        """Write Directory: `changes` by attribute of QueueRecord. Returns the new record. Raises ObjectNotFound."""

    async def delete_queue(self, identifier: UUID) -> None:
        """Delete Directory Object. Raises ObjectNotFound."""

    async def directory_path(self, identifier: UUID) -> str:
        """Queue.DirectoryPath, as `LDAP://CN=orders,CN=msmq,…`; empty where queues have none. Raises ObjectNotFound."""

    async def format_name_at(self, directory_path: str) -> str:
        """Get Queue Format Name from ADsPath ([MC-MQAC] 3.12.6.1): of a queue, an alias or a distribution list. Raises
        ObjectNotFound."""

    async def deleted_queues(self, machine: UUID) -> Sequence[UUID]:
        """The queues of a machine that were deleted and whose end it has not confirmed by `confirm_deletion`: others
        may delete them while the machine is unreachable."""

    async def confirm_deletion(self, identifier: UUID) -> None:
        """The machine that hosted a deleted queue has dropped it."""

    # -- users -------------------------------------------------------------------------------------------------

    async def user(self, sid: str) -> UserRecord:
        """A user without certificates is not known to every directory. Raises ObjectNotFound."""

    async def user_with_certificate(self, digest: bytes) -> UserRecord:
        """By an element of User.CertificateDigestList. Raises ObjectNotFound."""

    async def add_certificate(self, sid: str, certificate: Certificate) -> None:
        """Add to User.Certificates, in place of one with the same digest."""

    async def remove_certificate(self, sid: str, digest: bytes) -> None:
        """Raises ObjectNotFound."""

    # -- distribution lists ------------------------------------------------------------------------------------

    async def create_list(self, name: str, members: Sequence[str]) -> ListRecord:
        """Raises ObjectExists."""

    async def distribution_list(self, identifier: UUID) -> ListRecord:
        """Raises ObjectNotFound."""

    async def distribution_lists(self) -> Sequence[ListRecord]:
        """All, by name."""

    async def set_members(self, identifier: UUID, add: Sequence[str], remove: Sequence[str]) -> ListRecord:
        """Format names that are members already, or are none, change nothing. Raises ObjectNotFound."""

    async def remove_list(self, identifier: UUID) -> None:
        """Raises ObjectNotFound."""
