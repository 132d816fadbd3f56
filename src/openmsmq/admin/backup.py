"""Backups of a data directory, also while its daemon runs, and restoring them.

A backup is a directory like a data directory, plus a manifest that is written last: without it, the backup is
incomplete. `store.copying` copies the log, and SQLite copies the directory of public queues. Every other file is
written atomically, so that one read returns consistent contents.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from openmsmq.accounts.login_links import LINK_FILE
from openmsmq.admin.jobs_file import JOBS_FILE
from openmsmq.admin.web_address import ADDRESS_FILE
from openmsmq.files.private import PrivateFileError, write_private
from openmsmq.store import OsVfs, StoreError, fsck
from openmsmq.store.copying import Copied, copy_log, naming
from openmsmq.store.incarnation import RESTORED, RESTORING
from openmsmq.store.ownership import is_of_store, log_directory

MANIFEST: Final = "backup.json"
STORE: Final = "store"
FORMAT: Final = 1
_DATABASES: Final = (".sqlite",)
#: Prefixes of files that are not copied: repair reports, logs, temporary files, login links (they would work twice),
#: and files that concern only this machine.
_NOT_COPIED: Final = ("quarantine-", "audit", ".", LINK_FILE, JOBS_FILE, ADDRESS_FILE)
_PIECE: Final = 1 << 20
#: Directory in the root of an ext4 file system. It is not part of a data directory or backup.
_LOST_AND_FOUND: Final = "lost+found"


class BackupError(Exception):
    """The backup or its target is not usable; the message says why."""


#: Errors of a backup.
FAILURES: Final = (BackupError, StoreError, PrivateFileError, OSError)


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """Contents of a backup: recoverable and transactional messages, definitions of queues and other objects, segments
    of the log with their size in bytes, and the number of other files."""

    messages: int
    definitions: int
    segments: int
    bytes: int
    files: int


def back_up(data_dir: Path, target: Path, time: str) -> BackupSummary:
    """Copy a data directory into an empty or new directory, and verify the copy.

    Args:
        time: time of the backup, for the manifest.

    Raises:
        BackupError: the target is in use or in the data directory, or the copy is damaged.
        StoreError, OSError: as `copy_log`; the target is empty again.
    """
    if target.resolve().is_relative_to(data_dir.resolve()):
        raise BackupError(f"{target} is in the data directory, of which backups are made: choose a directory elsewhere")
    if (data_dir / RESTORING).exists():
        raise BackupError(f"{data_dir}: the restore of a backup was interrupted, so it is incomplete")
    _make_empty(target)
    log = Path(log_directory(OsVfs(), str(data_dir / STORE)))
    if not log.is_dir():
        raise BackupError(f"{data_dir} holds no store")
    with _emptied_on_failure(target):
        copied = _copy_all(data_dir, log, target)
    report = fsck.verify(str(target / STORE))
    if not report.clean:
        raise BackupError(f"the log is damaged: {report.damages[0]}; `openmsmq fsck` with the daemon stopped says more")
    files = {name: _checked(target / name) for name in sorted(_all(target))}
    manifest = {
        "format": FORMAT, "time": time, "end": copied.end, "messages": report.messages,
        "definitions": report.definitions, "files": files,
    }  # fmt: skip
    write_private(target / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    others = len(files) - len(copied.segments)
    return BackupSummary(report.messages, report.definitions, len(copied.segments), copied.length, others)


def _copy_all(data_dir: Path, log: Path, target: Path) -> Copied:
    (target / STORE).mkdir(mode=0o700)
    copied = copy_log(log, target / STORE)
    for name in _others(data_dir):
        (target / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if Path(name).suffix in _DATABASES:
            _copy_database(data_dir / name, target / name)
        else:
            with suppress(FileNotFoundError):  # the daemon has deleted it since it was listed
                _copy_file(data_dir / name, target / name)
    return copied


def restore(backup: Path, data_dir: Path) -> BackupSummary:
    """Restore a backup into a data directory. If root restores, the files get the owner of the directory.

    Raises BackupError if the backup is incomplete or modified, or if the directory already contains a store; OSError,
    after which the directory is empty again.
    """
    manifest = _verified(backup)
    _make_empty(data_dir)
    with _emptied_on_failure(data_dir):
        write_private(
            data_dir / RESTORING, b"A restore has begun and not ended: empty the directory, and restore again.\n"
        )
        for name in manifest["files"]:
            (data_dir / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _copy_file(backup / name, data_dir / name)
        write_private(data_dir / RESTORED, f"{secrets.token_hex(16)}\n".encode())
        _give_to_owner(data_dir)
        (data_dir / RESTORING).unlink()
    return _summary(manifest)


def verify(backup: Path) -> BackupSummary:
    """Read and check all files of a backup. Raises BackupError if it is incomplete or modified; OSError."""
    return _summary(_verified(backup))


def _verified(backup: Path) -> dict[str, Any]:
    """Check the files of a backup against its manifest, and return the manifest. Raises BackupError, OSError."""
    manifest = _manifest(backup)
    for name, expected in manifest["files"].items():
        if not (backup / name).is_file() or _checked(backup / name) != expected:
            raise BackupError(f"{backup / name} is not as the backup wrote it")
    return manifest


def _summary(manifest: dict[str, Any]) -> BackupSummary:
    segments = [name for name in manifest["files"] if name.startswith(f"{STORE}/segment-")]
    size = sum(manifest["files"][name]["size"] for name in segments)
    return BackupSummary(
        manifest["messages"], manifest["definitions"], len(segments), size, len(manifest["files"]) - len(segments)
    )


def _manifest(backup: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((backup / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise BackupError(f"{backup} has the format {manifest['format']!r}, known is {FORMAT}")
        for name in manifest["files"]:
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise BackupError(f"{backup / MANIFEST} names {name!r}, which is outside of the backup")
    except FileNotFoundError:
        raise BackupError(f"{backup} has no {MANIFEST}: not a backup, or an unfinished one") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupError(f"{backup / MANIFEST} can't be read: {error!r}") from error
    return dict(manifest)


def _make_empty(directory: Path) -> None:
    """Create a directory. Raises BackupError if it exists and is not empty."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    held = next(_entries(directory), None)
    if held is not None:
        raise BackupError(f"{directory} is not empty: it holds {held.name}")


