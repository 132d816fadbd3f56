"""Which files of an archive a compaction merges."""

from __future__ import annotations

from typing import Any

import pytest

from openmsmq.spark.jobs.compaction import _groups
from openmsmq.spark.jobs.files import FileEntry

TARGET = 100  # bytes; only files of less than half of it are small


class Files:
    """An archive without manifests of compactions."""

    def __init__(self, entries: list[FileEntry]) -> None:
        self._entries = entries

    def files(self, name: str = "", visible: bool = True) -> list[FileEntry]:
        return [] if name else self._entries

    def children(self, name: str = "") -> list[str]:
        return []


@pytest.mark.parametrize(
    ("sizes", "at_least", "groups"),
    [
        ([40, 40, 20, 40, 40], 2, [[0, 1, 2], [3, 4]]),
        ([40, 40, 21, 40, 39], 2, [[0, 1], [2, 3, 4]]),
        ([49, 50, 49, 200], 2, [[0, 2]]),
        ([40, 40], 3, []),
        ([40, 60, 70], 1, []),
    ],
)
def test_small_files_of_a_partition_are_merged_up_to_the_target(
    sizes: list[int], at_least: int, groups: list[list[int]]
) -> None:
    days = ("day=1", "day=2")
    files: Any = Files([FileEntry(f"{day}/{n}.parquet", size) for n, size in enumerate(sizes) for day in days])
    found = [[entry.name for entry in group] for group in _groups(files, TARGET, at_least)]
    assert found == [[f"{day}/{number}.parquet" for number in group] for day in days for group in groups]
