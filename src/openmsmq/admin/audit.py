"""The audit log: changes with user, origin and amount, as JSON lines in files of bounded size.

The daemon and commands that use its data directory append records under a lock. `audit.jsonl` is the newest file,
`audit.jsonl.1` the previous one.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from openmsmq.files.locks import locked, open_own
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.text import printable

AUDIT_FILE: Final = "audit.jsonl"
_LOCK_FILE: Final = "audit.lock"
FILES: Final = 10  # number of files
MEGABYTES: Final = 10  # per file
VERSION: Final = 1  # record format
_LONGEST: Final = 256  # maximum characters of a value
_BLOCK: Final = 64 << 10  # bytes read at once


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Contents of a record. `origin` is the entry point and the address: `rpc 10.0.0.7`, `flight`, `cli`."""

    action: str
    kind: str
    name: str
    actor: str
    sid: str = ""
    origin: str = ""
    result: str = "ok"
    count: int | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects records: `action`, `name` (of the object) and `by` (name or SID of the actor) are case-insensitive
    patterns with * and ?; `before` selects records with lower numbers."""

    action: str = "*"
    name: str = "*"
    by: str = "*"
    denied: bool = False
    before: int | None = None

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Whether a record from `AuditLog.read` is selected."""
        actor, by = record["actor"], self.by.casefold()
        return (
            fnmatchcase(record["action"], self.action)
            and fnmatchcase(record["object"]["name"].casefold(), self.name.casefold())
            and any(fnmatchcase(who.casefold(), by) for who in (actor["name"], actor["sid"] or ""))
            and (not self.denied or record["result"] == "denied")
            and (self.before is None or int(record["seq"]) < self.before)
        )


class AuditRecorder(Protocol):
    """Writes an audit record before a change; may raise to prevent the change. Returns the number of the record, or
    None if auditing is disabled."""

    def __call__(
        self, action: str, kind: str, name: str, before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None, count: int | None = None,
    ) -> int | None: ...  # fmt: skip


class AuditLog:
    """The audit log of one data directory."""

    def __init__(self, data_dir: Path, *, size: int = MEGABYTES << 20, files: int = FILES) -> None:
        """`size` is the maximum size in bytes of each of `files` files."""
        self._path = data_dir / AUDIT_FILE
        self._size, self._files = size, files
        self._end = (0, 0, 0)  # inode, length and last record number after our last write

    def append(self, entry: AuditEntry, *, sync: bool = True) -> int:
        """Write a record and return its number; with `sync`, wait until it is on the disk. Raises OSError."""
        with self._locked() as handle:
            number = self._last_number(handle) + 1
            line = (json.dumps(_document(entry, number, time.time()), ensure_ascii=True) + "\n").encode()
            status = os.fstat(handle)
            at = status.st_size
            try:
                if os.write(handle, line) != len(line):
                    raise OSError("the record was not written whole: is the disk full?")
                if sync:
                    os.fdatasync(handle)
            except OSError:
                os.ftruncate(handle, at)  # else the next record would follow a partial one
                raise
            self._end = status.st_ino, at + len(line), number
            return number

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield all records, newest first. Damaged ones are left out and logged. Raises OSError."""
        with ExitStack() as stack:
            for file in self._opened(stack):
                for place, line in enumerate(_backwards(file.fileno()), 1):
                    try:
                        record = json.loads(line)
                        if not _is_record(record):
                            raise ValueError("it does not have the members of a record")
                    except (ValueError, RecursionError) as error:
                        LEFT_OUT.note("audit records", f"line {place} from the end of {file.name}", error)
                    else:
                        yield record

    def _opened(self, stack: ExitStack) -> list[BinaryIO]:
        """Open all files and return them, the newest first. Rotation moves files to higher numbers meanwhile: a file
        may be found twice then, but none is missed."""
        found: dict[int, BinaryIO] = {}
        for number in range(self._files):
            with suppress(FileNotFoundError):
                file = stack.enter_context((self._numbered(number) if number else self._path).open("rb"))
                found.setdefault(os.fstat(file.fileno()).st_ino, file)
        return list(found.values())

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Yield a handle of the newest file, rotated if full, while holding the lock. The lock is a separate file,
        because rotation renames files with records."""
        with locked(self._path.with_name(_LOCK_FILE)):
            handle = open_own(self._path)
            try:
                if os.fstat(handle).st_size >= self._size:
                    handle = self._rotate(handle)
                yield handle
            finally:
                os.close(handle)

    def _rotate(self, handle: int) -> int:
        """Start a new file, which continues the record numbers. Return its handle, which replaces `handle`. Its first
        record is written before anything is renamed, so that a full disk changes nothing."""
        rotated = AuditEntry("audit.rotate", "audit", AUDIT_FILE, "system")
        line = (json.dumps(_document(rotated, self._last_number(handle) + 1, time.time())) + "\n").encode()
        begun = self._path.with_name(f"{self._path.name}.new")
        fresh = open_own(begun)
        try:
            os.ftruncate(fresh, 0)
            if os.write(fresh, line) < len(line):
                raise OSError(errno.ENOSPC, "the first record of a new file was not written whole")
        except OSError:
            os.close(fresh)
            raise
        for index in range(self._files - 2, 0, -1):
            if self._numbered(index).exists():
                self._numbered(index).replace(self._numbered(index + 1))
        self._path.replace(self._numbered(1))
        begun.replace(self._path)
        os.close(handle)
        return fresh

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _last_number(self, handle: int) -> int:
        status = os.fstat(handle)
        if (status.st_ino, status.st_size) == self._end[:2]:
            return self._end[2]
        number = _number_at_end(handle)
        if number is None:  # a crash while files were renamed
            with suppress(FileNotFoundError), self._numbered(1).open("rb") as previous:
                number = _number_at_end(previous.fileno())
        return number or 0


