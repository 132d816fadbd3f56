"""How much of what callers can make grow a queue manager keeps; each is a setting of the same name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Private queues, in all and of one owner (the caller who created them), and outgoing queues.

    A queue costs 4 KB of memory, two definitions in the log and a third of a millisecond at each start. Open queues,
    cursors and transactions are limited by association: `rpc.association.MAX_HANDLES`.
    """

    max_queues: int = 100_000
    max_queues_per_owner: int = 10_000
    max_outgoing_queues: int = 16_384
