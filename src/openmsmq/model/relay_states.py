"""The states of a relay, and the steps that operators take. `relaying.states` has the transitions."""

from __future__ import annotations

from typing import Final, Literal, get_args

#: - shadow: programs still send to the other machine; its messages come here;
#: - switched: programs send here; what is left at the other machine, and what stragglers send there, comes here;
#: - done: nothing is left there, and nothing is looked for;
#: - returning: what is here, and what comes, goes to the other machine;
#: - returned: nothing is left here, and nothing goes back any more;
#: - receiving, sending: a bridge that stays, from the other machine or to it.
RelayState = Literal["shadow", "switched", "done", "returning", "returned", "receiving", "sending"]
RELAY_STATES: Final[tuple[RelayState, ...]] = get_args(RelayState)
RelayStep = Literal["shadow", "switch", "done", "back", "forget", "end"]
RELAY_STEPS: Final[tuple[RelayStep, ...]] = get_args(RelayStep)
