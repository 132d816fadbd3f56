"""A cache with limited size and lifetime, as [MS-MQQB] 3.1.3.1 specifies for keys and certificates."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

RECEIVED_KEYS: Final = 127  # entries, ReceiveSymmetricKeyCacheSize
RECEIVED_KEY_SECONDS: Final = 600.0  # SymmetricKeyShortLifetime

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TimedCache(Generic[K, V]):
    """Holds at most `size` entries, each for `seconds`. Times are values of one clock in seconds. When it is full, the
    older half is dropped."""

    def __init__(self, size: int, seconds: float) -> None:
        self._size: Final = size
        self._seconds: Final = seconds
        self._entries: dict[K, tuple[float, V]] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: float) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if now - entry[0] >= self._seconds:
            del self._entries[key]
            return None
        return entry[1]

    def discard(self, key: K) -> None:
        self._entries.pop(key, None)

    def put(self, key: K, value: V, now: float) -> None:
        self._entries.pop(key, None)
        if len(self._entries) >= self._size:
            for old in list(self._entries)[: max(self._size // 2, 1)]:
                del self._entries[old]
        self._entries[key] = (now, value)
