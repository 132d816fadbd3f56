"""Records of the demo: one for each file below a directory, in a fixed order."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SMALL = 64 * 1024  # bytes; larger files are not hashed


class Record(NamedTuple):
    """The contents of a message about a file. `sha256` is empty for large and unreadable files."""

    path: str
    size: int
    mode: int
    owner: int
    modified: int
    sha256: str

    def to_body(self) -> str:
        return json.dumps(self, ensure_ascii=True)

    @classmethod
    def from_body(cls, body: str) -> Record:
        return cls(*json.loads(body))


def walk(root: Path) -> Iterator[str]:
    """Yield the paths of all regular files, sorted within each directory; links are not followed."""
    for directory, directories, files in os.walk(root):
        directories.sort()
        for name in sorted(files):
            path = os.path.join(directory, name)
            try:
                if stat.S_ISREG(os.lstat(path).st_mode):
                    yield path
            except OSError:
                continue


def spread(paths: list[str], count: int) -> list[str]:
    """Return `count` evenly spread paths, so that a small demo covers all kinds of files."""
    if count <= 0 or count >= len(paths):
        return paths
    return [paths[i * len(paths) // count] for i in range(count)]


def describe(path: str) -> Record | None:
    """Return the record of a file; None if it is gone."""
    try:
        status = os.lstat(path)
        digest = ""
        if status.st_size <= SMALL:
            try:
                digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            except OSError:
                digest = ""
    except OSError:
        return None
    shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return Record(shown, status.st_size, status.st_mode, status.st_uid, int(status.st_mtime), digest)
