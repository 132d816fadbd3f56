"""`openmsmq connect-test`, and sending directly to another machine without a local queue manager."""

from __future__ import annotations

import asyncio
import socket
import sys

import click

from openmsmq.cli.numbers import PORT, SECONDS
from openmsmq.cli.output import echo, json_option, print_json, print_table, report
from openmsmq.model import names
from openmsmq.model.message import Message
from openmsmq.peering import one_shot

_PORTS = ((1801, "messages of queue managers"), (135, "endpoint mapper"), (2103, "calls: open, receive, administer"))
_STEP = 3.0  # seconds for each port


def is_elsewhere(name: str) -> names.DirectFormatName | None:
    """Return the direct format name of another machine, or None for any other text."""
    if not names.is_format_name(name):
        return None
    parsed = names.parse_format_name(name)
    if not isinstance(parsed, names.DirectFormatName) or parsed.is_http:
        return None
    here = (".", "localhost", socket.gethostname().lower(), socket.gethostname().partition(".")[0].lower())
    return None if parsed.host.lower() in here else parsed


def send_directly(
    name: names.DirectFormatName, message: Message, *, port: int, timeout: float, transactional: bool, as_json: bool
) -> None:
    """Hand one message to the queue manager of another machine. Exits with code 1 if that fails."""
    done = asyncio.run(one_shot.deliver(name, message, port=port, timeout=timeout, transactional=transactional))
    document = {
        "id": done.identifier, "queue": str(name), "address": done.address, "queue_manager": done.peer_text,
        "fate": done.fate, "failure": done.failure,
    }  # fmt: skip
    if done.failure:
        report(as_json, f"not sent to {name}: {done.failure}", document, err=not as_json)
        sys.exit(1)
    report(as_json, done.identifier, document)
    if not as_json and done.fate == one_shot.SAVED:
        echo(
            f"{done.address} has saved the message. Without a local queue manager, it is unknown whether the queue "
            "accepts the message; for a transactional queue, use --transaction to find out",
            err=True,
        )


@click.command("connect-test")
@click.argument("host")
@click.option("--message-port", type=PORT, default=1801, show_default=True, help="TCP port of the queue manager.")
@click.option("--timeout", type=SECONDS, default=10, show_default=True, help="Seconds to wait for the session.")
@json_option
def connect_test(host: str, message_port: int, timeout: float, as_json: bool) -> None:
    """Test whether this machine can reach the queue manager of HOST: ports, ping, session.

    The test covers connections from this machine to HOST. To test the other direction, run it on HOST with the name of
    this machine.
    """
    checks = asyncio.run(_checks(host, message_port, timeout))
    if as_json:
        print_json({name: {"result": result, "meaning": meaning} for name, result, meaning in checks})
    else:
        print_table(["check", "result", "meaning"], [list(check) for check in checks])
    if not any(name == "session" and result == "open" for name, result, _ in checks):
        sys.exit(1)


async def _checks(host: str, message_port: int, timeout: float) -> list[tuple[str, str, str]]:
    checks = []
    for standard, what in _PORTS:
        port = message_port if standard == 1801 else standard
        checks.append((f"TCP port {port}", await one_shot.port_is_open(host, port, _STEP), what))
    answer = await one_shot.ping(host)
    checks.append(("UDP port 3527", answer, "ping; some queue managers require it before a session, most do not"))
    probe = names.parse_format_name(f"DIRECT={'TCP' if names.parse_address(host) else 'OS'}:{host}\\private$\\probe")
    assert isinstance(probe, names.DirectFormatName)
    done = await one_shot.deliver(probe, None, port=message_port, timeout=timeout)
    if done.failure:
        checks.append(("session", "failed", done.failure))
    else:
        checks.append(("session", "open", f"messages can be sent to {done.address}, queue manager {done.peer_text}"))
    return checks
