"""`openmsmq quickstart`"""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from openmsmq.cli.output import echo

if TYPE_CHECKING:
    from openmsmq.server.config import Configuration
    from openmsmq.server.daemon import Daemon

_OFFSET = 10_000  # ports below 1024 require root, and 1801 and 2103 may be in use


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=Path("openmsmq-data"))
@click.option("--user", "name", default="admin", show_default=True, help="Name of the administrator.")
@click.option(
    "--port-offset",
    type=click.IntRange(min=0),
    default=_OFFSET,
    show_default=True,
    envvar="OPENMSMQ_PORT_OFFSET",
    help="Offset added to the standard ports (0: the standard ports; 135 requires root).",
)
def quickstart(directory: Path, name: str, port_offset: int) -> None:
    """Create a data directory and an administrator, start a queue manager, and print how to log in.

    DIRECTORY is ./openmsmq-data by default. The queue manager listens on this machine only and serves the console; it
    runs until Ctrl-C. The printed link logs in once, within 15 minutes. In an existing DIRECTORY, the command keeps all
    data, starts the queue manager again and prints a new link.
    """
    from openmsmq.accounts.users import UsersFile
    from openmsmq.server.config import ConfigurationError
    from openmsmq.server.daemon import check_interpreter, run
    from openmsmq.server.loading import load

    options: dict[str, Any] = {
        "data_dir": directory, "port_offset": port_offset, "web": True, "log_level": "warning"
    }  # fmt: skip
    try:
        check_interpreter()
        configuration = load(None, options=options)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        password = _add_administrator(UsersFile(configuration.users_path), name)
        code = run(configuration, lambda daemon: _welcome(daemon, configuration, name, password))
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
    sys.exit(code)


def _add_administrator(users: Any, name: str) -> str:
    """Return the password of a new administrator; empty for an existing one. Raises UsageError for a user without
    administrator rights.
    """
    known = next((user for user in users.list() if user.name.casefold() == name.casefold()), None)
    if known is None:
        password = secrets.token_urlsafe(12)
        users.add(name, password, administrator=True)
        return password
    if not known.administrator:
        raise click.UsageError(
            f"{name} is not an administrator: give another --user, or run openmsmq user admin {name}"
        )
    return ""


def _welcome(daemon: Daemon, configuration: Configuration, name: str, password: str) -> None:
    from openmsmq.accounts.login_links import create_link
    from openmsmq.admin.web_address import read_address

    address = read_address(configuration.data_dir)
    assert address is not None, "the HTTP server is up"
    secret = create_link(configuration.data_dir, name)
    lines = [
        f"Queue manager {configuration.machine_name} is running, with its data in {configuration.data_dir.resolve()}.",
        "",
        f"  Console:  {address.url}/login-link#{secret}",
        "            The link logs in once, within 15 minutes.",
        f"  User:     {name}" + (f", password {password}" if password else ""),
        f"  Commands: export OPENMSMQ_PORT_OFFSET={configuration.port_offset} "
        f"OPENMSMQ_DATA_DIR={configuration.data_dir.resolve()}",
        "            openmsmq queue create orders; openmsmq send orders hello; openmsmq peek orders",
        "  Ports:    " + ", ".join(f"{name} {port}" for name, (_, port) in sorted(daemon.endpoints.items())),
        "",
        "Ctrl-C ends it. To run it as a service: docs/operating.md.",
    ]
    for line in lines:
        echo(line)
    sys.stdout.flush()
