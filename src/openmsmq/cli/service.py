"""`openmsmq serve|user|fsck|protocols`"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click

from openmsmq.cli.output import echo, json_option, print_json, print_table
from openmsmq.cli.recording import LocalAudit
from openmsmq.model.roles import WORDS as ROLES
from openmsmq.model.roles import Role, role_of
from openmsmq.rpc.users import UsersFile, UsersFileError
from openmsmq.server.config import Configuration, ConfigurationError
from openmsmq.server.interfaces import check_interfaces
from openmsmq.server.loading import load

_KINDS = {"int": int, "int | None": int, "float": float, "str": str, "bool": bool}


def _settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """One option for each setting of the configuration."""
    for field in reversed(fields(Configuration)):
        if "file_only" in field.metadata or "internal" in field.metadata:
            continue
        kind = str(field.type)
        flag = "--" + field.name.replace("_", "-")
        text = field.metadata["help"]
        if "bool" in kind:
            command = click.option(f"{flag}/--no-{flag[2:]}", field.name, default=None, help=text)(command)
        else:
            option_type = click.Path(path_type=Path) if "Path" in kind else _KINDS[kind]
            shown = text if "default" in text or field.default is None else f"{text} (default {field.default})"
            command = click.option(flag, field.name, type=option_type, default=None, help=shown)(command)
    return command


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="TOML file with the same settings.")
@_settings
def serve(config: Path | None, **options: Any) -> None:
    """Run the queue manager until SIGTERM.

    Prints one line of JSON when it accepts calls; logs go to standard error. Every setting may also stand in --config
    (rpc_port = 2103) or in the environment (OPENMSMQ_RPC_PORT=2103).
    """
    from openmsmq.server.daemon import run

    try:
        configuration = load(config, options=options)
        check_interfaces(configuration)
        code = run(configuration)  # which finds settings that do not fit the store
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
    sys.exit(code)


@click.group()
@click.option("--data-dir", type=click.Path(path_type=Path), default=None, envvar="OPENMSMQ_DATA_DIR")
@click.option("--users-file", type=click.Path(path_type=Path), default=None, envvar="OPENMSMQ_USERS_FILE")
@click.pass_context
def user(context: click.Context, data_dir: Path | None, users_file: Path | None) -> None:
    """Manage the users that NTLM authenticates. A running daemon notices changes."""
    try:
        configuration = load(options={"data_dir": data_dir, "users_file": users_file})
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
    configuration.users_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    record = LocalAudit(configuration)
    context.obj = UsersFile(configuration.users_path, on_change=lambda action, name: record(action, "user", name))


def _password(given: bool) -> str:
    if given:
        return sys.stdin.readline().rstrip("\r\n")
    password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password


_ROLE = "What the user may do by HTTP at most; rights say what of it."
_stdin_option = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")


@user.command("add")
@click.argument("name")
@_stdin_option
@click.option(
    "--admin",
    is_flag=True,
    help="Make the user an administrator: it may pause outgoing queues, read them, disconnect the machine, ...",
)
@click.option("--role", type=click.Choice(ROLES), default=Role.ADMINISTRATOR.word, show_default=True, help=_ROLE)
@click.pass_obj
def user_add(users: UsersFile, name: str, password_stdin: bool, admin: bool, role: str) -> None:
    """Add a user; prints its SID."""
    with _users_errors():
        echo(users.add(name, _password(password_stdin), administrator=admin, role=role_of(role)).sid)


@user.command("role")
@click.argument("name")
@click.argument("role", type=click.Choice(ROLES))
@click.pass_obj
def user_role(users: UsersFile, name: str, role: str) -> None:
    """Bound what a user may do by HTTP and in the console: `monitor` sees figures, names and states; `operator` also
    reads, sends, moves and deletes messages; `administrator` does whatever the user's rights allow."""
    with _users_errors():
        users.set_role(name, role_of(role))


@user.command("admin")
@click.argument("name")
@click.option("--revoke", is_flag=True, help="Revoke administrator rights.")
@click.pass_obj
def user_admin(users: UsersFile, name: str, revoke: bool) -> None:
    """Make a user an administrator of the queue manager."""
    with _users_errors():
        users.set_administrator(name, not revoke)


@user.command("list")
@json_option
@click.pass_obj
def user_list(users: UsersFile, as_json: bool) -> None:
    """List users with their SIDs and groups."""
    with _users_errors():
        found, groups = users.list(), users.groups()
    within = {user.sid: [group.name for group in groups if user.sid in group.members] for user in found}
    if as_json:
        for entry in found:
            print_json({"name": entry.name, "sid": entry.sid, "administrator": entry.administrator,
                        "role": entry.role.word, "groups": within[entry.sid]})  # fmt: skip
    else:
        rows = [
            [entry.name, entry.sid, "yes" if entry.administrator else "", entry.role.word, ", ".join(within[entry.sid])]
            for entry in found
        ]
        print_table(["user", "SID", "administrator", "role by HTTP", "groups"], rows)


@user.command("remove")
@click.argument("name")
@click.pass_obj
def user_remove(users: UsersFile, name: str) -> None:
    """Remove a user."""
    with _users_errors():
        users.remove(name)


