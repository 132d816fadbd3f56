"""`openmsmq token create|list|revoke`"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from openmsmq.cli.accounts import Accounts, accounts_options
from openmsmq.cli.output import echo, json_option, print_json, print_table, report
from openmsmq.cli.recording import LocalAudit
from openmsmq.model.roles import WORDS, Role, role_of
from openmsmq.model.text import time_text
from openmsmq.operating.tokens import DAYS, LONGEST_DAYS, Token, TokensFile, TokensFileError, read_uses
from openmsmq.rpc.users import UsersFile, UsersFileError


@click.group()
def token() -> None:
    """Manage tokens, by which scripts log in to the HTTP server of a daemon."""


@token.command("create")
@click.argument("name")
@click.option("--user", "who", required=True, help="Whose rights it has.")
@click.option("--role", type=click.Choice(WORDS), default=Role.MONITOR.word, show_default=True,
              help="What it may do at most.")  # fmt: skip
@click.option(
    "--days", type=click.IntRange(1, LONGEST_DAYS), default=DAYS, show_default=True, help="How long it holds."
)
@json_option
@accounts_options
def create(accounts: Accounts, name: str, who: str, role: str, days: int, as_json: bool) -> None:
    """Make a token and print it, which can't be done later: the file has its hash.

    It ends with its days, with `revoke`, and with the user; a new password does not end it.
    """
    with _errors():
        user = next(
            (
                user
                for user in UsersFile(accounts.configuration.users_path).list()
                if user.name.casefold() == who.casefold()
            ),
            None,
        )
        if user is None:
            raise click.ClickException(f"there is no user {who} in {accounts.configuration.users_path}")
        secret, made = _file(accounts).create(name, user.name, user.sid, role_of(role), days)
    report(as_json, secret, {"secret": secret, "id": made.id, "expires": made.expires})


@token.command("list")
@json_option
@accounts_options
def list_(accounts: Accounts, as_json: bool) -> None:
    """Show tokens: identifier, name, user, role, when they end, and when each was used last, to a minute."""
    with _errors():
        found = _file(accounts).list()
    uses = read_uses(accounts.configuration.data_dir)
    if as_json:
        for each in found:
            print_json({"id": each.id, "name": each.name, "user": each.user, "role": each.role.word,
                        "created": each.created, "expires": each.expires, "used": uses.get(each.id)})  # fmt: skip
        return
    rows = [
        [each.id, each.name, each.user, each.role.word, time_text(each.expires),
         time_text(uses[each.id]) if each.id in uses else "never"]
        for each in found
    ]  # fmt: skip
    print_table(["token", "name", "user", "role", "ends", "used"], rows)


@token.command("revoke")
@click.argument("identifier", metavar="TOKEN")
@accounts_options
def revoke(accounts: Accounts, identifier: str) -> None:
    """End a token at once; TOKEN is its identifier, as `token list` shows it."""
    with _errors():
        gone = _file(accounts).revoke(identifier)
    echo(f"revoked {gone.name} of {gone.user}", err=True)


def _file(accounts: Accounts) -> TokensFile:
    record = LocalAudit(accounts.configuration)

    def on_change(action: str, each: Token) -> None:
        record(action, "token", each.name, after={
            "user": each.user, "token": each.id, "role": each.role.word, "expires": each.expires
        })  # fmt: skip

    return TokensFile(accounts.configuration.data_dir, on_change=on_change)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (TokensFileError, UsersFileError) as error:
        raise click.ClickException(str(error)) from None
