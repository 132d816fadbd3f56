"""Backups of the data directory, into the directory that the setting `backup_directory` names. For administrators."""

from __future__ import annotations

import json
import logging
import re
import shutil
import stat
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from openmsmq.actions.table import Input, Output
from openmsmq.admin.backup import FAILURES, MANIFEST, back_up
from openmsmq.console.backup_job import BackupJob
from openmsmq.console.problems import Problem
from openmsmq.console.recording import record
from openmsmq.console.table import HttpOperation, WebRequest

logger = logging.getLogger(__name__)

MOST: Final = 1000  # backups in the directory, beyond which none is made
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class BackupView(Output, frozen=True):
    """`state`: running; done, when it was read through and has its manifest; failed, with `error`, where this process
    knows why; unfinished, if it does not. `time` is when it began, `messages` those in it."""

    name: str
    state: Literal["running", "done", "failed", "unfinished"]
    time: str | None
    messages: int | None
    error: str | None


class BackupList(Output, frozen=True):
    """The newest first. `outside` are files that are not in the data directory, so not in any of them."""

    directory: str
    backups: list[BackupView]
    outside: list[str]
    command: str


class NewBackup(Input, frozen=True):
    """`name` of a new directory in the directory of backups; the time by default."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | None = None


def list_backups(asked: WebRequest) -> BackupList:
    directory = _directory(asked)
    making = asked.services.backups
    try:
        names = [path.name for path in directory.iterdir() if path.is_dir() and _NAME.fullmatch(path.name)]
    except OSError as error:
        remedy = "make it, and let the user of the daemon read and write it"
        raise Problem(503, f"backup_directory {directory}: {error.strerror}; {remedy}") from None
    found = sorted((_known(making, directory, name) for name in names), key=lambda each: each.time or "", reverse=True)
    return BackupList(str(directory), found, asked.services.settings.outside, f"openmsmq backup {directory}/NAME")


def start_backup(asked: WebRequest) -> BackupView:
    """It goes on by itself: a list says when it is done."""
    directory, services = _directory(asked), asked.services
    now = datetime.fromtimestamp(time.time(), UTC)
    name = asked.body.name or now.strftime("%Y-%m-%dT%H%M%SZ")
    if not _NAME.fullmatch(name):
        allowed = "letters, digits, dots, hyphens and underscores, the first of them a letter or digit"
        raise Problem(422, f"{name!r} is no name of a backup, which has {allowed}",
                      errors={"/name": "not a name of a backup"})  # fmt: skip
    target = directory / name
    if target.exists():
        raise Problem(409, f"{target} exists")
    if len(list_backups(asked).backups) >= MOST:
        raise Problem(409, f"{directory} holds {MOST} backups, which is the limit: remove some")
    _demand_room(Path(services.settings.data_dir), directory)
    services.backups.begin(name)
    try:
        record(asked, "backup.make", "backup", str(target))
        text = now.isoformat(timespec="seconds")
        threading.Thread(target=_make, args=(services.backups, services.settings.directory, target, text),
                         name="backup").start()  # fmt: skip
    except BaseException:
        services.backups.end(name, None)
        raise
    return BackupView(name, "running", None, None, None)


def _make(making: BackupJob, data_dir: Path, target: Path, text: str) -> None:
    error: str | None = "it was interrupted, see the log"
    try:
        done = back_up(data_dir, target, text)
        logger.info("backup %s: %d messages, %d bytes of the log", target, done.messages, done.bytes)
        error = None
    except FAILURES as caught:
        error = str(caught)
        logger.error("backup %s failed: %s", target, error)
    finally:
        making.end(target.name, error)


def _demand_room(data_dir: Path, directory: Path) -> None:
    """Raises Problem. What is written meanwhile needs room, too, so this is no promise."""
    needed = 0
    for path in data_dir.rglob("*"):
        with suppress(FileNotFoundError):  # segments come and go
            status = path.lstat()
            needed += status.st_size if stat.S_ISREG(status.st_mode) else 0
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise Problem(507, f"{directory} has {free >> 20} MB free, and a backup takes up to {(needed >> 20) + 1} MB")


def _known(making: BackupJob, directory: Path, name: str) -> BackupView:
    if making.running == name:
        return BackupView(name, "running", None, None, None)
    try:
        manifest = json.loads((directory / name / MANIFEST).read_text(encoding="utf-8"))
        return BackupView(name, "done", str(manifest["time"]), int(manifest["messages"]), None)
    except (OSError, ValueError, KeyError, TypeError):
        error = making.failed.get(name)
        return BackupView(name, "unfinished" if error is None else "failed", None, None, error)


def _directory(asked: WebRequest) -> Path:
    """Raises AccessDenied, Problem where there is none."""
    asked.services.demand_administrator(asked.caller)
    directory = asked.services.settings.backups
    if not directory:
        raise Problem(409, "the setting backup_directory is not set: it says where backups by HTTP go")
    return Path(directory)


OPERATIONS: Final = (
    HttpOperation("GET", "/backups", list_backups, "Backups that were made by HTTP", BackupList, statuses=(409,)),
    HttpOperation("POST", "/backups", start_backup, "Start a backup of the data directory", BackupView, body=NewBackup,
              status=202, statuses=(409, 507)),
)  # fmt: skip
