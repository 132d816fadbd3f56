"""`openmsmq sequence list|forget`: transactional sequences of other queue managers. No published protocol offers this,
so the command uses the HTTP API.
"""

from __future__ import annotations

import click

from openmsmq.actions import sequences
from openmsmq.cli.derived import add_commands


@click.group()
def sequence() -> None:
    """Show, or forget, the position of other queue managers in transactional queues.

    No published protocol offers this: the command uses the HTTP API of a daemon, with a token.
    """


add_commands(sequence, sequences.ACTIONS)
