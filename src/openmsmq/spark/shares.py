"""Divide a trigger's limit among queues in proportion to the waiting messages, so that no queue starves another."""

from __future__ import annotations

from collections.abc import Mapping


def shares(waiting: Mapping[str, int], amount: int) -> dict[str, int]:
    """Divide an amount (messages or bytes) in proportion to what waits in each queue. The first queues get the
    remainder; the caller begins with another queue each time, so that a queue with few messages gets a share too."""
    total = sum(waiting.values())
    if not total:
        return dict.fromkeys(waiting, 0)
    given = {queue: amount * count // total for queue, count in waiting.items()}
    broken = [queue for queue, count in waiting.items() if amount * count % total]
    for queue in broken[: amount - sum(given.values())]:
        given[queue] += 1
    return given
