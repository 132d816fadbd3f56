"""Usage of a limited resource per source, so that a single source cannot exhaust it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Source = TypeVar("Source", bound=Hashable)


class Shares(Generic[Source]):
    """Counts usage per source: at most `each` per source and `total` in all. Every operation takes constant time, and a
    source without usage takes no memory."""

    def __init__(self, total: int, each: int) -> None:
        if not 1 <= each <= total:
            raise ValueError(f"limit per source is {each}, allowed: 1 to {total}, the total")
        self.total: Final = total
        self.each: Final = each
        self.held = 0
        self._by_source: dict[Source, int] = {}

    def of(self, source: Source) -> int:
        """Return the amount held by a source."""
        return self._by_source.get(source, 0)

    def has_room(self, source: Source, amount: int = 1) -> bool:
        """Whether a source may take `amount` more."""
        return self.held + amount <= self.total and self.of(source) + amount <= self.each

    def take(self, source: Source, amount: int = 1) -> bool:
        """Take `amount` for a source. Returns False, without taking anything, if its share or the total would be
        exceeded."""
        if not self.has_room(source, amount):
            return False
        self.charge(source, amount)
        return True

    def charge(self, source: Source, amount: int = 1) -> None:
        """Take a share regardless of the limits: for existing objects, after a restart."""
        self.held += amount
        self._by_source[source] = self.of(source) + amount

    def give_back(self, source: Source, amount: int = 1) -> None:
        """Give back `amount` of a source. Raises ValueError if it holds less."""
        left = self.of(source) - amount
        if left < 0:
            raise ValueError(f"{source!r} holds {self.of(source)}, not {amount}")
        self.held -= amount
        if left:
            self._by_source[source] = left
        else:
            del self._by_source[source]
