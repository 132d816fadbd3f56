"""Shares of a trigger's limit per queue, in proportion to the waiting messages, so that no queue starves another."""

from __future__ import annotations

from collections.abc import Mapping


def shares(waiting: Mapping[str, int], amount: int) -> dict[str, int]:
    """An amount (messages or bytes) divided in proportion to what waits in each queue. What division leaves over goes
    to the first ones: who asks begins with another queue each time, so a queue of few messages gets its turn too."""
    total = sum(waiting.values())
    if not total:
        return dict.fromkeys(waiting, 0)
    given = {queue: amount * count // total for queue, count in waiting.items()}
    broken = [queue for queue, count in waiting.items() if amount * count % total]
    for queue in broken[: amount - sum(given.values())]:
        given[queue] += 1
    return given
