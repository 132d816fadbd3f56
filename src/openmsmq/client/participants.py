"""Databases, and other resources, that take part in a transaction of queues: docs/transactions.md.

The queue manager has no call to add such participants. The decision is therefore recorded as a message that is sent, in
the transaction, to the queue of outcomes: it exists if and only if the transaction has committed. Only MS-MQMP is used,
so this works with any queue manager.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
        """Commit the prepared transaction."""

    def rollback(self, transaction: str) -> Any:
        """Roll back the transaction, whether it is prepared or not."""

    def in_doubt(self) -> Any:
        """Return an iterable of the prepared transactions that have not ended, including those of programs that have
        ended."""


def raise_first(failures: Sequence[Exception]) -> None:
    """Raise the first exception, if there is one, with the others as notes."""
    for other in failures[1:]:
        failures[0].add_note(f"another participant failed, too: {other!r}")
    if failures:
        raise failures[0]


def outcome_body(participants: int) -> bytes:
    """Return the body of an outcome: the number of participants that must be told before it is deleted."""
    return json.dumps({"participants": participants}).encode()


def participants_in(body: bytes) -> int | None:
    """Return the number in the body of an outcome; None for any other message, which is kept."""
    try:
        number = json.loads(body)["participants"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return number if isinstance(number, int) else None
