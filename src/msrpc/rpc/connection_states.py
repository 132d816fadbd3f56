"""The states of a connection of the RPC server: what keeps it from being read, and where its replies are.

A row of `HOLDS` says to which state each event leads; what can't happen in a state leads nowhere. `server._Connection`
has the actions: it stops reading when it is held, and serves what had to wait before it reads on. States are small
integers, which compiled code compares without a call.
"""

from __future__ import annotations

from typing import Final

# What keeps a connection from being read; the first two bits can be asked for.
UNHELD: Final = 0
DEAF: Final = 1  # its peer does not take the replies
ASKING: Final = 2  # a login waits for an external answer
DEAF_AND_ASKING: Final = 3
CATCHING_UP: Final = 4  # nothing any more, but what had to wait is to be served first
HELD: Final = DEAF | ASKING

# What happens to it.
DEAFENED: Final = 0
HEARS: Final = 1
ASKED: Final = 2
ANSWERED: Final = 3
CAUGHT_UP: Final = 4

HOLDS: Final[tuple[tuple[int, int, int, int, int], ...]] = (
    # DEAFENED        HEARS        ASKED            ANSWERED     CAUGHT_UP
    (DEAF,            UNHELD,      ASKING,          UNHELD,      UNHELD),           # UNHELD
    (DEAF,            CATCHING_UP, DEAF_AND_ASKING, DEAF,        DEAF),             # DEAF
    (DEAF_AND_ASKING, ASKING,      ASKING,          CATCHING_UP, ASKING),           # ASKING
    (DEAF_AND_ASKING, ASKING,      DEAF_AND_ASKING, DEAF,        DEAF_AND_ASKING),  # DEAF_AND_ASKING
    (DEAF,            CATCHING_UP, ASKING,          CATCHING_UP, UNHELD),           # CATCHING_UP
)  # fmt: skip

# Which code reads the socket.
BY_TRANSPORT: Final = 0
BY_POLLER: Final = 1

# Where its replies are: a reply schedules a flush, unless it is scheduled, or a call is served after which one follows.
FLUSHED: Final = 0
SCHEDULED: Final = 1
CORKED: Final = 2
