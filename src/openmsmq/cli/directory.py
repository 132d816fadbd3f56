"""`openmsmq directory …`: read and change the directory file that daemons share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import click

from openmsmq.cli.asking import confirm
from openmsmq.cli.exit_codes import EXISTS, NOT_FOUND, UNREACHABLE
from openmsmq.cli.output import echo, json_option, print_json, print_table, report
from openmsmq.directory import tables
from openmsmq.directory.embedded import EmbeddedDirectory
from openmsmq.directory.lookup import Filter, Relation
from openmsmq.directory.provider import (
    DirectoryError,
    DirectoryNotConnected,
    ListRecord,
    MachineRecord,
    ObjectExists,
    ObjectNotFound,
    QueueRecord,
)
from openmsmq.model import names
from openmsmq.model.errors import IllegalFormatName
from openmsmq.model.text import counted, time_text
from openmsmq.server.config import ConfigurationError
from openmsmq.server.loading import load

T = TypeVar("T")

_PAGE = 1000


class OpenedDirectory:
    """The directory file, open for one command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def do(self, work: Callable[[EmbeddedDirectory], Awaitable[T]]) -> T:
        """Run a coroutine on the directory. Raises click.ClickException."""
        if not self.path.exists():
            raise Unusable(
                f"there is no directory at {self.path}: a queue manager with directory_provider = sqlite creates it "
                "when it starts; name it with --data-dir or --directory-path"
            )

        async def run() -> T:
            directory = EmbeddedDirectory(self.path)
            try:
                return await work(directory)
            finally:
                await directory.close()

        try:
            return asyncio.run(run())
        except DirectoryError as error:
            raise _failure(error) from None


class NotFound(click.ClickException):
    exit_code = NOT_FOUND


class Exists(click.ClickException):
    exit_code = EXISTS


class Unusable(click.ClickException):
    exit_code = UNREACHABLE


def _failure(error: DirectoryError) -> click.ClickException:
    """Return an error message for a failure, with the exit code that other commands use for it."""
    match error:
        case ObjectNotFound():
            return NotFound(f"{error} is not in the directory")
        case ObjectExists():
            return Exists(f"the directory already has {error}")
        case DirectoryNotConnected():
            return Unusable(f"cannot use the directory: {error}")
    return click.ClickException(str(error))


@click.group()
@click.option("--data-dir", type=click.Path(path_type=Path), default=None, envvar="OPENMSMQ_DATA_DIR")
@click.option("--directory-path", type=click.Path(path_type=Path), default=None, envvar="OPENMSMQ_DIRECTORY_PATH")
@click.pass_context
def directory(context: click.Context, data_dir: Path | None, directory_path: Path | None) -> None:
    """Show the directory of public queues and machines; manage distribution lists.

    Works on the file, whether or not queue managers are running. They see changes at once.
    """
    try:
        configuration = load(options={"data_dir": data_dir, "directory_path": directory_path})
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
    context.obj = OpenedDirectory(configuration.directory_file)


@directory.command()
@json_option
@click.pass_obj
def show(opened: OpenedDirectory, as_json: bool) -> None:
    """Show the location of the directory and the number of its objects."""

    async def work(d: EmbeddedDirectory) -> dict[str, int]:
        return {
            "machines": len(await d.machines()),
            "public_queues": len(await _queues(d, [])),
            "distribution_lists": len(await d.distribution_lists()),
        }

    values: dict[str, Any] = {"file": str(opened.path), "schema_version": tables.VERSION, **opened.do(work)}
    if as_json:
        print_json(values)
    else:
        print_table(["", "value"], [[name, str(value)] for name, value in values.items()])


@directory.command()
@click.option("--label", help="Only queues with this label; case does not matter.")
@click.option("--machine", help="Only queues of this machine (computer name or DNS name).")
@json_option
@click.pass_obj
def queues(opened: OpenedDirectory, label: str | None, machine: str | None, as_json: bool) -> None:
    """List public queues."""

    async def work(d: EmbeddedDirectory) -> list[QueueRecord]:
        filters = [] if label is None else [Filter("label", Relation.EQUALS, label)]
        if machine is not None:
            filters.append(Filter("machine", Relation.EQUALS, (await d.machine_named(machine)).identifier))
        return await _queues(d, filters)

    found = opened.do(work)
    if as_json:
        for record in found:
            print_json({
                "path_name": record.path_name, "format_name": f"PUBLIC={record.identifier}", "label": record.label,
                "transactional": record.transactional, "machine": str(record.machine),
                "multicast_address": record.multicast_address, "create_time": record.create_time,
                "modify_time": record.modify_time,
            })  # fmt: skip
        return
    rows = [[q.path_name, f"PUBLIC={q.identifier}", q.label, time_text(q.create_time)] for q in found]
    print_table(["queue", "format name", "label", "created"], rows)


async def _queues(d: EmbeddedDirectory, filters: list[Filter]) -> list[QueueRecord]:
    found: list[QueueRecord] = []
    while page := await d.find_queues(filters, found[-1].position if found else 0, _PAGE):
        found += page
    return found


@directory.group(invoke_without_command=True)
@json_option
@click.pass_context
def machines(context: click.Context, as_json: bool) -> None:
    """List the queue managers that have registered, with their identifiers."""
    if context.invoked_subcommand is not None:
        return

    async def work(d: EmbeddedDirectory) -> list[MachineRecord]:
        return list(await d.machines())

    found = context.obj.do(work)
    if as_json:
        for record in found:
            name, dns_names = record.computer_name, list(record.dns_names)
            print_json({"computer_name": name, "identifier": str(record.identifier), "dns_names": dns_names})
        return
    rows = [[record.computer_name, str(record.identifier), ", ".join(record.dns_names)] for record in found]
    print_table(["machine", "identifier", "DNS names"], rows)


