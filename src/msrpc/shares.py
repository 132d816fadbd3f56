"""How much of something bounded each source holds, so that no source takes what all share."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Source = TypeVar("Source", bound=Hashable)


class Shares(Generic[Source]):
    """Counts what sources hold: at most `each` of one source, at most `total` of all. Every operation takes constant
    time, and a source that holds nothing takes no memory."""

    def __init__(self, total: int, each: int) -> None:
        if not 1 <= each <= total:
            raise ValueError(f"a share of {each} of {total}")
        self.total: Final = total
        self.each: Final = each
        self.held = 0
        self._by_source: dict[Source, int] = {}

    def of(self, source: Source) -> int:
        """How much a source holds."""
        return self._by_source.get(source, 0)

    def has_room(self, source: Source, amount: int = 1) -> bool:
        """Whether a source may take so much more."""
        return self.held + amount <= self.total and self.of(source) + amount <= self.each

    def take(self, source: Source, amount: int = 1) -> bool:
        """Take so much for a source. False, with nothing taken, if that exceeds its share or the total."""
        if not self.has_room(source, amount):
            return False
        self.charge(source, amount)
        return True

    def charge(self, source: Source, amount: int = 1) -> None:
        """Take a share regardless of the limits: for existing objects, after a restart."""
        self.held += amount
        self._by_source[source] = self.of(source) + amount

    def give_back(self, source: Source, amount: int = 1) -> None:
        """A source holds so much less. Raises ValueError if it holds less than that."""
        left = self.of(source) - amount
        if left < 0:
            raise ValueError(f"{source!r} holds {self.of(source)}, not {amount}")
        self.held -= amount
        if left:
            self._by_source[source] = left
        else:
            del self._by_source[source]
