"""The states of a relay, and the steps of operators. The transitions are in `relaying.states`."""

from __future__ import annotations

from typing import Final, Literal, get_args

#: - shadow: programs still send to the other machine; its messages are moved here;
#: - switched: programs send here; remaining and late messages at the other machine are moved here;
#: - done: the other machine has no messages left and is no longer checked;
#: - returning: messages here, including new ones, are moved to the other machine;
#: - returned: no messages are left here, and none are moved any more;
#: - receiving, sending: a permanent bridge from the other machine or to it.
RelayState = Literal["shadow", "switched", "done", "returning", "returned", "receiving", "sending"]
RELAY_STATES: Final[tuple[RelayState, ...]] = get_args(RelayState)
RelayStep = Literal["shadow", "switch", "done", "back", "forget", "end"]
RELAY_STEPS: Final[tuple[RelayStep, ...]] = get_args(RelayStep)