@machines.command("remove")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def remove_machine(opened: OpenedDirectory, name: str, yes: bool, as_json: bool) -> None:
    """Remove a queue manager that no longer exists, and the records of its queues.

    Another queue manager can then take its name. A queue manager that is still running registers again within a minute,
    but its public queues stay unknown.
    """
    if not yes:
        confirm(f"Remove {name} and the records of its public queues?")

    async def work(d: EmbeddedDirectory) -> MachineRecord:
        record = await d.machine_named(name)
        await d.remove_machine(record.identifier)
        return record

    record = opened.do(work)
    report(as_json, f"removed {record.computer_name}", {"removed": record.computer_name})


@directory.group(invoke_without_command=True)
@json_option
@click.pass_context
def lists(context: click.Context, as_json: bool) -> None:
    """List distribution lists, or change one: a message to DL=identifier goes to every member."""
    if context.invoked_subcommand is not None:
        return

    async def work(d: EmbeddedDirectory) -> list[ListRecord]:
        return list(await d.distribution_lists())

    found = context.obj.do(work)
    if as_json:
        for record in found:
            print_json(_document(record))
        return
    rows = [
        [record.name if first else "", f"DL={record.identifier}" if first else "", member]
        for record in found
        for first, member in _firsts(record.members)
    ]
    print_table(["list", "format name", "member"], rows)


def _firsts(members: tuple[str, ...]) -> list[tuple[bool, str]]:
    return [(index == 0, member) for index, member in enumerate(members or ("none",))]


def _document(record: ListRecord) -> dict[str, Any]:
    return {"name": record.name, "format_name": f"DL={record.identifier}", "members": list(record.members)}


@lists.command("create")
@click.argument("name")
@click.argument("members", nargs=-1, metavar="[FORMAT_NAME]...")
@json_option
@click.pass_obj
def create_list(opened: OpenedDirectory, name: str, members: tuple[str, ...], as_json: bool) -> None:
    """Create a distribution list of queues, given by format name; print the format name of the list."""
    for member in members:
        _check_member(member)
    record = opened.do(lambda d: d.create_list(name, members))
    report(as_json, f"DL={record.identifier}", _document(record))


@lists.command("add")
@click.argument("name")
@click.argument("members", nargs=-1, required=True, metavar="FORMAT_NAME...")
@json_option
@click.pass_obj
def add_members(opened: OpenedDirectory, name: str, members: tuple[str, ...], as_json: bool) -> None:
    """Add queues to a distribution list, by format names; NAME is its name or DL=identifier."""
    for member in members:
        _check_member(member)
    _change(opened, name, as_json, add=members)


@lists.command("remove")
@click.argument("name")
@click.argument("members", nargs=-1, required=True, metavar="FORMAT_NAME...")
@json_option
@click.pass_obj
def remove_members(opened: OpenedDirectory, name: str, members: tuple[str, ...], as_json: bool) -> None:
    """Remove queues from a distribution list."""
    _change(opened, name, as_json, remove=members)


def _change(
    opened: OpenedDirectory, name: str, as_json: bool, add: tuple[str, ...] = (), remove: tuple[str, ...] = ()
) -> None:
    async def work(d: EmbeddedDirectory) -> tuple[ListRecord, ListRecord]:
        before = await _named(d, name)
        return before, await d.set_members(before.identifier, add, remove)

    before, after = opened.do(work)
    for member in remove:
        if member.casefold() not in (known.casefold() for known in before.members):
            echo(f"{member} is not a member of {before.name}", err=True)
    report(as_json, f"{after.name} has {counted(len(after.members), 'member')}", _document(after))


@lists.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def delete_list(opened: OpenedDirectory, name: str, yes: bool, as_json: bool) -> None:
    """Delete a distribution list; its queues stay."""
    if not yes:
        confirm(f"Delete the distribution list {name}?")

    async def work(d: EmbeddedDirectory) -> ListRecord:
        record = await _named(d, name)
        await d.remove_list(record.identifier)
        return record

    record = opened.do(work)
    report(as_json, f"deleted {record.name}", {"deleted": record.name})


async def _named(d: EmbeddedDirectory, name: str) -> ListRecord:
    """Return a list by its name or format name. Raises click.ClickException, ObjectNotFound."""
    if name.upper().startswith("DL="):
        try:
            return await d.distribution_list(UUID(name[3:]))
        except ValueError:
            raise click.UsageError(f"{name} is not the format name of a distribution list (DL=GUID)") from None
    known = await d.distribution_lists()
    for record in known:
        if record.name.casefold() == name.casefold():
            return record
    there = ", ".join(record.name for record in known) or "none"
    raise NotFound(f"there is no distribution list {name}; there are: {there}")


def _check_member(text: str) -> None:
    """Raise click.UsageError for a format name that does not stand for one queue, or list of queues, to send to."""
    try:
        name = names.parse_format_name(text)
    except IllegalFormatName as error:
        raise click.UsageError(error.detail) from None
    if isinstance(name, names.MultipleElementFormatName):
        raise click.UsageError(f"{text}: give each queue as a separate argument")
    if isinstance(name, names.MachineFormatName) or getattr(name, "suffix", None) in names.READ_ONLY:
        raise click.UsageError(f"{text}: messages cannot be sent to this queue")
