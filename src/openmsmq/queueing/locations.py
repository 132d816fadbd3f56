"""Locations of public queues on other machines, as reported by the directory."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from openmsmq.model import names

MOST_PLACES = 16_384  # public queues of other machines that are remembered


@dataclass(frozen=True, slots=True)
class QueueLocation:
    """`path_name` begins with the computer name of the machine that the queue is on, `machine` is the identifier of its
    queue manager (16 bytes)."""

    path_name: str
    base_priority: int = 0
    machine: bytes = b""


class QueueLocations:
    """Remembers the places of those queues that were asked for last."""

    def __init__(self) -> None:
        self._by_identifier: dict[UUID, QueueLocation] = {}  # the latest at the end

    def of(self, name: names.FormatName) -> QueueLocation | None:
        """Where the queue of a public format name is; None of any other name, and of a queue that is not known."""
        return self._by_identifier.get(name.guid) if isinstance(name, names.PublicFormatName) else None

    def remember(self, guid: UUID, place: QueueLocation) -> None:
        self._by_identifier.pop(guid, None)
        self._by_identifier[guid] = place
        if len(self._by_identifier) > MOST_PLACES:
            del self._by_identifier[next(iter(self._by_identifier))]
