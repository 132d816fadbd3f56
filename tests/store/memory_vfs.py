"""An in-memory file system that models the states a crash may leave.

The model: any subset of unsynced sectors may persist. Name changes are ordered; those after the last sync of the
directory may be cut off at any point.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from openmsmq.store import StoreInUse

SECTOR = 512


@dataclass
class Inode:
    """A file: its content for readers, its durable content, and the unsynced writes."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)

    def write(self, offset: int, data: bytes) -> None:
        put(self.content, offset, data)
        self.unsynced.append((offset, data))

    def sectors(self) -> list[tuple[int, bytes]]:
        """Return the unsynced writes, split at sectors."""
        pieces = []
        for offset, data in self.unsynced:
            start = 0
            while start < len(data):
                end = min(len(data), start + SECTOR - (offset + start) % SECTOR)
                pieces.append((offset + start, data[start:end]))
                start = end
        return pieces


def put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


#: Given the index and the number of unsynced sectors, tells whether a sector survives.
Survives = Callable[[int, int], bool]


class MemoryVfs:
    """Implements Vfs.

    Attributes:
        before: called before each call with its name and path; it may raise OSError, or return "short" to cut a write.
        calls: names of the calls so far, with their paths.
    """

    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self.changes: list[tuple[str, str, str | Inode]] = []
        self.handles: dict[int, tuple[str, Inode]] = {}
        self.locks: dict[int, str] = {}
        self.renamed: set[str] = set()  # directories by their original names
        self.next_handle = 3
        self.before: Callable[[str, str], str | None] = lambda name, path: None
        self.calls: list[tuple[str, str]] = []

    # ------------------------------------------------------------------------------------------------- protocol

    def make_directory(self, path: str) -> None:
        self._call("make_directory", path)
        self.renamed.discard(path)

    def listdir(self, path: str) -> list[str]:
        self._call("listdir", path)
        inside = path.rstrip("/") + "/"
        return sorted({name.removeprefix(inside).partition("/")[0] for name in self.names if name.startswith(inside)})

    def open(self, path: str, create: bool = False) -> int:
        self._call("open", path)
        if create:
            self._expect_directory(path)
            self._change("link", path, Inode())
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.next_handle += 1
        self.handles[self.next_handle] = (path, self.names[path])
        return self.next_handle

    def close(self, handle: int) -> None:
        if handle in self.locks:
            del self.locks[handle]
        else:
            del self.handles[handle]

    def size(self, handle: int) -> int:
        return len(self.handles[handle][1].content)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        self._call("pread", self.handles[handle][0])
        return bytes(memoryview(self.handles[handle][1].content)[offset : offset + length])

    def pread_into(self, handle: int, buffer: bytearray, offset: int) -> int:
        data = self.pread(handle, len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def pwrite(self, handle: int, data: bytes, offset: int) -> int:
        path, inode = self.handles[handle]
        if self._call("pwrite", path) == "short":
            data = data[: max(1, len(data) // 2)]
        inode.write(offset, bytes(data))
        return len(data)

    def fdatasync(self, handle: int) -> None:
        path, inode = self.handles[handle]
        try:
            self._call("fdatasync", path)
        except OSError:
            # Like Linux: the pages are now clean, and the next sync reports success without them.
            inode.unsynced.clear()
            raise
        # Data lost by an earlier failed sync stays lost.
        for offset, data in inode.unsynced:
            put(inode.durable, offset, data)
        inode.unsynced.clear()

    def fsync_directory(self, path: str) -> None:
        self._call("fsync_directory", path)
        self._expect_directory(f"{path}/.")
        self.durable_names = dict(self.names)
        self.changes.clear()

    def rename(self, old: str, new: str) -> None:
        self._call("rename", new)
        if old not in self.names and not any(name.startswith(old + "/") for name in self.names):
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        if old not in self.names:
            self.renamed.add(old)
        self._change("rename", old, new)
        for handle, path in self.locks.items():
            if path.startswith(old + "/"):
                self.locks[handle] = new + path.removeprefix(old)

    def unlink(self, path: str) -> None:
        self._call("unlink", path)
        locked = next((handle for handle, name in self.locks.items() if name == path), None)
        if locked is not None:
            self.locks[locked] = ""
            return
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._change("unlink", path, "")

    def lock(self, path: str) -> int:
        self._expect_directory(path)
        if path in self.locks.values():
            raise StoreInUse(path)
        self.next_handle += 1
        self.locks[self.next_handle] = path
        return self.next_handle

    def exists(self, path: str) -> bool:
        self._call("exists", path)
        return path in self.locks.values() or path in self.names

    def holds(self, lock: int, path: str) -> bool:
        self._call("holds", path)
        return self.locks.get(lock) == path

    # -------------------------------------------------------------------------------------------------- crashes

    def crash(self, survives: Survives, changes: int) -> MemoryVfs:
        """Return the disk after a power failure: with the surviving unsynced sectors and the first name changes."""
        names = dict(self.durable_names)
        for change in self.changes[:changes]:
            apply_change(names, change)
        result = MemoryVfs()
        copies: dict[int, Inode] = {}
        for path, inode in names.items():
            if id(inode) not in copies:
                content = bytearray(inode.durable)
                sectors = inode.sectors()
                for index, (offset, data) in enumerate(sectors):
                    if survives(index, len(sectors)):
                        put(content, offset, data)
                copies[id(inode)] = Inode(content, content[:])
            result.names[path] = copies[id(inode)]
        result.durable_names = dict(result.names)
        return result

    def killed(self) -> MemoryVfs:
        """Return the state after a kill of the process: everything is readable, and unsynced data is still unsynced."""
        result = MemoryVfs()
        copies: dict[int, Inode] = {}

        def copy(inode: Inode) -> Inode:
            if id(inode) not in copies:
                copies[id(inode)] = Inode(inode.content[:], inode.durable[:], list(inode.unsynced))
            return copies[id(inode)]

        result.names = {path: copy(inode) for path, inode in self.names.items()}
        result.durable_names = {path: copy(inode) for path, inode in self.durable_names.items()}
        result.changes = [(kind, a, copy(b) if isinstance(b, Inode) else b) for kind, a, b in self.changes]
        return result

    def crashes(self, chance: random.Random, samples: int) -> list[MemoryVfs]:
        """Yield crash states to test: the extremes, each single loss up to a bound, and random ones."""
        count = max((len(inode.sectors()) for inode in self.names.values()), default=0)
        rules: list[Survives] = [lambda index, total: False, lambda index, total: True]
        if count:
            rules.append(lambda index, total: index == total - 1)
            rules.append(lambda index, total: index != 0)
            for _ in range(samples):
                cut = chance.randrange(count + 1)
                rules.append(lambda index, total, cut=cut: index < cut)  # type: ignore[misc]
                rules.append(lambda index, total, cut=cut: index != cut)  # type: ignore[misc]
                mask = chance.getrandbits(count)
                rules.append(lambda index, total, mask=mask: bool(mask >> index & 1))  # type: ignore[misc]
        everything = len(self.changes)
        states = [self.crash(rule, everything) for rule in rules]
        states += [self.crash(chance.choice(rules), changes) for changes in range(everything)]
        return states

    # -------------------------------------------------------------------------------------------------- details

    def _expect_directory(self, path: str) -> None:
        directory = path.rpartition("/")[0]
        if directory in self.renamed:
            raise FileNotFoundError(errno.ENOENT, "no such directory", directory)

    def _call(self, name: str, path: str) -> str | None:
        self.calls.append((name, path))
        return self.before(name, path)

    def _change(self, kind: str, path: str, argument: str | Inode) -> None:
        change = (kind, path, argument)
        self.changes.append(change)
        apply_change(self.names, change)


def apply_change(names: dict[str, Inode], change: tuple[str, str, str | Inode]) -> None:
    kind, path, argument = change
    if kind == "link":
        assert isinstance(argument, Inode)
        names[path] = argument
    elif kind == "rename":
        assert isinstance(argument, str)
        for name in [name for name in names if name == path or name.startswith(path + "/")]:
            names[argument + name.removeprefix(path)] = names.pop(name)
    else:
        names.pop(path, None)
