"""Locations of public queues on other machines, as reported by the directory."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from openmsmq.model import names

MOST_PLACES = 16_384  # public queues of other machines kept in the cache


@dataclass(frozen=True, slots=True)
class QueueLocation:
    """Location of a public queue. `path_name` begins with the name of its computer; `machine` is the identifier of its
    queue manager (16 bytes)."""

    path_name: str
    base_priority: int = 0
    machine: bytes = b""


class QueueLocations:
    """Cache of the locations that were looked up most recently."""

    def __init__(self) -> None:
        self._by_identifier: dict[UUID, QueueLocation] = {}  # the most recent one last

    def of(self, name: names.FormatName) -> QueueLocation | None:
        """Return the location of the queue with a public format name; None for any other name, and for an unknown
        queue."""
        return self._by_identifier.get(name.guid) if isinstance(name, names.PublicFormatName) else None

    def remember(self, guid: UUID, place: QueueLocation) -> None:
        self._by_identifier.pop(guid, None)
        self._by_identifier[guid] = place
        if len(self._by_identifier) > MOST_PLACES:
            del self._by_identifier[next(iter(self._by_identifier))]
