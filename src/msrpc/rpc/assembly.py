"""Requests whose last fragment is missing (C706 12.6.4.9), and the memory that they use."""

from __future__ import annotations

from msrpc.rpc.channel import Channel


class ReassemblyBudget:
    """Bytes that all connections of a server together may hold in incomplete requests.

    Each connection also has its own limit. Without this one, many connections could use up the machine's memory before
    any of them has authenticated.
    """

    __slots__ = ("limit", "peak", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0  # the maximum since it was last reset

    def book(self, size: int) -> None:
        self.used += size
        if self.used > self.peak:
            self.peak = self.used


class Account:
    """Bytes held by one connection."""

    __slots__ = ("_budget", "_limit", "held")

    def __init__(self, limit: int, budget: ReassemblyBudget | None) -> None:
        self._limit = limit
        self._budget = budget or ReassemblyBudget(limit)
        self.held = 0

    def allows(self, size: int) -> bool:
        """Whether `size` more bytes are within both limits."""
        return self.held + size <= self._limit and self._budget.used + size <= self._budget.limit

    def book(self, size: int) -> None:
        """Hold `size` more bytes, or fewer if negative."""
        self.held += size
        self._budget.book(size)

    def clear(self) -> None:
        """Release everything."""
        self.book(-self.held)


class Assembly:
    """The fragments so far, and the header fields that all of them must share."""

    __slots__ = ("channel", "context_id", "object_uuid", "opnum", "pieces", "refused", "size")

    def __init__(self, context_id: int, opnum: int, channel: Channel | None) -> None:
        self.context_id = context_id
        self.opnum = opnum
        self.channel = channel
        self.object_uuid: bytes | None = None
        self.pieces: list[bytes] = []
        self.size = 0
        self.refused = False

    def add(self, stub: bytes) -> int:
        """Add a fragment's stub, unless the call was refused. Returns the number of bytes added."""
        if self.refused or not stub:
            return 0
        self.pieces.append(stub)
        self.size += len(stub)
        return len(stub)

    def refuse(self) -> int:
        """Drop the remaining fragments of a call that was answered with a fault. Returns the number of bytes
        released."""
        given_up, self.size = self.size, 0
        self.refused = True
        self.pieces.clear()
        return given_up
