"""Backups of a data directory: into any directory, or, through HTTP, into the one named by `backup_directory`."""

from __future__ import annotations

import json
import logging
import re
import shutil
import stat
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from openmsmq.actions.background import BackgroundJob
from openmsmq.actions.backup_job import BackupJob
from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import CommandText, Text, doc
from openmsmq.actions.jobs import JobDetails
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Empty, Input, Job, Output, Rows, action
from openmsmq.admin.backup import FAILURES, MANIFEST, back_up, files_outside, verify

logger = logging.getLogger(__name__)

MOST: Final = 1000  # maximum number of backups in the directory
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_BY_HAND: Final = "one command makes backups and lists them"


class BackupView(Output, frozen=True):
    """A finished or running backup made through HTTP."""

    name: Annotated[str, doc("Its directory in the directory of backups.", "nightly")]
    state: Annotated[
        Literal["running", "done", "failed", "unfinished"],
        doc(
            "`done`: it was read through and has its manifest; `failed`: with `error`; `unfinished`: "
            "neither, and why is not known."
        ),
    ]
    time: Annotated[str | None, doc("When it began (UTC); null until it is done.", "2026-11-22T12:00:00")]
    messages: Annotated[int | None, doc("Number of messages in it; null until it is done.")]
    error: Annotated[str | None, doc("Why it failed; null if it did not.")]
    bytes: Annotated[int | None, doc("Size of its files; null until it is done.")] = None


class BackupList(Output, frozen=True):
    """Backups that were made through HTTP."""

    directory: Annotated[str, doc("The directory of backups.", "/var/backups/openmsmq")]
    backups: Annotated[list[BackupView], doc("The backups, the newest first.")]
    outside: Annotated[list[str], doc("Files outside of the data directory, which no backup contains.")]
    command: CommandText


class NewBackup(Input, frozen=True):
    """A backup to start."""

    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=100)] | None,
        doc("Name of a new directory in the directory of backups; the time by default.", "nightly"),
    ] = None  # fmt: skip


class NamedBackup(Input, frozen=True):
    """A backup in the directory of backups."""

    backup: Annotated[Text, doc("Its name.", "nightly")]


class MadeBackup(Output, frozen=True):
    """A finished backup. Unknown values are None."""

    where: str
    messages: int | None
    definitions: int | None
    segments: int | None
    bytes: int | None
    files: int | None
    outside: list[str]


@action(
    "backup.list", http="GET /backups", administrators=True, statuses=(409,),
    commands=(
        ActionCommand(
            "backup", by_hand=_BY_HAND,
            show=Rows(
                lambda found: found.backups, ("backup", "began", "messages", "bytes", "state", "error"),
                lambda each: [each.name, each.time or "", "" if each.messages is None else f"{each.messages:,}",
                              "" if each.bytes is None else f"{each.bytes:,}", each.state, each.error or ""],
            ),
        ),
    ),
)  # fmt: skip
def list_backups(site: ActionSite, given: Empty) -> BackupList:
    """List the backups that were made through HTTP."""
    directory = _directory(site)
    try:
        names = [path.name for path in directory.iterdir() if path.is_dir() and _NAME.fullmatch(path.name)]
    except OSError as error:
        remedy = "make it, and let the user of the daemon read and write it"
        raise ActionRefused(503, f"backup_directory {directory}: {error.strerror}; {remedy}") from None
    found = sorted((_known(site.backups, directory, name) for name in names), key=lambda each: each.time or "",
                   reverse=True)  # fmt: skip
    return BackupList(str(directory), found, list(site.backups.outside), f"openmsmq backup {directory}/NAME")


def _ended(started: BackupView, found: BackupList) -> MadeBackup | None:
    """Return the backup if it is finished; None while it is running. Raises ActionRefused if it failed."""
    where = f"{found.directory}/{started.name}"
    made = next((each for each in found.backups if each.name == started.name), None)
    if made is None or made.state not in ("running", "done"):
        reason = "it no longer exists" if made is None else made.error or f"it is {made.state}"
        raise ActionRefused(500, f"the backup {where} failed: {reason}")
    return MadeBackup(where, made.messages, None, None, None, None, found.outside) if made.state == "done" else None


@action(
    "backup.make", http="POST /backups", status=202, effect="changes", administrators=True,
    audit=("backup.make",), statuses=(409,), job=Job(list_backups, _ended),
    commands=(ActionCommand("backup", {"name": "[DIRECTORY]"}, by_hand=_BY_HAND),),
)  # fmt: skip
def start_backup(site: ActionSite, given: NewBackup) -> BackupView:
    """Start a backup of the data directory.

    It runs in the background; the list of backups shows when it is done.
    """
    directory = _directory(site)
    now = datetime.fromtimestamp(time.time(), UTC)
    name = given.name or now.strftime("%Y-%m-%dT%H%M%SZ")
    if not _NAME.fullmatch(name):
        allowed = "letters, digits, dots, hyphens and underscores, the first of them a letter or digit"
        raise ActionRefused(422, f"{name!r} is not a valid name of a backup, which has {allowed}", "/name")
    target = directory / name
    if target.exists():
        raise ActionRefused(409, f"{target} exists")
    if len(list_backups.run(site, Empty()).backups) >= MOST:
        raise ActionRefused(409, f"{directory} holds {MOST} backups, which is the limit: remove some")
    _demand_room(site.directory, directory)
    site.backups.begin(name)
    try:
        site.record("backup.make", "backup", str(target))
        job = site.jobs.begin(
            "backup", what="backup", object=str(target), user=site.caller.name, sid=site.caller.sid, origin=site.origin
        )
        text = now.isoformat(timespec="seconds")
        threading.Thread(target=_make, args=(site, job, target, text), name="backup").start()
    except BaseException:
        site.backups.end(name, None)
        raise
    return BackupView(name, "running", None, None, None)


