"""The security descriptor of the queue manager: from a file in the data directory, or the default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from openmsmq.accounts.users import UsersFile
from openmsmq.admin.machine_guard import machine_file
from openmsmq.files.private import PrivateFileError
from openmsmq.model import security
from openmsmq.model.constants import QueueAccessMask
from openmsmq.model.default_descriptors import READ_SYSTEM_QUEUES, SEES, SEES_AND_SENDS, default_machine_security
from openmsmq.model.security import SecurityDescriptor
from openmsmq.server.config import Configuration, ConfigurationError
from openmsmq.server.domain_names import names_of_domain

_OF_A_DOMAIN = "S-1-5-21-"  # or of this machine


class MachineSecurity:
    """The current security descriptor. `readers`, the SIDs of `system_queue_readers`, are added to the one in the
    file."""

    def __init__(self, data_dir: Path, readers: Sequence[str]) -> None:
        """Raises PrivateFileError if the file can't be read, because the default might grant what the file denies."""
        self._file = machine_file(data_dir)
        self._readers = tuple(readers)
        self._descriptor = self._read()

    def add_reader(self, sid: str) -> None:
        """Add a reader whose name was resolved later."""
        self._readers = (*self._readers, sid)

    def current(self) -> SecurityDescriptor:
        """Return the descriptor. If the file has become unreadable, the last one stays in force, and an error is logged
        once."""
        with suppress(PrivateFileError):
            self._descriptor = self._read()
        return self._descriptor

    def _read(self) -> SecurityDescriptor:
        given = self._file.value() or default_machine_security()
        if given.dacl is None:
            return given
        mask = int(READ_SYSTEM_QUEUES)
        return replace(given, dacl=(*given.dacl, *(security.allow(reader, mask) for reader in self._readers)))


def reader_names(configuration: Configuration) -> list[str]:
    """Return the names in `system_queue_readers`."""
    return [name for part in configuration.system_queue_readers.split(",") if (name := part.strip())]


def readers_of(configuration: Configuration) -> list[str]:
    """Return the SIDs of `system_queue_readers` without domain accounts. Raises ConfigurationError for an unknown
    user."""
    users = UsersFile(configuration.users_path)
    readers = []
    names = reader_names(configuration)
    of_domain = names_of_domain(configuration, names)
    for name in names:
        if name in of_domain:
            continue
        sid = security.WELL_KNOWN.get(name.lower())
        if sid is None and name.upper().startswith("S-1-"):
            sid = name.upper()
        if sid is None:
            sid = users.sid_of(name)
            if sid is None:
                allowed = ", ".join(security.WELL_KNOWN)
                raise ConfigurationError(
                    f"system_queue_readers: unknown user {name!r}; allowed: users, groups, SIDs and {allowed}"
                )
        readers.append(sid)
    return readers


def everyones_access(configuration: Configuration, users: UsersFile) -> Callable[[str], int]:
    """Return a function from an owner's SID to the rights of Everyone on that owner's new queues, by the setting
    new_queue_access (deviation D-181)."""

    def of(owner: str) -> int:
        everything = int(QueueAccessMask.GENERIC_ALL)
        if configuration.new_queue_access == "everyone":
            return everything
        if owner.startswith(_OF_A_DOMAIN) and not users.is_own(owner):
            return SEES
        if configuration.new_queue_access == "auto" and configuration.on_loopback:
            return everything
        return SEES_AND_SENDS

    return of
