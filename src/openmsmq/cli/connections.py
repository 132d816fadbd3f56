"""`openmsmq connection list`: the connected clients. No published protocol offers this, so the command uses the HTTP
API.
"""

from __future__ import annotations

import click

from openmsmq.actions import connections
from openmsmq.cli.derived import add_commands


@click.group()
def connection() -> None:
    """Show who is connected, from where and through which protocol.

    No published protocol offers this: the command uses the HTTP API of a daemon, with a token.
    """


add_commands(connection, connections.ACTIONS)
