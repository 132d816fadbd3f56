"""Databases, and other resources, that take part in a transaction of queues: docs/transactions.md.

The queue manager coordinates and has no call for more participants, so its own part carries the decision: a message in
the queue of outcomes, sent in the transaction. It is there if, and only if, the transaction has committed. All calls
are those of MS-MQMP, so any queue manager will do.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

OUTCOMES = r".\private$\transaction_outcomes"


class Participant(Protocol):
    """Interface of a resource that takes part. `transaction` is the identifier of a transaction, 32 hexadecimal digits.

    The methods may be coroutine functions for `openmsmq.aio`. `commit` and `rollback` of a transaction that has ended,
    or that the resource has never seen, do nothing.
    """

    def prepare(self, transaction: str) -> Any:
        """Write what was done in the transaction so that both `commit` and `rollback` will succeed, after a crash, too.
        An exception aborts the transaction."""

    def commit(self, transaction: str) -> Any:
        """Make it visible."""

    def rollback(self, transaction: str) -> Any:
        """Undo it, prepared or not."""

    def in_doubt(self) -> Any:
        """The transactions (an iterable) that are prepared and have not ended, also of programs that are gone."""


def outcome_body(participants: int) -> bytes:
    """The body of an outcome: how many participants have to know it before it may go."""
    return json.dumps({"participants": participants}).encode()


def participants_in(body: bytes) -> int | None:
    """The number in the body of an outcome; None for another message, which stays."""
    try:
        number = json.loads(body)["participants"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return number if isinstance(number, int) else None
