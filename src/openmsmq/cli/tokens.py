"""`openmsmq token …`"""

from __future__ import annotations

import click

from openmsmq.actions import tokens
from openmsmq.cli.derived import add_commands
from openmsmq.cli.output import json_option, report
from openmsmq.cli.web_api import ApiOptions, api_options


@click.group()
def token() -> None:
    """Manage tokens, by which scripts log in to the HTTP server of a daemon."""


add_commands(token, tokens.ACTIONS)


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
