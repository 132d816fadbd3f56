"""Default security descriptors of queues and of the machine ([MS-MQDMPR] 3.1.7.1.3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from openmsmq.model import security
from openmsmq.model.constants import MachineAccessMask, QueueAccessMask
from openmsmq.model.security import SecurityDescriptor

#: Default rights of Everyone if the owner is a domain user ([MS-MQDMPR] 3.1.7.1.3.1); the owner gets all rights.
SEES: Final = int(QueueAccessMask.GET_QUEUE_PROPERTIES | QueueAccessMask.GET_QUEUE_PERMISSIONS)
#: Default rights of Everyone if the owner is not a domain user and the queue manager serves other machines (D-181).
SEES_AND_SENDS: Final = SEES | int(QueueAccessMask.WRITE_MESSAGE)


def default_queue_security(owner: str, everyone: int = int(QueueAccessMask.GENERIC_ALL)) -> SecurityDescriptor:
    """Return the descriptor of a queue that was created without an access control list. `everyone` is the mask for
    Everyone: all rights if the owner is not a domain user ([MS-MQDMPR] 3.1.7.1.3.1); otherwise the owner and
    administrators get all rights."""
    full = QueueAccessMask.GENERIC_ALL
    entries = [security.allow(security.EVERYONE, everyone), security.allow(security.LOCAL_SYSTEM, full)]
    if everyone != full:
        entries += [security.allow(owner, full), security.allow(security.ADMINISTRATORS, full)]
    return SecurityDescriptor(owner=owner, group=owner, dacl=tuple(entries))


READ_SYSTEM_QUEUES: Final = (
    MachineAccessMask.RECEIVE_DEADLETTER_MESSAGE | MachineAccessMask.RECEIVE_JOURNAL_QUEUE_MESSAGE
)


def default_machine_security(readers: Iterable[str] = ()) -> SecurityDescriptor:
    """Return the descriptor of the machine in workgroup mode: Everyone may create queues; only administrators and the
    system may change the machine. Deviation D-23 from [MS-MQDMPR] 3.1.7.1.3.1: the system queues contain messages of
    queues that a caller may not read, so only administrators and `readers` (SIDs) may read them."""
    everyone = MachineAccessMask.CREATE_QUEUE | MachineAccessMask.GET_MACHINE_PROPERTIES
    return SecurityDescriptor(
        owner=security.ADMINISTRATORS,
        group=security.ADMINISTRATORS,
        dacl=(
            security.allow(security.ADMINISTRATORS, MachineAccessMask.GENERIC_ALL),
            security.allow(security.LOCAL_SYSTEM, MachineAccessMask.GENERIC_ALL),
            security.allow(security.EVERYONE, everyone),
            *(security.allow(reader, READ_SYSTEM_QUEUES) for reader in readers),
        ),
    )
