"""The states of a distributed transaction for operators, and the manual resolutions in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

#: - active: open for work;
#: - preparing: votes are collected;
#: - prepared: voted to commit, connected to the superior, which decides;
#: - in doubt: voted to commit, without a connection to the superior;
#: - committing: the commit is decided but not durable yet;
#: - unconfirmed: committed here; not all subordinates have confirmed the commit;
#: - aborting: aborted here; partners are being notified.
DistributedState = Literal["active", "preparing", "prepared", "in doubt", "committing", "unconfirmed", "aborting"]
DISTRIBUTED_STATES: Final[tuple[DistributedState, ...]] = get_args(DistributedState)
Resolution = Literal["commit", "abort", "forget"]
#: Manual resolutions by state ([MS-DTCO] 3.2.7.30); none in other states.
RESOLUTIONS: Final[Mapping[str, tuple[Resolution, ...]]] = {
    "in doubt": ("commit", "abort"),
    "unconfirmed": ("forget",),
}


def refusal(transaction: str, state: str, resolution: str) -> str:
    """Return the error text for a resolution that the state does not allow."""
    possible = " or ".join(RESOLUTIONS.get(state, ()))
    rest = f"possible is {possible}" if possible else "it ends automatically"
    return f"transaction {transaction} is {state}: {resolution} is not possible, {rest}"
