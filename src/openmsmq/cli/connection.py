"""Options that every client command has, and the connection they describe."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import click

import openmsmq
from openmsmq.client.open_queue import PROTOCOLS
from openmsmq.client.sync import QueueManager
from openmsmq.server.config import LEVELS

protocol_option = click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    default="auto",
    help="How to read the queue: remoteread is MS-MQRR, qmcomm is MS-MQMP; auto takes the first that is offered.",
)


_SERVER = (
    click.option("--host", default="localhost", envvar="OPENMSMQ_HOST", show_default=True, help="Server to talk to."),
    click.option("--port", type=int, envvar="OPENMSMQ_PORT", help="Its port; default 2103 plus the offset."),
    click.option("--port-offset", type=int, default=0, envvar="OPENMSMQ_PORT_OFFSET", help="Added to default ports."),
    click.option("--user", envvar="OPENMSMQ_USER", help="Authenticate as DOMAIN\\\\USER or USER."),
    click.option("--password-env", default="OPENMSMQ_PASSWORD", help="Environment variable with the password."),
)


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --host, --port, --port-offset, --user and --password-env."""
    for option in reversed(_SERVER):
        command = option(command)
    return command


def connected(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `qm`, a connected QueueManager, from the server options and --level."""

    @server_options
    @click.option("--level", type=click.Choice(list(LEVELS)), help="Protection; default integrity with --user.")
    @functools.wraps(command)
    def wrapper(
        *args: Any,
        host: str,
        port: int | None,
        port_offset: int,
        user: str | None,
        password_env: str,
        level: str | None,
        **kwargs: Any,
    ) -> Any:
        with connect(host, port, port_offset, user, password_env, level) as qm:
            return command(qm, *args, **kwargs)

    return wrapper


def password_of(user: str, variable: str) -> str:
    """From an environment variable, or typed."""
    return os.environ.get(variable) or str(click.prompt(f"Password of {user}", hide_input=True, err=True))


def connect(
    host: str, port: int | None, port_offset: int, user: str | None, password_env: str, level: str | None
) -> QueueManager:
    domain, password = "", ""
    if user is not None:
        domain, _, user = user.rpartition("\\")
        password = password_of(user, password_env)
    return openmsmq.connect(
        host,
        port,
        port_offset=port_offset,
        user=user,
        password=password,
        domain=domain,
        level=LEVELS[level] if level else None,
    )
