"""The security descriptor of a machine. It is stored in a file of the data directory, because no published interface
transfers it without a directory service."""

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
    """The security descriptor of a queue manager. Its daemon applies a change within a second. `default` is used if
    there is no file. Methods raise PrivateFileError if the file is unusable."""

    rights: tuple[NamedRight, ...] = MACHINE_RIGHTS
    name: str = "the queue manager"

    def __init__(
        self,
        data_dir: Path,
        default: SecurityDescriptor,
        on_change: Callable[[str, str], object] = lambda before, after: None,
    ) -> None:
        """`on_change` is called before each change with the old and the new descriptor as SDDL."""
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
    """Return the cached file of a data directory; its value is None if the file does not exist."""
    return CachedFile(data_dir / MACHINE_FILE, lambda data: from_sddl(data.decode()).of_machine(), None)
