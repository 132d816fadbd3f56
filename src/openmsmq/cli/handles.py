"""`openmsmq handle list|close`: open queue handles. No published protocol offers this, so the command uses the HTTP
API.
"""

from __future__ import annotations

import click

from openmsmq.actions import handles
from openmsmq.actions.by_http import perform
from openmsmq.actions.handles import NamedHandle, OpenHandleView, close_handle, get_handle
from openmsmq.admin.http_requests import ApiNotFound
from openmsmq.cli.derived import add_commands, show
from openmsmq.cli.output import dry_run_option, echo, json_option
from openmsmq.cli.web_api import ApiOptions, api_options


@click.group()
def handle() -> None:
    """Show who has which queue open, exclusively or waiting for messages; close such handles.

    No published protocol offers this: the command uses the HTTP API of a daemon, with a token.
    """


add_commands(handle, handles.ACTIONS)


@handle.command()
@click.argument("identifiers", metavar="ID...", nargs=-1, required=True)
@dry_run_option
@json_option
@api_options
def close(api: ApiOptions, identifiers: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Close handles of other clients; ID is a handle as `handle list` shows it.

    Its waiting reads end, and its locked messages are put back. The client's next call fails because its handle is
    gone; it can open the queue again. For administrators of the queue manager, with a token of the role operator. The
    audit log records it. Exit code 3 if a handle does not exist; the others are closed.
    """
    found: list[OpenHandleView] = []
    missing: list[str] = []
    with api.client() as client:
        for identifier in dict.fromkeys(identifiers):
            try:
                found.append(perform(client, get_handle if dry_run else close_handle, NamedHandle(identifier)))
            except ApiNotFound:
                missing.append(identifier)
    show(handles.rows(lambda handles: handles), found, as_json)
    if not as_json:
        echo(f"{'would be closed' if dry_run else 'closed'}: {len(found)}")
    if missing:
        raise ApiNotFound(f"{client.url}: no such handle, or already closed: {', '.join(missing)}")
