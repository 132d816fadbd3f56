"""Which backup is being made."""

from __future__ import annotations

import threading
from typing import Final

from openmsmq.console.problems import Problem


class BackupJob:
    """The one backup that is made at a time, and how those ended that this process has made. Threads share it."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self.running: str | None = None
        self.failed: Final[dict[str, str]] = {}

    def begin(self, name: str) -> None:
        """Raises Problem while another one is made."""
        with self._lock:
            if self.running is not None:
                raise Problem(409, f"the backup {self.running} is being made, and there is one at a time")
            self.running = name

    def end(self, name: str, error: str | None) -> None:
        with self._lock:
            self.running = None
            if error is not None:
                self.failed[name] = error
