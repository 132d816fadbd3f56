"""Limits on resources of clients: a share per source, and a total."""

from __future__ import annotations

from typing import Final

from msrpc.errors import LimitReached


class ObjectBudget:
    """A budget for a resource `what`, counted by source: a host, or a user of a host. Errors contain the names of the
    settings for `total` and `share`."""

    def __init__(self, what: str, total: int, share: int, settings: tuple[str, str] = ("", "")) -> None:
        self._what, self.total, self.share = what, total, share
        self._settings = settings
        self.taken = 0
        self._by_source: Final[dict[object, int]] = {}

    def held_by(self, source: object) -> int:
        """Return the amount taken by a source."""
        return self._by_source.get(source, 0)

    def take(self, source: object, amount: int = 1) -> None:
        """Take `amount` for a source. Raises LimitReached, without taking anything, if it exceeds a limit."""
        held = self._by_source.get(source, 0) + amount
        if held > self.share or self.taken + amount > self.total:
            raise LimitReached(detail=self._refusal(source, held > self.share))
        self._by_source[source] = held
        self.taken += amount

    def give_back(self, source: object, amount: int = 1) -> None:
        """Return `amount` to the budget."""
        left = self._by_source[source] - amount
        if left:
            self._by_source[source] = left
        else:
            del self._by_source[source]
        self.taken -= amount

    def _refusal(self, source: object, is_share: bool) -> str:
        total, share = self._settings
        limit, setting = (f"{self.share} for {source}", share) if is_share else (f"{self.total} in all", total)
        return f"too many {self._what}: limit {limit}{f' ({setting})' if setting else ''}"


class Charge:
    """The amount of a budget that an object has taken for its source."""

    __slots__ = ("_budget", "_source", "amount")

    def __init__(self, budget: ObjectBudget, source: object) -> None:
        self._budget, self._source = budget, source
        self.amount = 0

    def set(self, amount: int) -> None:
        """Set the amount. Raises LimitReached, without any change, if it exceeds a limit."""
        if amount > self.amount:
            self._budget.take(self._source, amount - self.amount)
        elif amount < self.amount:
            self._budget.give_back(self._source, self.amount - amount)
        self.amount = amount
