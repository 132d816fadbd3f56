"""Memory, descriptors and threads of processes, and the size of a directory, over time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from statistics import median

MIB = 1 << 20
#: By how much a figure may grow between the early and the late part of a run: a share of it, and a number.
ALLOWED = {
    "resident bytes": (0.05, 8 * MIB), "descriptors": (0.05, 8), "threads": (0.0, 2), "bytes on disk": (0.05, 64 * MIB)
}  # fmt: skip
EARLY, LATE = (0.3, 0.5), (0.8, 1.0)


def family(pid: int) -> dict[str, int]:
    """Return the process identifiers of a process and its descendants by the name of their module."""
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                stat = (path / "stat").read_text(encoding="utf-8", errors="replace")
                parents[int(path.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {"queue manager": pid}
    for child in sorted(parents):
        if pid in _ancestors(child, parents):
            words = Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
            found[words[words.index("-m") + 1] if "-m" in words else f"{words[0]} {child}"] = child
    return found


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while pid in parents and parents[pid] not in found:
        pid = parents[pid]
        found.add(pid)
    return found


def figures_of(pid: int) -> dict[str, int]:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return {
        "resident bytes": pages * os.sysconf("SC_PAGESIZE"),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": len(os.listdir(f"/proc/{pid}/task")),
    }


def size_of(directory: Path) -> int:
    """Return the bytes that a directory takes on the disk. Its files may be deleted meanwhile."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_blocks * 512
    return total


class Figures:
    """Samples of named figures, taken at equal intervals."""

    def __init__(self) -> None:
        self.samples: dict[tuple[str, str], list[int]] = {}

    def add(self, whose: str, figures: dict[str, int]) -> None:
        for what, value in figures.items():
            self.samples.setdefault((whose, what), []).append(value)

    def growth(self) -> list[str]:
        """Return a sentence for each figure that has grown by more than ALLOWED."""
        found = []
        for (whose, what), values in self.samples.items():
            early, late = (median(_part(values, part)) for part in (EARLY, LATE))
            share, number = ALLOWED[what]
            if late > early * (1 + share) + number:
                found.append(f"{whose}: {what} grew from {early:,.0f} to {late:,.0f}")
        return found


def _part(values: list[int], part: tuple[float, float]) -> list[int]:
    start, end = (round(share * len(values)) for share in part)
    return values[start:end]
