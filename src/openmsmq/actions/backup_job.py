"""Which backup is being made by HTTP."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from openmsmq.actions.errors import ActionRefused


@dataclass(slots=True)
class BackupJob:
    """The one backup that is made at a time, and how those ended that this process has made. Threads share it.

    `directory` is where backups go, empty for nowhere; `outside` are files that are not in the data directory.
    """

    directory: str = ""
    outside: Sequence[str] = ()
    running: str | None = None
    failed: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, name: str) -> None:
        """Raises ActionRefused while another one is made."""
        with self._lock:
            if self.running is not None:
                raise ActionRefused(409, f"the backup {self.running} is being made, and there is one at a time")
            self.running = name

    def end(self, name: str, error: str | None) -> None:
        with self._lock:
            self.running = None
            if error is not None:
                self.failed[name] = error
