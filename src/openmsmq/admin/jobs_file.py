"""The file with the background jobs of a daemon: running jobs and results of earlier ones."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from openmsmq.files.private import PrivateFileError, write_private

JOBS_FILE: Final = "jobs.json"  # in the data directory


class JobsFileError(PrivateFileError):
    """The file cannot be read or written; the message names it."""


def read_jobs(file: Path) -> bytes | None:
    """Return the contents of the file; None if it does not exist. Raises JobsFileError."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JobsFileError(f"{file}: {error.strerror}") from None


def write_jobs(file: Path, data: bytes) -> None:
    """Replace the contents of the file. Raises JobsFileError; the file is then unchanged."""
    write_private(file, data, error=JobsFileError)
