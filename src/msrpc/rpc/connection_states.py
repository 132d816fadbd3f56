"""States of a connection of the RPC server: why it is not being read, and where its replies are.

`TRANSITIONS[state][event]` is the next state; an event that cannot occur in a state leaves it unchanged.
`server._Connection` has the actions: it stops reading in a paused state, and serves the data received before the pause
before it reads more. States are small integers because compiled code compares them
without a call.
"""

from __future__ import annotations

from typing import Final

# Why a connection is not read. The first two are bits.
READING: Final = 0
REPLIES_BLOCKED: Final = 1  # the peer does not read its replies
LOGIN_PENDING: Final = 2  # a login waits for the answer of another server
BOTH: Final = REPLIES_BLOCKED | LOGIN_PENDING
RESUMING: Final = 4  # no longer paused, but data received before the pause is served first
PAUSED: Final = REPLIES_BLOCKED | LOGIN_PENDING  # mask: reading must not continue

# Events.
WRITE_BLOCKED: Final = 0
WRITE_UNBLOCKED: Final = 1
LOGIN_ASKED: Final = 2
LOGIN_ANSWERED: Final = 3
RESUMED: Final = 4

TRANSITIONS: Final[tuple[tuple[int, int, int, int, int], ...]] = (
    # WRITE_BLOCKED   WRITE_UNBLOCKED LOGIN_ASKED    LOGIN_ANSWERED   RESUMED
    (REPLIES_BLOCKED, READING,        LOGIN_PENDING, READING,         READING),          # READING
    (REPLIES_BLOCKED, RESUMING,       BOTH,          REPLIES_BLOCKED, REPLIES_BLOCKED),  # REPLIES_BLOCKED
    (BOTH,            LOGIN_PENDING,  LOGIN_PENDING, RESUMING,        LOGIN_PENDING),    # LOGIN_PENDING
    (BOTH,            LOGIN_PENDING,  BOTH,          REPLIES_BLOCKED, BOTH),             # BOTH
    (REPLIES_BLOCKED, RESUMING,       LOGIN_PENDING, RESUMING,        READING),          # RESUMING
)  # fmt: skip

# Which code reads the socket.
BY_TRANSPORT: Final = 0
BY_POLLER: Final = 1

# Where the replies are: sent, waiting for a scheduled flush, or collected until the calls of this read are served.
FLUSHED: Final = 0
SCHEDULED: Final = 1
CORKED: Final = 2