@action(
    "backup.verify", http="POST /backups/{backup}/verify", status=202, effect="changes", administrators=True,
    audit=("backup.verify",), statuses=(409,),
    commands=(ActionCommand("backup", {"backup": "DIRECTORY"}, by_hand=_BY_HAND),),
)  # fmt: skip
def verify_backup(site: ActionSite, given: NamedBackup) -> JobDetails:
    """Start a job that reads a backup and compares each file with what was written.

    The state of the job shows whether the backup is intact; `detail` names a damaged file.
    """
    target = _directory(site) / given.backup
    if not _NAME.fullmatch(given.backup) or not target.is_dir():
        raise ActionRefused(404, f"there is no backup {given.backup[:100]}")
    job = site.jobs.begin(
        "backup", what="verify backup", object=str(target), user=site.caller.name, sid=site.caller.sid,
        origin=site.origin,
    )  # fmt: skip
    try:
        site.record("backup.verify", "backup", str(target))
    except BaseException:
        site.jobs.end(job, "failed", "the audit log could not be written")
        raise

    def work(job: BackgroundJob) -> None:
        done = verify(target)
        job.note(done=done.messages, total=done.messages, looked=done.messages)

    site.jobs.run(job, work, lambda view: None)
    return JobDetails(job.view, f"openmsmq backup --verify {target}")


def back_up_to(site: ActionSite, target: str, outside: Sequence[Path]) -> MadeBackup:
    """Copy the data directory into a new directory. Raises BackupError, StoreError, OSError, NoDataDirectory."""
    data_dir = site.data_dir
    done = back_up(data_dir, Path(target), datetime.now(UTC).isoformat(timespec="seconds"))
    site.record("backup.make", "backup", target, count=done.messages)
    others = files_outside(data_dir, outside)
    return MadeBackup(target, done.messages, done.definitions, done.segments, done.bytes, done.files, others)


def _make(site: ActionSite, job: BackgroundJob, target: Path, text: str) -> None:
    error: str | None = "it was interrupted, see the log"
    try:
        done = back_up(site.directory, target, text)
        job.note(done=done.messages, total=done.messages, looked=done.messages)
        logger.info("backup %s: %d messages, %d bytes of the log", target, done.messages, done.bytes)
        error = None
    except FAILURES as caught:
        error = str(caught)
        logger.error("backup %s failed: %s", target, error)
    finally:
        site.backups.end(target.name, error)
        site.jobs.end(job, "done" if error is None else "failed", error or "")


def _demand_room(data_dir: Path, directory: Path) -> None:
    """Check the free space. Raises ActionRefused if it is not sufficient. Data written during the backup also needs
    space, so success is not guaranteed.
    """
    needed = 0
    for path in data_dir.rglob("*"):
        with suppress(FileNotFoundError):  # segments come and go
            status = path.lstat()
            needed += status.st_size if stat.S_ISREG(status.st_mode) else 0
    free = shutil.disk_usage(directory).free
    if free < needed:
        shortage = f"{directory} has {free >> 20} MB free, and a backup takes up to {(needed >> 20) + 1} MB"
        raise ActionRefused(507, shortage)


def _known(making: BackupJob, directory: Path, name: str) -> BackupView:
    if making.running == name:
        return BackupView(name, "running", None, None, None)
    try:
        manifest = json.loads((directory / name / MANIFEST).read_text(encoding="utf-8"))
        size = sum(int(each["size"]) for each in manifest["files"].values())
        return BackupView(name, "done", str(manifest["time"]), int(manifest["messages"]), None, size)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        error = making.failed.get(name)
        return BackupView(name, "unfinished" if error is None else "failed", None, None, error)


def _directory(site: ActionSite) -> Path:
    """Return the directory of backups. Raises ActionRefused if none is configured."""
    if not site.backups.directory:
        raise ActionRefused(
            409, "the setting backup_directory is not set: set it to the directory for backups made through HTTP"
        )
    return Path(site.backups.directory)


def document_of(made: MadeBackup) -> dict[str, Any]:
    """Return the document that `backup --json` prints."""
    known = msgspec.structs.asdict(made)
    return {"backup": known.pop("where"), **known}


ACTIONS: Final = (list_backups, start_backup, verify_backup)
