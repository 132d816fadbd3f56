"""Administration in the data directory of a daemon, which may run meanwhile and notices changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from openmsmq.admin import backup, data_directories
from openmsmq.admin.administration.interface import BackupInfo
from openmsmq.admin.audit import AuditRecorder


@dataclass(frozen=True, slots=True)
class AdminFiles:
    """Where a daemon has its files. `others` may be outside of the data directory."""

    data_dir: Path
    others: tuple[Path, ...]


class DataDirectory:
    """Raises BackupError and StoreError, OSError, ValueError; NoDataDirectory for a directory that is none."""

    def __init__(self, files: AdminFiles, record: AuditRecorder) -> None:
        self._files: Final = files
        self._record: Final = record

    @property
    def _data_dir(self) -> Path:
        """Raises NoDataDirectory."""
        return data_directories.demand(self._files.data_dir)

    # -- backup ----------------------------------------------------------------------------------------------------

    def back_up(self, target: str) -> BackupInfo:
        """`target` is a new directory."""
        files = self._files
        done = backup.back_up(self._data_dir, Path(target), datetime.now(UTC).isoformat(timespec="seconds"))
        self._record("backup.make", "backup", target, count=done.messages)
        inside = self._data_dir.resolve()
        outside = [str(path) for path in files.others if path.exists() and inside not in path.resolve().parents]
        return BackupInfo(target, done.messages, done.definitions, done.segments, done.bytes, done.files, outside)
