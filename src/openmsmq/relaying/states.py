"""States of a relay, the steps possible in each, and the direction of its messages."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.relay_states import RelayState, RelayStep

#: (state, step) -> next state; None: the relay is deleted.
STEPS: Final[Mapping[tuple[RelayState, RelayStep], RelayState | None]] = {
    ("shadow", "switch"): "switched",
    ("shadow", "back"): "returning",
    ("switched", "shadow"): "shadow",
    ("switched", "done"): "done",
    ("switched", "back"): "returning",
    ("done", "shadow"): "shadow",
    ("done", "back"): "returning",
    ("done", "forget"): None,
    ("returning", "shadow"): "shadow",
    ("returning", "done"): "returned",
    ("returned", "shadow"): "shadow",
    ("returned", "forget"): None,
    ("receiving", "end"): None,
    ("sending", "end"): None,
}  # fmt: skip


class Direction(Enum):
    """Direction of messages."""

    IN = "in"
    OUT = "out"
    NONE = "none"


DIRECTIONS: Final[Mapping[RelayState, Direction]] = {
    "shadow": Direction.IN,
    "switched": Direction.IN,
    "done": Direction.NONE,
    "returning": Direction.OUT,
    "returned": Direction.NONE,
    "receiving": Direction.IN,
    "sending": Direction.OUT,
}


class NextState(NamedTuple):
    """Result of a step; `state` is None if the relay is deleted."""

    state: RelayState | None


def following(queue: str, state: RelayState, step: str) -> NextState:
    """Return the result of a step. Raises MsmqError that names the possible steps."""
    possible = [known for (at, known) in STEPS if at == state]
    if step not in possible:
        raise MsmqError(
            HResult.MQ_ERROR_ILLEGAL_OPERATION,
            f"the relay of {queue} is {state}: {step} is not possible; allowed: {', '.join(possible)}",
        )
    return NextState(next(to for (at, known), to in STEPS.items() if (at, known) == (state, step)))
