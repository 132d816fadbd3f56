"""The states of a distributed transaction, as operators see them, and how one can be ended by hand in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

#: - active: programs work in it;
#: - preparing: votes are collected;
#: - prepared: voted to commit, connected to the superior, which decides;
#: - in doubt: voted to commit, without a connection to the superior;
#: - committing: the commit is decided and not durable yet;
#: - unconfirmed: committed here; not all subordinates have confirmed the commit;
#: - aborting: aborted here; partners are being told.
DistributedState = Literal["active", "preparing", "prepared", "in doubt", "committing", "unconfirmed", "aborting"]
DISTRIBUTED_STATES: Final[tuple[DistributedState, ...]] = get_args(DistributedState)
Resolution = Literal["commit", "abort", "forget"]
#: What an operator can do in a state ([MS-DTCO] 3.2.7.30); nothing in all others.
RESOLUTIONS: Final[Mapping[str, tuple[Resolution, ...]]] = {
    "in doubt": ("commit", "abort"),
    "unconfirmed": ("forget",),
}


def refusal(transaction: str, state: str, resolution: str) -> str:
    """The sentence for a resolution that the state does not allow."""
    possible = " or ".join(RESOLUTIONS.get(state, ()))
    rest = f"possible is {possible}" if possible else "it ends automatically"
    return f"transaction {transaction} is {state}: {resolution} is not possible, {rest}"
