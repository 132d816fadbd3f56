"""`openmsmq adopt …` and `openmsmq forward …`: queues move from another machine to this one, and back, or are bridged."""

from __future__ import annotations

import click

from openmsmq.actions import relays
from openmsmq.cli.derived import add_commands


@click.group()
def adopt() -> None:
    """Move queues of another machine here, one at a time, and back again.

    QUEUE is a path name (.\\private$\\orders), just the name of a private queue, NAME;journal, deadletter or
    xactdeadletter. The daemon does the work, and goes on with it after a restart; it logs in at the other machine by
    the settings peer_login, peer_user and peer_password_file. docs/moving.md has the whole move.
    """


@click.group()
def forward() -> None:
    """Bridge a queue here and a queue of another machine, for good.

    The daemon does the work, and goes on with it after a restart; openmsmq adopt status shows it.
    """


add_commands(adopt, relays.ACTIONS)
add_commands(forward, relays.ACTIONS)
