"""Archives after a power failure of the machine with their files and checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openmsmq.spark.jobs import PipelineError, Server, archive, compact
from openmsmq.spark.jobs.files import ArchiveFiles
from spark.jobs.test_archive import Crash, count, crashing, tags


class PowerFailure:
    """The power fails at a given sync. Changes since the last one are lost, or only the contents of new files are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path, at: int) -> None:
        self._directory, self._at, self._calls = directory, at, 0
        self._durable: dict[Path, tuple[int, bytes]] = {}
        self._open: list[Any] = []  # keeps the inodes of deleted files, so that no new file has one of their numbers
        sync = ArchiveFiles.sync
        monkeypatch.setattr(ArchiveFiles, "sync", lambda files: self._synced(sync, files))

    def _synced(self, sync: Callable[[ArchiveFiles], None], files: ArchiveFiles) -> None:
        self._calls += 1
        if self._calls >= self._at:
            raise Crash("power failure")
        sync(files)
        self._durable = {path: (path.stat().st_ino, path.read_bytes()) for path in self._files()}
        self._open += [path.open("rb") for path in self._durable]

    def lose(self, names: bool) -> None:
        """Lose what was not synced; `names`: also names of files, renamed and deleted ones included."""
        contents = dict(self._durable.values())
        for path in self._files():
            path.write_bytes(contents.get(path.stat().st_ino, b""))
            if names:
                path.unlink()
        for path, (_, data) in self._durable.items() if names else ():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for file in self._open:
            file.close()
        for lock in self._directory.rglob("_lock"):  # of a process before the restart, but this one is still running
            lock.unlink()

    def _files(self) -> list[Path]:
        return [path for path in self._directory.rglob("*") if path.is_file()]


@pytest.mark.parametrize("group", ["g", pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("names", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize(
    "at",
    [
        pytest.param(1, marks=pytest.mark.slow),  # the offsets of the first batch are lost
        pytest.param(2, marks=pytest.mark.slow),  # its files are
        pytest.param(3, marks=pytest.mark.slow),  # its files are moved
        4,  # its messages have left the queue; the offsets of the second batch are lost
        pytest.param(5, marks=pytest.mark.slow),
        pytest.param(6, marks=pytest.mark.slow),
    ],
)
def test_a_power_failure_loses_and_duplicates_nothing(
    spark: Any, server: Server, qm: Any, filled: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    at: int, names: bool, group: str | None,
) -> None:  # fmt: skip
    queue = filled(20)
    with monkeypatch.context() as patched:
        power = PowerFailure(patched, tmp_path, at)
        with pytest.raises(PipelineError, match="power failure"):
            archive(spark, server, [queue], str(tmp_path), group=group, batch_rows=12)
    power.lose(names)
    archive(spark, server, [queue], str(tmp_path), group=group, batch_rows=12)
    assert tags(spark, tmp_path) == list(range(20)) and count(qm, queue) == (0 if group else 20)


@pytest.mark.slow
@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("at", [2, 3, 4])  # the first batch is written; its messages have left; the second is written
def test_a_power_failure_loses_and_duplicates_nothing_with_delta(
    spark: Any, server: Server, qm: Any, filled: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    at: int, names: bool,
) -> None:  # fmt: skip
    queue = filled(20)
    with monkeypatch.context() as patched:
        power = PowerFailure(patched, tmp_path, at)
        with pytest.raises(PipelineError, match="power failure"):
            archive(spark, server, [queue], str(tmp_path), format="delta", group="g", batch_rows=12)
    power.lose(names)
    archive(spark, server, [queue], str(tmp_path), format="delta", group="g", batch_rows=12)
    assert tags(spark, tmp_path) == list(range(20)) and count(qm, queue) == 0


@pytest.mark.parametrize("names", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize(
    "at",
    [
        pytest.param(2, marks=pytest.mark.slow),  # while the merged file is written
        3,  # while the others are deleted
    ],
)
def test_a_power_failure_during_a_merge_loses_and_duplicates_nothing(
    spark: Any, fragmented: Path, monkeypatch: pytest.MonkeyPatch, at: int, names: bool
) -> None:
    with monkeypatch.context() as patched:
        power = PowerFailure(patched, fragmented, at)
        ArchiveFiles(spark, str(fragmented)).sync()
        crashing(patched, ArchiveFiles, "delete", 3, after=True)
        with pytest.raises(Crash):
            compact(spark, str(fragmented))
    power.lose(names)
    assert tags(spark, fragmented) == list(range(40))
    compact(spark, str(fragmented))
    assert tags(spark, fragmented) == list(range(40))
