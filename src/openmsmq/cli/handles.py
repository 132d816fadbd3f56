"""`openmsmq handle list|close`: who has queues open. No published protocol carries it, so this asks the HTTP API."""

from __future__ import annotations

import click

from openmsmq.admin.http_api import OpenHandleInfo
from openmsmq.admin.http_requests import ApiNotFound
from openmsmq.cli.output import dry_run_option, echo, json_option, print_json, print_table
from openmsmq.cli.web_api import ApiOptions, api_options
from openmsmq.model.text import counted, time_text

_COLUMNS = ("handle", "queue", "access", "share", "waiting", "held", "user", "from", "since")


@click.group()
def handle() -> None:
    """Show who has which queue open, exclusively or waiting for messages; close that.

    No published protocol carries this: it asks the HTTP API of a daemon, with a token.
    """


@handle.command("list")
@click.argument("queue", required=False)
@click.option("--exclusive", is_flag=True, help="Only those that let nobody else receive.")
@click.option("--waiting", is_flag=True, help="Only those with reads that wait for messages.")
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="Show so many (0: all).")
@json_option
@api_options
def list_(
    api: ApiOptions, queue: str | None, exclusive: bool, waiting: bool, limit: int, as_json: bool
) -> None:  # fmt: skip
    """Show who has QUEUE open, or any queue: exclusive ones first, then those that wait.

    For administrators of the queue manager; the role monitor is enough for the token.
    """
    with api.client() as client:
        identifier = client.queue_named(queue).id if queue is not None else None
        found = client.handles(identifier, exclusive=exclusive, waiting=waiting, limit=limit or None)
    _show(found.handles, as_json)
    if found.matching > len(found.handles):
        echo(f"{len(found.handles):,} of {counted(found.matching, 'handle')} are shown (--limit)", err=True)


@handle.command()
@click.argument("identifiers", metavar="ID...", nargs=-1, required=True)
@dry_run_option
@json_option
@api_options
def close(api: ApiOptions, identifiers: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Close what others have open; ID is a handle as `handle list` shows it.

    Reads that wait with it end, and what it holds is put back. Who had it open learns with the next call that the queue
    is gone, and may open it again. For administrators of the queue manager, with a token of the role operator; the
    audit log has it. Exit code 3 if one was not there; the others are closed.
    """
    found: list[OpenHandleInfo] = []
    missing: list[str] = []
    with api.client() as client:
        for identifier in dict.fromkeys(identifiers):
            try:
                found.append(client.handle(identifier) if dry_run else client.close_handle(identifier))
            except ApiNotFound:
                missing.append(identifier)
    _show(found, as_json)
    if not as_json:
        echo(f"{'would be closed' if dry_run else 'closed'}: {len(found)}")
    if missing:
        raise ApiNotFound(f"{client.url}: not there, or closed already: {', '.join(missing)}")


def _show(handles: list[OpenHandleInfo], as_json: bool) -> None:
    if as_json:
        for each in handles:
            print_json(each._asdict())
    elif handles:
        print_table(_COLUMNS, [_cells(each) for each in handles])


def _cells(each: OpenHandleInfo) -> list[str | int]:
    share = "deny receive" if each.exclusive else "deny none"
    return [each.id, each.name, each.access, share, each.waiting, each.held, each.user or each.sid, each.origin,
            time_text(each.since)]  # fmt: skip