@user.command("passwd")
@click.argument("name")
@_stdin_option
@click.pass_obj
def user_passwd(users: UsersFile, name: str, password_stdin: bool) -> None:
    """Change the password of a user."""
    with _users_errors():
        users.set_password(name, _password(password_stdin))


@user.group("group")
def user_group() -> None:
    """Manage groups of users: a right that is given to a group counts for each member."""


@user_group.command("add")
@click.argument("name")
@click.argument("members", nargs=-1, metavar="[USER]...")
@click.pass_obj
def group_add(users: UsersFile, name: str, members: tuple[str, ...]) -> None:
    """Add a group, with members if any are named; prints its SID."""
    with _users_errors():
        sid = users.add_group(name, members).sid
    echo(sid)


@user_group.command("remove")
@click.argument("name")
@click.pass_obj
def group_remove(users: UsersFile, name: str) -> None:
    """Remove a group. Rights that were given to it stay where they are, for nobody."""
    with _users_errors():
        users.remove_group(name)


@user_group.command("join")
@click.argument("name")
@click.argument("members", nargs=-1, required=True, metavar="USER...")
@click.pass_obj
def group_join(users: UsersFile, name: str, members: tuple[str, ...]) -> None:
    """Make users members of a group, from their next call on."""
    with _users_errors():
        users.change_members(name, join=members)


@user_group.command("leave")
@click.argument("name")
@click.argument("members", nargs=-1, required=True, metavar="USER...")
@click.pass_obj
def group_leave(users: UsersFile, name: str, members: tuple[str, ...]) -> None:
    """Make users members of a group no longer."""
    with _users_errors():
        users.change_members(name, leave=members)


@user_group.command("list")
@json_option
@click.pass_obj
def group_list(users: UsersFile, as_json: bool) -> None:
    """List groups with their SIDs and members."""
    with _users_errors():
        found, names = users.groups(), users.names()
    rows: list[dict[str, Any]] = [
        {"name": group.name, "sid": group.sid, "members": sorted(names.get(sid, sid) for sid in group.members)}
        for group in found
    ]
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(["group", "SID", "members"], [[r["name"], r["sid"], ", ".join(r["members"])] for r in rows])


class _users_errors:
    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UsersFileError):
            raise click.ClickException(str(error)) from None


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--repair", is_flag=True, help="Move damaged records into a quarantine file; keep all other records.")
@click.option("--quarantine", type=click.Path(path_type=Path), help="Quarantine file; default: DIRECTORY/quarantine-N.")
@json_option
def fsck(directory: Path, repair: bool, quarantine: Path | None, as_json: bool) -> None:
    """Verify the store in a data DIRECTORY completely; the daemon reads only the log since the last checkpoint.

    Exit code 0 if it is sound, 1 if not, 2 if DIRECTORY holds no store.
    """
    from openmsmq.store import fsck as store_fsck
    from openmsmq.store.errors import NoStore
    from openmsmq.store.ownership import current
    from openmsmq.store.vfs import OsVfs

    store = directory / "store"
    if current(OsVfs(), str(store.absolute())) is None:
        store = directory
    try:
        _fsck(store_fsck, store, directory, repair, quarantine, as_json)
    except NoStore as error:
        raise click.UsageError(str(error)) from None


def _fsck(store_fsck: Any, store: Path, directory: Path, repair: bool, quarantine: Path | None, as_json: bool) -> None:
    if repair:
        target = quarantine or _unused(directory)
        repaired = store_fsck.repair(str(store), str(target))
        report = repaired.after
        if repaired.quarantined:
            echo(f"{len(repaired.quarantined)} damaged ranges moved to {target}", err=as_json)
    else:
        report = store_fsck.verify(str(store))
    if as_json:
        print_json({**asdict(report), "clean": report.clean})
    else:
        for damage in report.damages:
            echo(f"DAMAGED {damage}")
        for damage in report.weak:
            echo(f"weak    {damage}")
        echo(
            f"{len(report.segments)} segments, {report.records} records, {report.messages} messages, "
            f"{report.definitions} definitions, {report.torn_bytes} torn bytes"
        )
        echo("clean" if report.clean else "DAMAGED: openmsmq fsck --repair")
    sys.exit(0 if report.clean else 1)


def _unused(directory: Path) -> Path:
    return next(path for n in itertools.count(1) if not (path := directory / f"quarantine-{n}").exists())


@click.command()
@json_option
@click.option("--markdown", is_flag=True, help="Print the table as Markdown, as in docs/operations.md.")
@click.option(
    "--summary", is_flag=True, help="Print as Markdown how many operations each interface has, as in the README."
)
def protocols(as_json: bool, markdown: bool, summary: bool) -> None:
    """List the interfaces and operations that are served, with the tests that prove them."""
    from openmsmq.cli.protocol_table import markdown_summary, markdown_table, rows

    if as_json:
        print_json(rows())
    elif markdown:
        echo(markdown_table(), multiline=True)
    elif summary:
        echo(markdown_summary(), multiline=True)
    else:
        print_table(["interface", "opnum", "operation", "state", "test"], [list(row.values()) for row in rows()])
