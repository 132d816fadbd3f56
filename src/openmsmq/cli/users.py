"""`openmsmq user …`"""

from __future__ import annotations

import sys

import click

from openmsmq.actions import users
from openmsmq.actions.by_http import perform
from openmsmq.admin.http_requests import by_password
from openmsmq.cli.asking import ask_password
from openmsmq.cli.derived import add_commands
from openmsmq.cli.output import json_option, report
from openmsmq.cli.places import place_of_group
from openmsmq.cli.web_api import ApiOptions, api_options


@click.group()
@place_of_group
def user() -> None:
    """Manage the users that NTLM authenticates. A running daemon notices changes.

    Users are stored in the data directory of a daemon. With --url, the command uses the HTTP API of a daemon; the token
    must have the role administrator and belong to an administrator of the queue manager.
    """


@user.group("group")
def user_group() -> None:
    """Manage groups of users. Rights of a group apply to each member."""


add_commands(user, users.ACTIONS)


@user.command("own-password")
@click.option("--user", "name", required=True, help="Name of the user; the command prompts for the password.")
@click.option("--password-stdin", is_flag=True, help="Read the current and the new password from standard input.")
@json_option
@api_options
def own_password(api: ApiOptions, name: str, password_stdin: bool, as_json: bool) -> None:
    """Change your password through the HTTP API of a daemon.

    This ends your sessions; your tokens remain valid.
    """
    if password_stdin:
        current, new = (sys.stdin.readline().rstrip("\n") for _ in range(2))
    else:
        current = ask_password(f"Password of {name}", "give --password-stdin")
        new = ask_password("New password", "give --password-stdin", twice=True)
    with api.client_as(by_password(name, current)) as client:
        done = perform(client, users.change_own_password, users.OwnPassword(current, new))
    report(as_json, done.done, {"done": done.done}, err=True)
