"""Removal of many messages at once that has no consequences, so that it needs no `ChangeSet`."""

from __future__ import annotations

from openmsmq.model.lookup_id import sequence_of
from openmsmq.queueing.changes import Changes
from openmsmq.queueing.queue import Queue, runs
from openmsmq.store import Remove, RemoveMany, StoreFailed, StoreFull


def remove_all(
    changes: Changes, queues: list[Queue], positions: list[int], locations: list[int | None], *, locked: bool
) -> bool:
    """Remove available or `locked` messages: one position and location per queue (None for one in memory), all or none.
    Returns False, with nothing changed, if that fails."""
    if changes.has_failed:
        return False
    try:
        _remove_stored(changes, positions, locations)
    except (StoreFull, StoreFailed):
        return False
    try:
        for queue, start, end in runs(queues):
            if locked:
                queue.remove_locked(positions[start:end])
            else:
                queue.remove_available(positions[start:end])
    except Exception as error:  # memory and log disagree: ends the process
        changes.fail(error)
    return True


def _remove_stored(changes: Changes, positions: list[int], locations: list[int | None]) -> None:
    places = [location for location in locations if location is not None]
    if len(places) < len(locations):
        positions = [position for position, location in zip(positions, locations, strict=True) if location is not None]
    keys = [sequence_of(position) for position in positions]
    if len(keys) == 1:
        changes.store.append([Remove(keys[0], places[0])])
    elif keys:
        changes.store.append([RemoveMany(keys, places)])