def _number_at_end(handle: int) -> int | None:
    """Return the number of the last record of a file; None if it has none."""
    for line in _backwards(handle):
        try:
            return int(json.loads(line)["seq"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return None


def _backwards(handle: int) -> Iterator[bytes]:
    """Yield the lines of a file, the last one first."""
    at, rest = os.fstat(handle).st_size, b""
    while at > 0:
        size = min(_BLOCK, at)
        at -= size
        rest, *lines = (os.pread(handle, size, at) + rest).split(b"\n")
        yield from filter(None, reversed(lines))
    if rest:
        yield rest


def _document(entry: AuditEntry, number: int, now: float) -> dict[str, Any]:
    door, _, peer = entry.origin.partition(" ")
    return {
        "v": VERSION,
        "seq": str(number),
        "time": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "actor": {"name": _short(entry.actor), "sid": entry.sid or None},
        "from": {"door": door or "daemon", "peer": peer or None},
        "action": entry.action,
        "object": {"type": entry.kind, "name": _short(entry.name)},
        "count": entry.count,
        "before": _values(entry.before),
        "after": _values(entry.after),
        "result": entry.result,
    }


def _is_record(record: Any) -> bool:
    """Whether a document has the members that `_document` writes."""
    try:
        actor, origin, thing = record["actor"], record["from"], record["object"]
        texts = (record["seq"], record["time"], record["action"], record["result"], actor["name"], origin["door"],
                 thing["type"], thing["name"])  # fmt: skip
        return (
            all(isinstance(text, str) for text in texts)
            and record["seq"].isdecimal()
            and len(record["seq"]) < 20
            and all(isinstance(text, str | None) for text in (actor["sid"], origin["peer"]))
            and isinstance(record["count"], int | None)
            and all(isinstance(record[name], dict | None) for name in ("before", "after"))
        )
    except (KeyError, TypeError):
        return False


def _values(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {
        name: value if isinstance(value, bool | int | float) or value is None else _short(_text(value))
        for name, value in values.items()
    }


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
