"""The options that all client commands share, and the connection that they describe."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

import openmsmq
import openmsmq.aio
from msrpc.rpc.kerberos import KerberosCredentials
from msrpc.rpc.pdu import AuthLevel
from openmsmq.cli.asking import ask_password
from openmsmq.cli.numbers import PORT, PORT_OFFSET
from openmsmq.client.asynchronous import QueueManager as AsyncQueueManager
from openmsmq.client.open_queue import PROTOCOLS
from openmsmq.client.sync import QueueManager
from openmsmq.model.errors import AnswerTimeout, RpcConnectionError

FLIGHT_PORT = 18020
STANDARD_PORT = 2103  # of the protocol qmcomm
_THIS_MACHINE = "localhost"
_HERE = (_THIS_MACHINE, "127.0.0.1", "::1")
_PATIENCE = 3.0  # seconds that a queue manager of this machine may take to accept a connection
# words of openmsmq.server.allowed_values, which is slow to import
LEVELS = ("none", "connect", "packet", "integrity", "privacy")

protocol_option = click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    default="auto",
    help="Protocol for reading the queue: remoteread is MS-MQRR, qmcomm is MS-MQMP; auto uses the first that the "
    "server offers.",
)


_SERVER = (
    click.option(
        "--host", default=_THIS_MACHINE, envvar="OPENMSMQ_HOST", show_default=True, help="Host of the queue manager."
    ),
    click.option("--port", type=PORT, envvar="OPENMSMQ_PORT", help="RPC port (2103 plus the offset)."),
    click.option(
        "--port-offset",
        type=PORT_OFFSET,
        default=0,
        envvar="OPENMSMQ_PORT_OFFSET",
        help="Offset added to the default ports.",
    ),
    click.option("--user", envvar="OPENMSMQ_USER", help="Name to log in with: DOMAIN\\USER or USER."),
    click.option(
        "--password-env", default="OPENMSMQ_PASSWORD", help="Environment variable that contains the password."
    ),
    click.option(
        "--kerberos", is_flag=True, envvar="OPENMSMQ_KERBEROS", help="Log in with the Kerberos ticket of kinit."
    ),
    click.option("--kerberos-service", help="Principal of the server (default: host/ and the value of --host)."),
)


level_option = click.option(
    "--level", type=click.Choice(LEVELS), help="Protection level of the connection (default with --user: integrity)."
)


class Address(NamedTuple):
    """Values of the server options."""

    host: str
    port: int | None
    port_offset: int
    user: str | None
    password_env: str
    kerberos: bool
    kerberos_service: str | None

    def password(self) -> str:
        """Return the password from an environment variable or the prompt; empty for an anonymous caller. Raises
        UsageError if a prompt is combined with --kerberos.
        """
        if self.kerberos:
            raise click.UsageError("--kerberos works for RPC calls only, and not together with --user or Arrow Flight")
        if self.user is None:
            return ""
        from_environment = os.environ.get(self.password_env)
        return from_environment or ask_password(f"Password of {self.user}", f"set {self.password_env}")


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `address`, from --host, --port, --port-offset, --user, --password-env and --kerberos."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        address = Address(**{name: kwargs.pop(name) for name in Address._fields})
        return command(*args, address=address, **kwargs)

    for option in reversed(_SERVER):
        wrapper = option(wrapper)
    return wrapper


def login_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `address_of`, which returns the address for a host, from all server options except --host."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        rest = {name: kwargs.pop(name) for name in Address._fields if name != "host"}
        return command(*args, address_of=lambda host: Address(host, **rest), **kwargs)

    for option in reversed(_SERVER[1:]):
        wrapper = option(wrapper)
    return wrapper


def flight_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `flight_port` and `tls_root`."""
    port = click.option("--flight-port", type=PORT, help=f"Arrow Flight port ({FLIGHT_PORT} plus the offset).")
    return port(
        click.option("--tls-root", help="File with the root certificate that verifies the Flight server.")(command)
    )


def connected(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `qm`, a connected QueueManager, from the server options and --level."""

    @server_options
    @level_option
    @functools.wraps(command)
    def wrapper(*args: Any, address: Address, level: str | None, **kwargs: Any) -> Any:
        with connect(address, level) as qm:
            return command(qm, *args, **kwargs)

    return wrapper


def is_here(address: Address) -> bool:
    """Return whether the server options name no machine other than this one."""
    return address.host in _HERE


def has_server(address: Address) -> bool:
    """Return whether the server options name a queue manager, or one answers on this machine."""
    if address.host != _THIS_MACHINE or address.port is not None:
        return True
    try:
        with socket.create_connection((address.host, STANDARD_PORT + address.port_offset), _PATIENCE):
            return True
    except OSError:
        return False


def answering_port() -> int | None:
    """Return the port of the queue manager on this machine, using the port offset of the environment; None if none
    answers.
    """
    if os.environ.get("OPENMSMQ_HOST", _THIS_MACHINE) not in _HERE:
        return None
    try:
        given = os.environ.get("OPENMSMQ_PORT")
        port = int(given) if given else STANDARD_PORT + int(os.environ.get("OPENMSMQ_PORT_OFFSET") or 0)
        with socket.create_connection((_THIS_MACHINE, port), _PATIENCE):
            return port
    except (OSError, ValueError, OverflowError):
        return None


def connect(address: Address, level: str | None) -> QueueManager:
    with _remedy(address):
        return openmsmq.connect(**_arguments(address, level))


async def connect_async(address: Address, level: str | None) -> AsyncQueueManager:
    """Connect like `connect`, for commands that make many calls at the same time."""
    with _remedy(address):
        return await openmsmq.aio.connect(**_arguments(address, level))


@contextmanager
def _remedy(address: Address) -> Iterator[None]:
    """Add what to check to the error of a failed connect."""
    try:
        yield
    except RpcConnectionError as error:
        if type(error) not in (RpcConnectionError, AnswerTimeout):
            raise
        where = "here" if is_here(address) else "there"
        context = click.get_current_context(silent=True)  # None in other threads
        known = {name for each in (context.command.params if context is not None else ()) for name in each.opts}
        options = [name for name in ("--host", "--port", "--port-offset") if name in known]
        see = f" See {', '.join(options)}" if options else ""
        raise type(error)(f"{error}; does a queue manager run {where}?{see}") from error


def _arguments(address: Address, level: str | None) -> dict[str, Any]:
    """Return the arguments for `openmsmq.connect`. Raises UsageError."""
    return login_of(address, level) | {
        "host": address.host, "port": address.port, "port_offset": address.port_offset,
        "kerberos": address.kerberos and KerberosCredentials(address.kerberos_service or ""),
    }  # fmt: skip


def login_of(address: Address, level: str | None) -> dict[str, Any]:
    """Return user, password, domain and level for `openmsmq.connect` and `openmsmq.com.connect`. Raises UsageError."""
    domain, _, user = (address.user or "").rpartition("\\")
    if "\\" in domain:
        raise click.UsageError(f"--user is {address.user!r}; allowed: USER, or DOMAIN\\USER with one backslash")
    return {
        "user": None if address.user is None else user,
        "password": "" if address.kerberos and address.user is None else address.password(),
        "domain": domain, "level": _protection(level) if level else None,
    }  # fmt: skip


def _protection(level: str) -> AuthLevel:
    from openmsmq.server import allowed_values

    return allowed_values.LEVELS[level]
