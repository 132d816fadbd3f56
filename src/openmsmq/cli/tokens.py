"""`openmsmq token …`"""

from __future__ import annotations

import click

from openmsmq.actions import sessions, tokens
from openmsmq.cli.derived import add_commands


@click.group()
def token() -> None:
    """Manage tokens, with which scripts log in to the HTTP server of a daemon."""


add_commands(token, (*tokens.ACTIONS, *sessions.ACTIONS))
