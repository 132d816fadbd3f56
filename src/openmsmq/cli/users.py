"""`openmsmq user …`"""

from __future__ import annotations

import click

from openmsmq.actions import users
from openmsmq.cli.derived import add_commands
from openmsmq.cli.places import place_of_group


@click.group()
@place_of_group
def user() -> None:
    """Manage the users that NTLM authenticates. A running daemon notices changes.

    They are in the data directory of a daemon. With --url, the HTTP API of a daemon is asked, with a token of the role
    administrator, of an administrator of the queue manager.
    """


@user.group("group")
def user_group() -> None:
    """Manage groups of users: a right that is given to a group counts for each member."""


add_commands(user, users.ACTIONS)
