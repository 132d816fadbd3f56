"""The security descriptor of a machine: in a file of its data directory, because no published interface carries it
without a directory service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from openmsmq.files.private import CachedFile, write_private
from openmsmq.model.constants import SecurityInformation
from openmsmq.model.rights import MACHINE_RIGHTS, NamedRight
from openmsmq.model.sddl import from_sddl, to_sddl
from openmsmq.model.security import SecurityDescriptor

MACHINE_FILE: Final = "machine.sddl"


class MachineGuard:
    """Guard of a queue manager, whose daemon notices a change within a second; raises PrivateFileError for an unusable
    can't be used. `default` is what holds without a file."""

    rights: tuple[NamedRight, ...] = MACHINE_RIGHTS
    name: str = "the queue manager"

    def __init__(
        self,
        data_dir: Path,
        default: SecurityDescriptor,
        on_change: Callable[[str, str], object] = lambda before, after: None,
    ) -> None:
        """`on_change` gets the descriptor before and after as SDDL, before each change is written."""
        self._path = data_dir / MACHINE_FILE
        self._file = machine_file(data_dir)
        self._default = default
        self._on_change = on_change

    def read(self) -> SecurityDescriptor:
        return self._file.value() or self._default

    def write(self, descriptor: SecurityDescriptor, parts: SecurityInformation) -> None:
        before = self.read()
        merged = before.merge(descriptor, parts)
        self._on_change(to_sddl(before), to_sddl(merged))
        write_private(self._path, (to_sddl(merged) + "\n").encode())


def machine_file(data_dir: Path) -> CachedFile[SecurityDescriptor | None]:
    """Read the file of a data directory; None without one."""
    return CachedFile(data_dir / MACHINE_FILE, lambda data: from_sddl(data.decode()), None)