def _entries(directory: Path) -> Iterator[Path]:
    """Yield what a directory contains."""
    return (path for path in directory.iterdir() if path.name != _LOST_AND_FOUND)


def _below(directory: Path) -> Iterator[Path]:
    """Yield everything below a directory."""
    for path in _entries(directory):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from path.rglob("*")


@contextmanager
def _emptied_on_failure(directory: Path) -> Iterator[None]:
    """Remove what was written into a directory if that fails: on a full disk, it would keep the disk full."""
    try:
        yield
    except Exception:  # an interrupted restore keeps its mark instead, with which no daemon starts
        with suppress(OSError):
            for path in _entries(directory):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
        raise


def files_outside(data_dir: Path, files: Iterable[Path]) -> list[str]:
    """Return the existing files of the queue manager that no backup contains: those of `files` that are not in the data
    directory, and what symbolic links in it lead to."""
    inside = data_dir.resolve()
    links = [path for path in _below(data_dir) if path.is_symlink() and _is_copied(path.relative_to(data_dir))]
    found = (path for path in (*files, *sorted(links)) if path.exists() and not path.resolve().is_relative_to(inside))
    return list(dict.fromkeys(map(str, found)))


def _all(directory: Path) -> Iterator[str]:
    """Yield the relative paths of all files in a directory, with slashes."""
    for path in _below(directory):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(directory).as_posix()


def _others(data_dir: Path) -> list[str]:
    """Return the files of a data directory to copy, except those of the store."""
    return sorted(name for name in _all(data_dir) if _is_copied(Path(name)))


def _is_copied(name: Path) -> bool:
    """Whether a backup contains a file of the data directory that is not of the store."""
    parts = name.parts
    return not (
        is_of_store(parts[0], STORE)
        or any(part.startswith(_NOT_COPIED) for part in parts)
        or "-wal" in name.name
        or name.name.endswith(("-shm", "-journal"))
    )


def _copy_database(source: Path, target: Path) -> None:
    """Copy the database as seen by one transaction. Raises BackupError."""
    try:
        name = f"{source.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(name, uri=True)) as held, closing(sqlite3.connect(target)) as new:
            held.backup(new)
    except sqlite3.Error as error:
        raise BackupError(f"{source} cannot be copied: {error}") from error
    target.chmod(0o600)
    _sync(target)


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file. Blocks of zeros, which make up most of the last segment, become holes.

    Raises FileNotFoundError, and creates nothing, if the source does not exist.
    """
    with source.open("rb") as content, naming(target), open(target, "xb", opener=_private) as file:
        while piece := content.read(_PIECE):
            if piece.strip(b"\0"):
                file.write(piece)
            else:
                file.seek(len(piece), os.SEEK_CUR)
        file.truncate(content.tell())
    _sync(target)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync(path: Path) -> None:
    with naming(path), path.open("rb") as written:
        os.fsync(written.fileno())


def _checked(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
        return {"size": file.tell(), "sha256": digest.hexdigest()}


def _give_to_owner(directory: Path) -> None:
    """If root restores, give the files to the owner of the directory: the daemon runs as that user."""
    if os.geteuid() == 0:
        owner = directory.stat()
        for path in _below(directory):
            os.chown(path, owner.st_uid, owner.st_gid)
