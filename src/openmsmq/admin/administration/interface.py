"""What an administrator asks for beside queues, wherever it is done."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class BackupInfo(NamedTuple):
    """One that is made. `where` is its directory; what is not known is None; `outside` are files that are not in the
    data directory, so not in the backup."""

    where: str
    messages: int | None
    definitions: int | None
    segments: int | None
    bytes: int | None
    files: int | None
    outside: list[str]


class AdminOperations(Protocol):
    """A daemon, as its administrators see it. Each operation raises what the place where it is done raises: errors of
    the files of a data directory, or `ApiError`."""

    def back_up(self, target: str) -> BackupInfo:
        """Make a backup, and wait until it is made. `target` is what the place calls it."""
