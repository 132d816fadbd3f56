"""`openmsmq sequence list|forget`: transactional sequences from other queue managers. No published protocol carries it,
so this asks the HTTP API."""

from __future__ import annotations

from uuid import UUID

import click

from openmsmq.admin.http_api import ListedSequence
from openmsmq.admin.http_requests import ApiNotFound
from openmsmq.cli.output import dry_run_option, echo, json_option, print_rows, report
from openmsmq.cli.web_api import ApiOptions, api_options
from openmsmq.model.text import counted, time_text

_COLUMNS = ("queue", "source", "last number", "rejected", "last message", "sequence")


@click.group()
def sequence() -> None:
    """Show how far other queue managers are with transactional queues; forget it.

    No published protocol carries this: it asks the HTTP API of a daemon, with a token.
    """


@sequence.command("list")
@click.argument("queue", required=False)
@click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="Show at most this many.")
@json_option
@api_options
def list_(api: ApiOptions, queue: str | None, limit: int, as_json: bool) -> None:
    """Show the transactional sequences that come into QUEUE, or into any queue, the latest first.

    SOURCE is the identifier of the queue manager that sends them. For administrators of the queue manager; the role
    monitor is enough for the token.
    """
    with api.client() as client:
        found = client.sequences(client.queue_named(queue).id if queue is not None else None, limit=limit)
    if found.sequences:
        print_rows(found.sequences, as_json, _COLUMNS, _cells)
    elif not as_json:
        echo("no other queue manager has sent transactional messages here")
    if found.matching > len(found.sequences):
        echo(f"{len(found.sequences):,} of {counted(found.matching, 'sequence')} are shown (--limit)", err=True)


def _cells(each: ListedSequence) -> list[str | int]:
    return [each.name, each.source, each.number, each.rejected, time_text(each.accessed), each.sequence]


@sequence.command()
@click.argument("queue")
@click.argument("source", type=click.UUID)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@dry_run_option
@json_option
@api_options
def forget(api: ApiOptions, queue: str, source: UUID, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Forget how far the queue manager SOURCE is with QUEUE: what it sends next begins a new sequence.

    For a queue manager that is gone, or whose messages are refused because somebody else has sent in its name. Messages
    that SOURCE has not seen acknowledged come a second time. For administrators of the queue manager, with a token of
    the role administrator; the audit log has it. Exit code 3 if there is no such sequence.
    """
    with api.client() as client:
        known = client.queue_named(queue)
        sequences = client.sequences(known.id, str(source)).sequences
        if not sequences:
            raise ApiNotFound(f"{client.url}: {known.name} has no sequence of the queue manager {source}")
        found = sequences[0]
        said = f"the sequence of {source} into {known.name}, last number {found.number:,}"
        document = {**found._asdict(), "done": not dry_run}
        if dry_run:
            report(as_json, f"would be forgotten: {said}", document)
            return
        if not yes:
            click.confirm(f"Forget {said}? What it sends again is accepted once more.", abort=True, err=True)
        client.forget_sequence(known.id, str(source))
    report(as_json, f"forgotten: {said}", document)
