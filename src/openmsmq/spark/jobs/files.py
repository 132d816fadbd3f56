"""Files of a directory on any file system that Spark supports (local, HDFS, object stores), through Hadoop's
FileSystem."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file: its name relative to the directory, and its size in bytes."""

    name: str
    size: int


class ArchiveFiles:
    """Operations on files of the directory. Names are relative to the directory, with `/` as separator."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        configuration: Any = spark._jsc.hadoopConfiguration()
        self._paths = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.commons.io.IOUtils
        path = self._paths(root)
        self._system = path.getFileSystem(configuration)
        self._root = self._system.makeQualified(path)

    @property
    def is_local(self) -> bool:
        """Whether the directory is on a file system of this machine, which `sync` makes durable."""
        return str(self._root.toUri().getScheme()) == "file"

    def make(self) -> None:
        """Create the directory if it does not exist. Raises OSError."""
        try:
            if self._system.mkdirs(self._root):
                return
            reason = "check the path, and that this user may write there"
        except Py4JJavaError as error:
            reason = str(error.java_exception.getMessage())
        raise OSError(f"cannot create the directory {self._root.toString()}: {reason}")

    def path(self, name: str = "") -> str:
        """Return the URI of a file for Spark."""
        return str(self._at(name).toString())

    def pattern(self, name: str) -> str:
        """Return the pattern that matches only this file: Spark's readers take paths for patterns."""
        return re.sub(r"([\\{}\[\]*?])", r"\\\1", self.path(name))

    def exists(self, name: str) -> bool:
        return bool(self._system.exists(self._at(name)))

    def children(self, name: str = "") -> list[str]:
        """Return the names of files and directories directly in a directory; none if it does not exist."""
        return sorted(name for name, _, _ in self._list(name))

    def files(self, name: str = "", visible: bool = True) -> Iterator[FileEntry]:
        """Yield all files below a directory. `visible` excludes names that begin with `_` or `.`, as Spark does."""
        for child, is_directory, size in self._list(name):
            if visible and child.rpartition("/")[2][0] in "_.":
                continue
            if is_directory:
                yield from self.files(child, visible)
            else:
                yield FileEntry(child, size)

    def move(self, source: str, target: str) -> None:
        """Rename a file, and create missing parent directories of the target. If the target exists, an earlier move was
        interrupted: only the source is deleted."""
        there = self._at(target)
        if self._system.exists(there):
            self._system.delete(self._at(source), False)
            return
        self._system.mkdirs(there.getParent())
        if not self._system.rename(self._at(source), there):
            raise OSError(f"cannot rename {self.path(source)} to {self.path(target)}")

    def delete(self, name: str) -> None:
        """Delete a file, or a directory with its contents, if it exists."""
        self._system.delete(self._at(name), True)

    def read(self, name: str) -> str:
        """Return the text of a file. Raises FileNotFoundError."""
        try:
            stream = self._system.open(self._at(name))
        except Py4JJavaError as error:
            if "FileNotFound" in error.java_exception.getClass().getName():
                raise FileNotFoundError(self.path(name)) from error
            raise
        try:
            return str(self._io.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Create a file atomically. It exists only if everything that was written before it is durable."""
        draft = f"{name}.draft"
        self._store(draft, text, overwrite=True)
        self.sync()
        if not self._system.rename(self._at(draft), self._at(name)):
            raise OSError(f"cannot write {self.path(name)}")

    def create(self, name: str, text: str) -> bool:
        """Create a file; return False if it already exists. On a local file system, its contents are durable."""
        try:
            self._store(name, text, overwrite=False)
        except Py4JJavaError as error:
            if "FileAlreadyExists" in error.java_exception.getClass().getName():
                return False
            raise
        if self.is_local:
            with suppress(FileNotFoundError), open(str(self._at(name).toUri().getPath()), "rb") as file:
                os.fsync(file.fileno())
        return True

    def sync(self) -> None:
        """Make everything durable that was written to the file system of the directory, if it is a local one: neither
        Spark nor Hadoop's FileSystem does so. Raises OSError."""
        if self.is_local:
            _sync_file_system(str(self._root.toUri().getPath()))

    def _store(self, name: str, text: str, overwrite: bool) -> None:
        stream = self._system.create(self._at(name), overwrite)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _list(self, name: str) -> list[tuple[str, bool, int]]:
        if not self.exists(name):
            return []
        found = self._system.listStatus(self._at(name))
        prefix = f"{name}/" if name else ""
        return [(prefix + str(s.getPath().getName()), bool(s.isDirectory()), int(s.getLen())) for s in found]

    def _at(self, name: str) -> Any:
        return self._paths(self._root, name) if name else self._root


def _sync_file_system(directory: str) -> None:
    """syncfs(2); sync(2) on systems without it."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        os.sync()
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if library.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, f"cannot sync the file system of {directory}: {os.strerror(number)}")
    finally:
        os.close(descriptor)
