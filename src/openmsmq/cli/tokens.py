"""`openmsmq token create|list|revoke|check`"""

from __future__ import annotations

from functools import partial

import click

from openmsmq.admin.administration.interface import TokenInfo
from openmsmq.admin.tokens import DAYS, LONGEST_DAYS
from openmsmq.cli.output import echo, json_option, print_rows, report
from openmsmq.cli.places import AdminTarget, new_password, password_stdin_option, place_options
from openmsmq.cli.web_api import ApiOptions, api_options
from openmsmq.model.roles import WORDS, Role, role_of
from openmsmq.model.text import time_text


@click.group()
def token() -> None:
    """Manage tokens, by which scripts log in to the HTTP server of a daemon."""


@token.command("create")
@click.argument("name")
@click.option("--user", "who", required=True, help="Whose rights it has; with --url, whose password is asked for.")
@click.option("--role", type=click.Choice(WORDS), default=Role.MONITOR.word, show_default=True,
              help="What it may do at most.")  # fmt: skip
@click.option(
    "--days", type=click.IntRange(1, LONGEST_DAYS), default=DAYS, show_default=True, help="How long it holds."
)
@password_stdin_option
@json_option
@place_options
def create(
    place: AdminTarget, name: str, who: str, role: str, days: int, password_stdin: bool, as_json: bool
) -> None:  # fmt: skip
    """Make a token and print it, which can't be done later: the file has its hash.

    It ends with its days, with `revoke`, and with the user; a new password does not end it. With --url a user makes
    their own, with their password, because a token makes no tokens.
    """
    if password_stdin:
        place.demand_http("--password-stdin")
    password = partial(new_password, password_stdin, f"Password of {who}", confirm=False)
    with place.open_as(who, password) as daemon:
        secret, made = daemon.create_token(name, who, role_of(role), days)
    report(as_json, secret, {"secret": secret, "id": made.id, "expires": made.expires})


@token.command("list")
@json_option
@place_options
def list_(place: AdminTarget, as_json: bool) -> None:
    """Show tokens: identifier, name, user, role, when they end, and when each was used last, to a minute."""
    with place.open() as daemon:
        found = daemon.tokens()
    print_rows(found, as_json, ("token", "name", "user", "role", "ends", "used"), _cells)


def _cells(each: TokenInfo) -> list[str]:
    used = "never" if each.used is None else time_text(each.used)
    return [each.id, each.name, each.user, each.role, time_text(each.expires), used]


@token.command("revoke")
@click.argument("identifier", metavar="TOKEN")
@place_options
def revoke(place: AdminTarget, identifier: str) -> None:
    """End a token at once; TOKEN is its identifier, as `token list` shows it."""
    with place.open() as daemon:
        gone = daemon.revoke_token(identifier)
    echo(f"revoked {gone.name} of {gone.user}", err=True)


@token.command("check")
@json_option
@api_options
def check(api: ApiOptions, as_json: bool) -> None:
    """Ask the HTTP API whose token --token-file or OPENMSMQ_TOKEN has, and in what role. Exit code 5 if it holds no
    longer."""
    with api.client() as client:
        found = client.caller()
    rights = "an administrator of the queue manager" if found.administrator else "no administrator"
    report(as_json, f"{found.user}, {rights}, in the role {found.role}", found._asdict())
