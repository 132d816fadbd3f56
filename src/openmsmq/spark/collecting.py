"""onError=collect: rows that can't be sent, in Parquet files below `errorPath`, each row once.

A task writes them into a file of its attempt below `_attempts`, which readers of Parquet pass over. The driver moves
the files of a batch to their places just before the batch is finalized; what another try to commit the same batch has
put there goes, as long as the batch is not finalized. So a row is among the messages or in one file, whatever is
repeated.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from openmsmq.bulk.sending import Refusal
from openmsmq.spark.options import OptionError

_ATTEMPTS = "_attempts"
_GROUP_ROWS, _GROUP_BYTES = 4096, 8 << 20  # what is gathered for a row group


class Errors:
    """The files of one sink."""

    def __init__(self, directory: str, sink: str) -> None:
        self._directory = Path(directory)
        self._sink = quote(sink, safe="")
        self._attempts = self._directory / _ATTEMPTS / self._sink

    def attempt(self, batch: int, partition: int) -> Collected:
        """For one attempt of a task."""
        return Collected(self._attempts / f"{batch}-{partition}-{uuid.uuid4().hex}.parquet")

    def publish(self, batch: int, attempts: Iterable[str]) -> None:
        """These files, and no others, have what can't be sent of the batch. Raises OptionError for one that is not
        there."""
        places = {self._place(batch, name): self._attempts / name for name in attempts}
        for file in self._published(batch):
            if file not in places:
                file.unlink(missing_ok=True)
        for place, file in places.items():
            try:
                file.replace(place)
            except FileNotFoundError:
                raise OptionError(
                    f"errorPath is {str(self._directory)!r}, where the driver does not find what a task has written; "
                    "allowed: a directory that the driver and all executors share"
                ) from None
        if places:
            _sync(self._directory)

    def withdraw(self, batch: int) -> None:
        """The batch was not sent."""
        for file in self._published(batch):
            file.unlink(missing_ok=True)

    def discard(self, attempts: Iterable[str]) -> None:
        """Of a batch that failed."""
        for name in attempts:
            (self._attempts / name).unlink(missing_ok=True)

    def discard_all(self) -> None:
        """What attempts have left that were not chosen, of this batch and of earlier ones."""
        shutil.rmtree(self._attempts, ignore_errors=True)

    def _place(self, batch: int, attempt: str) -> Path:
        return self._directory / f"{self._sink}-{batch}-{attempt.split('-')[1]}.parquet"

    def _published(self, batch: int) -> list[Path]:
        name = re.compile(rf"{re.escape(self._sink)}-{batch}-[0-9]+\.parquet")
        return [file for file in self._directory.glob("*.parquet") if name.fullmatch(file.name)]


class Collected:
    """The rows of one attempt: all are held until the queue manager has had them, the refused ones are written."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._writer: pq.ParquetWriter | None = None
        self._held: deque[pa.RecordBatch] = deque()
        self._first = 0  # number of the first row that is held
        self._gathered: list[pa.RecordBatch] = []

    def hold(self, batch: pa.RecordBatch) -> None:
        """Rows that are about to be sent."""
        self._held.append(batch)

    def take(self, through: int, refused: list[Refusal]) -> None:
        """See `BulkClient.stage`: what is refused before the row `through`."""
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
        while self._held and self._first + self._held[0].num_rows <= through:
            self._first += self._held.popleft().num_rows

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
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._writer = pq.ParquetWriter(self._file, table.schema)
            self._writer.write_table(table)
            self._gathered.clear()

    def close(self) -> str | None:
        """The file is complete and on the disk. Returns its name for `Errors.publish`, None if no row was refused."""
        self._write()
        if self._writer is None:
            return None
        self._writer.close()
        _sync(self._file)
        return self._file.name

    def discard(self) -> None:
        """The attempt failed."""
        if self._writer is not None:
            self._writer.close()
            self._file.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
