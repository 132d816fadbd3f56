"""onError=collect: write rows that cannot be sent to Parquet files below `errorPath`, each row once.

A task writes a file per attempt below `_attempts`, which Parquet readers skip. The driver moves the files of a batch to
their final places just before it finalizes the batch. Until then, it removes files from earlier attempts to commit the
batch. So each row is either sent as a message or in exactly one file, regardless of repetitions.

`errorPath` is a directory or a URI of a file system that pyarrow supports; tasks have no Hadoop.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import uuid
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from openmsmq.bulk.row_stream import Refusal
from openmsmq.spark.options import OptionError

logger = logging.getLogger(__name__)

_ATTEMPTS = "_attempts"
_GROUP_ROWS, _GROUP_BYTES = 4096, 8 << 20  # limits of a row group


class Errors:
    """The error files of one sink."""

    def __init__(self, directory: str, sink: str) -> None:
        """Raises OptionError if pyarrow does not support the file system."""
        self._given = directory
        self._system, self._directory = _opened(directory)
        self._sink = quote(sink, safe="")
        self._attempts = f"{self._directory}/{_ATTEMPTS}/{self._sink}"

    def attempt(self, batch: int, partition: int) -> Collected:
        """Return the collector for one attempt of a task."""
        return Collected(self._system, f"{self._attempts}/{batch}-{partition}-{uuid.uuid4().hex}.parquet")

    def publish(self, batch: int, attempts: Iterable[str]) -> None:
        """Publish exactly these files as the error files of the batch. Raises OptionError if one is missing."""
        places = {self._place(batch, name): f"{self._attempts}/{name}" for name in attempts}
        for file in self._published(batch):
            if file not in places:
                _delete(self._system, file)
        for place, file in places.items():
            if self._system.get_file_info(file).type == fs.FileType.NotFound:
                raise OptionError(
                    f"errorPath is {self._given!r}, where the driver does not find what a task has written; "
                    "allowed: a directory that the driver and all executors share"
                )
            self._system.move(file, place)
        if places:
            _sync(self._system, self._directory)

    def withdraw(self, batch: int) -> None:
        """Withdraw the published files of a batch that was not sent."""
        for file in self._published(batch):
            _delete(self._system, file)

    def discard(self, attempts: Iterable[str]) -> None:
        """Remove the files of a failed batch."""
        for name in attempts:
            _delete(self._system, f"{self._attempts}/{name}")

    def discard_all(self) -> None:
        """Remove files of attempts that were not chosen, of this batch and of earlier ones."""
        try:
            self._system.delete_dir(self._attempts)
        except FileNotFoundError:  # no task had any
            return
        except OSError as error:
            logger.warning("%s: cannot remove files of failed attempts: %s", self._attempts, error)

    def _place(self, batch: int, attempt: str) -> str:
        return f"{self._directory}/{self._sink}-{batch}-{attempt.split('-')[1]}.parquet"

    def _published(self, batch: int) -> list[str]:
        name = re.compile(rf"{re.escape(self._sink)}-{batch}-[0-9]+\.parquet")
        found = self._system.get_file_info(fs.FileSelector(self._directory, allow_not_found=True))
        return [file.path for file in found if name.fullmatch(file.base_name)]


class Collected:
    """The rows of one attempt: held until the queue manager has processed them; refused rows are written to a file."""

    def __init__(self, system: fs.FileSystem, file: str) -> None:
        self._system, self._file = system, file
        self._writer: pq.ParquetWriter | None = None
        self._held: deque[pa.RecordBatch] = deque()
        self._first = 0  # number of the first held row
        self._gathered: list[pa.RecordBatch] = []

    def hold(self, batch: pa.RecordBatch) -> None:
        """Hold rows that are about to be sent."""
        self._held.append(batch)

    def take(self, through: int, refused: list[Refusal]) -> None:
        """Write the refused rows among the rows before `through`; see `BulkClient.stage`."""
        at = 0
        end = self._first
        for batch in self._held:
            begin, end = end, end + batch.num_rows
            last = next((index for index in range(at, len(refused)) if refused[index].row >= end), len(refused))
            if at < last:
                self._gather(batch, begin, refused[at:last])
            at = last
            if end >= through:
                break
        if at < len(refused):
            raise RuntimeError(f"row {refused[at].row} is refused with {refused[at].error}, and is not held any more")
        while self._held and self._first + self._held[0].num_rows <= through:
            self._first += self._held.popleft().num_rows

    def put_aside(self, batch: pa.RecordBatch, refused: list[Refusal]) -> None:
        """Write rows that are never sent; `numbers` are their positions in the batch."""
        self._gather(batch, 0, refused)

    def _gather(self, batch: pa.RecordBatch, begin: int, refused: list[Refusal]) -> None:
        rows = batch.take(pa.array([one.row - begin for one in refused], pa.int64()))
        self._gathered.append(rows.append_column("error", pa.array([str(one.error) for one in refused], pa.string())))
        if (
            sum(rows.num_rows for rows in self._gathered) >= _GROUP_ROWS
            or sum(rows.nbytes for rows in self._gathered) >= _GROUP_BYTES
        ):
            self._write()

    def _write(self) -> None:
        if self._gathered:
            table = pa.Table.from_batches(self._gathered)
            if self._writer is None:
                self._system.create_dir(posixpath.dirname(self._file))
                self._writer = pq.ParquetWriter(self._file, table.schema, filesystem=self._system)
            self._writer.write_table(table)
            self._gathered.clear()

    def close(self) -> str | None:
        """Complete the file and make it durable. Return its name for `Errors.publish`, None if no row was refused."""
        self._write()
        if self._writer is None:
            return None
        self._writer.close()
        _sync(self._system, self._file)
        return posixpath.basename(self._file)

    def discard(self) -> None:
        """Remove the file of a failed attempt."""
        if self._writer is not None:
            self._writer.close()
            _delete(self._system, self._file)


def _opened(directory: str) -> tuple[fs.FileSystem, str]:
    if not re.match(r"[a-z][a-z0-9+.-]+:/", directory):
        return fs.LocalFileSystem(), os.path.abspath(directory)
    try:
        system, path = fs.FileSystem.from_uri(directory)
    except pa.ArrowInvalid as error:
        raise OptionError(
            f"errorPath is {directory!r}: {error}; allowed: a directory, file://, s3://, gs://, abfs://, hdfs://"
        ) from error
    return system, path.rstrip("/")


def _delete(system: fs.FileSystem, file: str) -> None:
    with suppress(FileNotFoundError):
        system.delete_file(file)


def _sync(system: fs.FileSystem, path: str) -> None:
    """Make a local file durable. Other file systems do so automatically."""
    if not isinstance(system, fs.LocalFileSystem):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
