"""The state of backups made through HTTP."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from openmsmq.actions.errors import ActionRefused


@dataclass(slots=True)
class BackupJob:
    """The running backup (one at a time) and the results of those that this process has made. Thread-safe.

    `directory` is where backups are written, empty if not configured; `outside` lists files that are not in the data
    directory.
    """

    directory: str = ""
    outside: Sequence[str] = ()
    running: str | None = None
    failed: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, name: str) -> None:
        """Raise ActionRefused if a backup is running."""
        with self._lock:
            if self.running is not None:
                raise ActionRefused(409, f"the backup {self.running} is already running; only one can run at a time")
            self.running = name

    def end(self, name: str, error: str | None) -> None:
        with self._lock:
            self.running = None
            if error is not None:
                self.failed[name] = error
