"""`openmsmq sequence list|forget`: transactional sequences from other queue managers. No published protocol carries it,
so this asks the HTTP API."""

from __future__ import annotations

import click

from openmsmq.actions import sequences
from openmsmq.cli.derived import add_commands


@click.group()
def sequence() -> None:
    """Show how far other queue managers are with transactional queues; forget it.

    No published protocol carries this: it asks the HTTP API of a daemon, with a token.
    """


add_commands(sequence, sequences.ACTIONS)
