"""A request whose last fragment has not come (C706 12.6.4.9)."""

from __future__ import annotations

from uuid import UUID

from openmsmq.rpc.security import Channel


class Assembly:
    """The fragments so far, and what all of them must have in common."""

    __slots__ = ("channel", "context_id", "object_uuid", "opnum", "pieces", "refused", "size")

    def __init__(self, context_id: int, opnum: int, channel: Channel | None) -> None:
        self.context_id = context_id
        self.opnum = opnum
        self.channel = channel
        self.object_uuid: UUID | None = None
        self.pieces: list[bytes] = []
        self.size = 0
        self.refused = False

    def add(self, stub: bytes) -> int:
        """Keep a fragment's stub, unless the call was refused; returns how many bytes are kept."""
        if self.refused or not stub:
            return 0
        self.pieces.append(stub)
        self.size += len(stub)
        return len(stub)

    def refuse(self) -> int:
        """The call has got its fault: its further fragments are dropped. Returns how many bytes are given up."""
        given_up, self.size = self.size, 0
        self.refused = True
        self.pieces.clear()
        return given_up
