"""`openmsmq adopt …`: move queues from another machine here and back. `openmsmq forward …`: permanent bridges."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from openmsmq.actions import relays
from openmsmq.actions.by_http import ActionsByHttp
from openmsmq.actions.definitions import DefinitionsRequest, Differences, import_definitions
from openmsmq.actions.errors import ActionIncomplete, ActionRefused
from openmsmq.actions.queues import absent_queues, queue_named
from openmsmq.actions.relays import (
    NewRelay,
    RelayQuery,
    RelayStepInput,
    RelayView,
    begin_relay,
    list_relays,
    step_relay,
)
from openmsmq.admin.account_names import Accounts, mapped, unknown
from openmsmq.admin.comparing import Comparison, compare
from openmsmq.admin.definitions import Document, definitions_of_queues
from openmsmq.admin.definitions_schema import FORMAT, DefinitionsError
from openmsmq.admin.http_requests import ApiError
from openmsmq.admin.naming import DEAD_LETTER_QUEUES, path_of
from openmsmq.cli.account_maps import accounts_in, accounts_option
from openmsmq.cli.connection import Address, connect, level_option, login_options
from openmsmq.cli.derived import add_commands
from openmsmq.cli.inventory import inventory
from openmsmq.cli.numbers import PORT
from openmsmq.cli.output import echo, json_option, print_json, report
from openmsmq.cli.relay_status import status
from openmsmq.cli.web_api import ApiOptions, api_options
from openmsmq.client.calls import UNANSWERED
from openmsmq.client.sync import QueueManager
from openmsmq.model.errors import MsmqError
from openmsmq.model.text import counted, time_text

_from = click.option(
    "--from", "host", required=True, metavar="HOST", help="Name by which the daemon knows the other machine."
)
_queues = click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)


@click.group()
def adopt() -> None:
    """Move queues from another machine to this one, one at a time, and back again.

    QUEUE is a path name (.\\private$\\orders), just the name of a private queue, NAME;journal, deadletter or
    xactdeadletter. The daemon does the work and continues it after a restart. It logs in to the other machine with the
    settings peer_login, peer_user and peer_password_file. docs/moving.md describes a complete move.
    """


@click.group()
def forward() -> None:
    """Bridge a queue of this machine and a queue of another one permanently.

    The daemon does the work and continues it after a restart. `openmsmq adopt status` shows its progress.
    """


add_commands(adopt, relays.ACTIONS)
adopt.add_command(status)
adopt.add_command(inventory)
add_commands(forward, relays.ACTIONS)


def _there(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command three parameters: `host`, the name of the other machine; `address_of`; and `there`, which connects
    to it.
    """

    @_from
    @click.option("--there", "address", metavar="ADDRESS", help="Address of the other machine (default: its name).")
    @login_options
    @level_option
    @functools.wraps(command)
    def wrapper(
        *args: Any, host: str, address: str | None, address_of: Callable[[str], Address], level: str | None,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        def connect_to(to: Address) -> QueueManager:
            return connect(to, level)

        other = Other(host, address_of(address or host), connect_to)
        return command(*args, other=other, **kwargs)

    return wrapper


class Other(NamedTuple):
    """The other machine: the name by which the daemon knows it, its address and login, and a way to connect to it."""

    host: str
    address: Address
    connect: Callable[[Address], QueueManager]

    def there(self) -> QueueManager:
        return self.connect(self.address)

    def here(self, host: str, port: int | None) -> QueueManager:
        """Connect to the queue manager of this machine, as the same user."""
        return self.connect(self.address._replace(host=host, port=port, port_offset=0))


def _definitions(qm: QueueManager, queues: tuple[str, ...], accounts: Accounts) -> list[Document]:
    """Return the definitions of the other machine's private queues, with accounts of this machine. Raises
    ClickException.
    """
    paths = [path_of(name) for name in queues if ";" not in name]
    private = [path for path in paths if path.lower().startswith(".\\private$\\")]  # others always exist
    try:
        return [mapped(queue, accounts) for queue in definitions_of_queues(qm, private, {})]
    except DefinitionsError as error:
        raise click.ClickException(str(error)) from None


def _check_accounts(queues: list[Document]) -> None:
    """Raise ClickException if a queue names an account of the other machine."""
    for sid, named in unknown(queues).items():
        raise click.ClickException(
            f"queue {named[0]} names the account {sid}, which this machine may not know: map it to an account of this "
            "machine with --accounts"
        )


def _missing(api: ActionsByHttp, queues: list[Document]) -> list[Document]:
    absent = set(absent_queues(api.http, [queue["name"] for queue in queues]))
    return [queue for queue in queues if queue["name"] in absent]


def _steps(api: ActionsByHttp, queues: list[Document]) -> Any:
    return api.plan(import_definitions, DefinitionsRequest({"format": FORMAT, "queues": queues}))


@adopt.command()
@_queues
@accounts_option
@_there
@api_options
@json_option
def plan(queues: tuple[str, ...], accounts: Path | None, other: Other, api: ApiOptions, as_json: bool) -> None:
    """Show what `openmsmq adopt run` would do: which queues and rights it would create and which messages it would
    fetch.

    Queues and rights are read from HOST through the options --port, --user and so on.
    """
    actions = ActionsByHttp(api.client())
    with other.there() as qm:
        found = _definitions(qm, queues, accounts_in(accounts))
        counts = {name: _count(qm, name) for name in queues}
    new = _missing(actions, found)
    _check_named(found)
    would: Differences | None = _steps(actions, new).would() if new else None
    running = {relay.queue.lower() for relay in actions.perform(list_relays, RelayQuery()).relays}
    if as_json:
        print_json({
            "create": [step.said for step in would.steps if step.can] if would else [],
            "accounts": unknown(new), "messages": counts,
            "running": [name for name in queues if relays.relay_queue(name).lower() in running],
        })  # fmt: skip
        return
    for step in would.steps if would else ():
        if step.can:
            echo(f"would {step.said}")
    for sid, named in unknown(new).items():
        echo(
            f"account {sid} belongs to {other.host}: map it to an account of this machine with --accounts "
            f"({', '.join(named)})"
        )
    for name in queues:
        is_running = relays.relay_queue(name).lower() in running
        count = counts[name]
        messages = "an unknown number of messages" if count is None else counted(count, "message")
        would_do = (
            "is already being moved"
            if is_running
            else f"would fetch {messages} from {other.host}, and those that arrive later"
        )
        echo(f"{name}: {would_do}")


def _check_named(found: list[Document]) -> None:
    """Raise ClickException for a queue whose properties could not be read, because it cannot be created here."""
    for queue in found:
        if "unreadable" in queue and "transactional" not in queue:
            raise click.ClickException(
                f"queue {queue['name']} cannot be read on the other machine by this user: {queue['unreadable']}; "
                "create it here first (openmsmq queue create), or log in as a user who may read it"
            )


def _count(qm: QueueManager, name: str) -> int | None:
    """Return the number of messages of a queue. Return None if the other machine does not report it."""
    try:
        count = qm.management(path_of(name)).get("message_count")
    except UNANSWERED:
        raise
    except MsmqError:
        return None
    return count if isinstance(count, int) else None


@adopt.command()
@_queues
@accounts_option
@_there
@click.option("--journal", is_flag=True, help="Include the messages in the journals of these queues.")
@click.option(
    "--dead-letters", is_flag=True, help="Include the dead letters of HOST, both transactional and other ones."
)
@api_options
@json_option
def run(
    queues: tuple[str, ...], accounts: Path | None, other: Other, journal: bool, dead_letters: bool, api: ApiOptions,
    as_json: bool,
) -> None:  # fmt: skip
    """Create the queues of HOST here, with their rights, and fetch their messages, including those that arrive later.

    A queue that exists here is not changed; a move that has begun continues. The command reads queues and rights from
    HOST through the options --port, --user and so on. The daemon fetches the messages; it finds HOST through the
    setting peers or DNS.
    """
    actions = ActionsByHttp(api.client())
    with other.there() as qm:
        found = _definitions(qm, queues, accounts_in(accounts))
    new = _missing(actions, found)
    _check_named(new)
    _check_accounts(new)
    if new:
        try:
            made = _steps(actions, new).carry_out()
        except (ActionIncomplete, ActionRefused) as error:
            raise click.ClickException(str(error)) from None
        for step in made.steps:
            if not as_json and step.result == "done":
                echo(step.said.replace("create", "created", 1))
    running = {relay.queue.lower(): relay for relay in actions.perform(list_relays, RelayQuery()).relays}
    failed = False
    for name in _along(queues, journal, dead_letters):
        known = running.get(relays.relay_queue(name).lower())
        try:
            begun = _begun(actions, name, other.host, known)
        except ApiError as error:
            failed = True
            report(as_json, f"{name}: {error}", {"queue": name, "error": str(error)}, err=not as_json)
            continue
        report(as_json, f"{begun.queue}: {begun.state}", {"queue": begun.queue, "state": begun.state})
    if failed:
        sys.exit(1)


def _begun(actions: ActionsByHttp, name: str, host: str, known: RelayView | None) -> RelayView:
    """Start or continue the relay of a queue. A relay that has ended starts again. Raises ApiError."""
    if known is None:
        begun: RelayView = actions.perform(begin_relay, NewRelay(queue_named(actions.http, name).id, host)).relay
        return begun
    if known.host.casefold() != host.casefold():
        raise ApiError(f"the queue is already being moved from or to {known.host}; end that with openmsmq adopt forget")
    if known.state not in ("done", "returned"):
        return known
    again: RelayView = actions.perform(step_relay, RelayStepInput(known.queue, "shadow")).relay
    return again


def _along(queues: tuple[str, ...], journal: bool, dead_letters: bool) -> list[str]:
    """Return the queues, their journals and the dead-letter queues to move, each once."""
    with_journals = [
        each
        for name in queues
        for each in ((name, f"{name};journal") if journal and relays.has_journal(name) else (name,))
    ]
    return list(dict.fromkeys([*with_journals, *(DEAD_LETTER_QUEUES if dead_letters else ())]))


@adopt.command()
@click.argument("queue")
@click.option(
    "--remote", metavar="NAME", help="Path name of the queue on the other machine (default: the same as here)."
)
@click.option(
    "--here", metavar="ADDRESS", default="localhost", show_default=True, help="Address of the queue manager here."
)
@click.option("--here-port", type=PORT, help="Port of the queue manager here (default 2103).")
@_there
@json_option
def verify(queue: str, remote: str | None, here: str, here_port: int | None, other: Other, as_json: bool) -> None:
    """Compare QUEUE here with the queue of HOST, message by message.

    Messages that arrive or leave during the comparison count as differences. Both queues are read as the same user.
    Exit code 1 if anything differs.
    """
    with other.there() as theirs, other.here(here, here_port) as own:
        with theirs.open(path_of(remote or queue), "peek") as left, own.open(path_of(queue), "peek") as right:
            found = compare(left, right)
    if as_json:
        print_json(found._asdict() | {
            "equal": found.are_equal,
            "left_only": [each._asdict() for each in found.left_only],
            "right_only": [each._asdict() for each in found.right_only],
        })  # fmt: skip
    else:
        _show(found, other.host)
    if not found.are_equal:
        sys.exit(1)


def _show(found: Comparison, host: str) -> None:
    echo(f"{counted(found.left, 'message')} at {host}, {counted(found.right, 'message')} here, {found.both:,} in both")
    for where, sided, every in (
        (f"only at {host}", found.left_only, found.left - found.both),
        ("here only", found.right_only, found.right - found.both),
    ):  # fmt: skip
        for each in sided:
            echo(f"{where}: {each.id} sent {time_text(each.sent)}, {each.size:,} bytes, {each.label!r}")
        if every > len(sided):
            echo(f"{where}: and {every - len(sided):,} more")
    if not found.in_order:
        echo("the messages that both queues have are in a different order")
