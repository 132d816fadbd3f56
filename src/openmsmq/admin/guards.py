"""Access to security descriptors, regardless of where they are stored. That of a queue is stored by its queue
manager."""

from __future__ import annotations

from typing import Protocol

from openmsmq.client.sync import QueueManager
from openmsmq.model.constants import SecurityInformation
from openmsmq.model.rights import QUEUE_RIGHTS, NamedRight
from openmsmq.model.security import SecurityDescriptor


class Guard(Protocol):
    """A security descriptor that can be read and changed."""

    name: str
    rights: tuple[NamedRight, ...]

    def read(self) -> SecurityDescriptor: ...

    def write(self, descriptor: SecurityDescriptor, parts: SecurityInformation) -> None: ...


class QueueGuard:
    """The security descriptor of a queue. Methods raise MsmqError."""

    rights: tuple[NamedRight, ...] = QUEUE_RIGHTS

    def __init__(self, qm: QueueManager, name: str) -> None:
        self._qm, self.name = qm, name

    def read(self) -> SecurityDescriptor:
        return SecurityDescriptor.parse(self._qm.security(self.name))

    def write(self, descriptor: SecurityDescriptor, parts: SecurityInformation) -> None:
        self._qm.set_security(self.name, descriptor.pack(), parts)
