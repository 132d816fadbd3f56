"""`openmsmq connection list`: who is connected. No published protocol carries it, so this asks the HTTP API."""

from __future__ import annotations

import click

from openmsmq.actions import connections
from openmsmq.cli.derived import add_commands


@click.group()
def connection() -> None:
    """Show who is connected, from where and by which way.

    No published protocol carries this: it asks the HTTP API of a daemon, with a token.
    """


add_commands(connection, connections.ACTIONS)
