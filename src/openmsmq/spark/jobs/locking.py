"""Locks of directories on any file system that Spark supports: files that name the process that holds them.

A lock file stays if its process crashes. On the same machine, the next process detects that and replaces the lock.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from openmsmq.spark.jobs.files import ArchiveFiles
from openmsmq.spark.jobs.session import PipelineError

logger = logging.getLogger(__name__)


@contextmanager
def locked(
    files: ArchiveFiles, name: str, refused: Callable[[str], PipelineError], *, takes_over: bool = False
) -> Iterator[None]:
    """Hold a lock.

    Args:
        files: the directory with the lock.
        name: name of the lock file.
        refused: makes the error from the rest of its sentence: who holds the lock, and what to do if nobody does.
        takes_over: replace the lock of another machine, whose process may have ended without removing it. Only for work
            that fails if it is overtaken.

    Raises:
        PipelineError: another process holds the lock, or another thread of this one.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    pid = os.getpid()
    own = json.dumps({"host": socket.gethostname(), "pid": pid, "since": now, "start": _start_of(pid)})
    while not files.create(name, own):
        _remove_stale(files, name, refused, takes_over)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):  # removed by mistake, or taken over
            if files.read(name) == own:
                files.delete(name)


def _remove_stale(files: ArchiveFiles, name: str, refused: Callable[[str], PipelineError], takes_over: bool) -> None:
    """Remove the lock if its process has ended. A second lock, whose name depends on the contents of the first one, is
    held meanwhile: otherwise, a process that has read the stale lock could remove the next one. Raises the error of
    `refused`."""
    with suppress(FileNotFoundError):  # removed by its process
        held = files.read(name)
        holder, has_ended = _holder_of(held)
        if has_ended is None and takes_over:
            logger.warning("%s is taken over from %s; if that one still runs, it fails", files.path(name), holder)
            has_ended = True
        removing = f"{name}-{hashlib.sha256(held.encode()).hexdigest()[:16]}"
        if not has_ended or not files.create(removing, ""):
            raise refused(
                f"{holder}; if it is not, remove {files.path(name)} and, if it exists, {files.path(removing)}"
            )
        try:
            if files.read(name) == held:
                files.delete(name)
        finally:
            files.delete(removing)


def _holder_of(lock: str) -> tuple[str, bool | None]:
    """Return the process that holds the lock, and whether it has ended: None for one of another machine."""
    try:
        holder = json.loads(lock)
        named = f"process {holder['pid']} of {holder['host']} since {holder['since']}"
        if holder["host"] != socket.gethostname():
            return named, None
        start = _start_of(holder["pid"])
        return named, not start or start != holder.get("start", start)
    except (ValueError, KeyError, TypeError):
        return "a process that has not written its name into the lock", False


def _start_of(pid: int) -> str:
    """Return when a process of this machine was started, as the boot and the clock ticks since; empty for a process
    that has ended. After a restart of a container or of the machine, another process may have the same identifier."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    return f"{boot} {status.rpartition(')')[2].split()[19]}"  # after the name, which may have spaces
