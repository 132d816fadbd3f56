"""The available positions of a queue: a sorted list of lookup identifiers with operations on many keys at once.

Keys are in arrays, 8 bytes each.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import chain

_CHUNK = 512  # keys per chunk; a chunk that reaches twice this number is divided


class SortedKeys:
    """Distinct integers in ascending order, in chunks, so that a change of one key moves at most one chunk."""

    def __init__(self, keys: Iterable[int] = ()) -> None:
        self._chunks: list[array[int]] = []
        self._lasts: list[int] = []  # the last key of each chunk
        self._count = 0
        if keys != ():  # most are created empty
            self.update(keys)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._chunks)

    # -- reading ---------------------------------------------------------------------------------------------

    def first(self) -> int | None:
        return self._chunks[0][0] if self._chunks else None

    def heads(self, limit: int) -> list[int]:
        """Return the first `limit` keys."""
        found: list[int] = []
        for chunk in self._chunks:
            if len(found) == limit:
                break
            found += chunk[: limit - len(found)].tolist()
        return found

    def last(self) -> int | None:
        return self._lasts[-1] if self._lasts else None

    def after(self, key: int) -> int | None:
        """Return the first key after `key`, which need not exist."""
        index = bisect_right(self._lasts, key)
        if index == len(self._chunks):
            return None
        chunk = self._chunks[index]
        first = chunk[0]
        return first if first > key else chunk[bisect_right(chunk, key)]

    def before(self, key: int) -> int | None:
        """Return the last key before `key`, which need not exist."""
        index = bisect_left(self._lasts, key)
        if index < len(self._chunks) and (at := bisect_left(self._chunks[index], key)):
            return self._chunks[index][at - 1]
        return self._lasts[index - 1] if index else None

    def between(self, low: int, high: int, limit: int) -> list[int]:
        """Return the first `limit` keys with low <= key <= high."""
        found: list[int] = []
        for index in range(bisect_left(self._lasts, low), len(self._chunks)):
            chunk = self._chunks[index]
            at = bisect_left(chunk, low)
            end = min(at + limit - len(found), bisect_right(chunk, high))
            found += chunk[at:end].tolist()
            if end < len(chunk):
                break
        return found

    def count(self, low: int, high: int) -> int:
        """Return the number of keys with low <= key <= high."""
        return self._rank(high + 1) - self._rank(low)

    def _rank(self, key: int) -> int:
        """Return the number of keys before `key`."""
        index = bisect_left(self._lasts, key)
        full = sum(map(len, self._chunks[:index]))
        return full + bisect_left(self._chunks[index], key) if index < len(self._chunks) else full

    # -- changing --------------------------------------------------------------------------------------------

    def add(self, key: int) -> None:
        """Add a key that does not exist."""
        if not self._chunks:
            self.update([key])
            return
        if key > self._lasts[-1] and len(self._chunks[-1]) < 2 * _CHUNK - 1:  # the usual case
            self._chunks[-1].append(key)
            self._lasts[-1] = key
            self._count += 1
            return
        index = min(bisect_left(self._lasts, key), len(self._chunks) - 1)
        chunk = self._chunks[index]
        insort(chunk, key)
        self._lasts[index] = chunk[-1]
        self._count += 1
        if len(chunk) >= 2 * _CHUNK:
            self._replace(index, chunk)

    def append(self, keys: array[int]) -> None:
        """Add sorted keys that do not exist; fast if they come after all others."""
        if self._chunks and self._lasts[-1] < keys[0] and len(self._chunks[-1]) + len(keys) < 2 * _CHUNK:
            self._chunks[-1].extend(keys)
            self._lasts[-1] = keys[-1]
            self._count += len(keys)
        else:
            self.update(keys)

    def remove(self, key: int) -> None:
        """Remove a key. Raises ValueError if it does not exist."""
        index = bisect_left(self._lasts, key)
        if index == len(self._chunks):
            raise ValueError(f"key {key} does not exist")
        chunk = self._chunks[index]
        at = 0 if chunk[0] == key else bisect_left(chunk, key)  # usually the first key
        if at == len(chunk) or chunk[at] != key:
            raise ValueError(f"key {key} does not exist")
        del chunk[at]
        self._count -= 1
        if at == len(chunk):
            self._replace(index, chunk)

    def update(self, keys: Iterable[int]) -> None:
        """Add keys that do not exist; an array must be sorted."""
        new = keys if isinstance(keys, array) else array("Q", sorted(keys))
        self._count += len(new)
        at = 0
        while at < len(new):
            index = bisect_left(self._lasts, new[at])
            if index < len(self._lasts) - 1:
                end = bisect_left(new, self._lasts[index], at)
            else:  # the last chunk takes keys after all chunks
                index, end = max(0, len(self._lasts) - 1), len(new)
            chunk, added = self._chunks[index] if self._chunks else array("Q"), new[at:end]
            behind = not chunk or chunk[-1] < added[0]
            self._replace(index, chunk + added if behind else array("Q", sorted(chunk + added)))
            at = end

    def remove_all(self, keys: list[int]) -> None:
        """Remove existing keys."""
        if len(keys) == 1:
            self.remove(keys[0])
            return
        old = sorted(keys)
        self._count -= len(old)
        at = 0
        while at < len(old):
            index = bisect_left(self._lasts, old[at])
            end = bisect_right(old, self._lasts[index], at)
            gone, chunk = old[at:end], self._chunks[index]
            if chunk[: len(gone)].tolist() == gone:  # the usual case
                if len(gone) == len(chunk):
                    self._replace(index, array("Q"))
                else:
                    del chunk[: len(gone)]
            else:
                left_out = set(gone)
                self._replace(index, array("Q", [key for key in chunk if key not in left_out]))
            at = end

    def _replace(self, index: int, keys: array[int]) -> None:
        """Replace a chunk by these keys in chunks of the right size. No keys: remove the chunk; index after the last
        chunk: append."""
        size = -(-len(keys) // max(1, len(keys) // _CHUNK))
        chunks = [keys[at : at + size] for at in range(0, len(keys), size)] if keys else []
        self._chunks[index : index + 1] = chunks
        self._lasts[index : index + 1] = [chunk[-1] for chunk in chunks]
