"""The table of commands.

Each command's module is imported only when the command runs: `openmsmq --help` imports none of them, and `openmsmq
queue list` imports no Spark, no store and no daemon.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, NamedTuple

import click


class CommandSpec(NamedTuple):
    module: str  # module, below openmsmq.cli
    help: str  # the first sentence of the command's help; tests/cli/test_start.py compares the two
    attribute: str = ""  # attribute in the module, if it differs from the name of the command


COMMANDS = {
    "alarm": CommandSpec("alarms", "Silence alarms for a time, and change their thresholds while the daemon runs."),
    "alarms": CommandSpec(
        "alarms",
        "Show the active alarms of a daemon: disk, quotas, syncs, dead letters, old messages, outgoing queues.",
    ),
    "audit": CommandSpec(
        "auditing", "Show who changed what, when and from where: the audit log in the data directory of a daemon."
    ),
    "adopt": CommandSpec("adopt", "Move queues from another machine to this one, one at a time, and back again."),
    "backup": CommandSpec("backup", "Copy the data directory of a daemon, which may be running, into a new DIRECTORY."),
    "certificates": CommandSpec("keyring", "Manage the certificates that identify the senders of signed messages."),
    "connection": CommandSpec("connections", "Show who is connected, from where and through which protocol."),
    "connect-test": CommandSpec(
        "remote",
        "Test whether this machine can reach the queue manager of HOST: ports, ping, session.",
        "connect_test",
    ),
    "copy": CommandSpec("messages", "Copy all messages of one queue to another, with their properties."),
    "decode": CommandSpec(
        "decoding",
        "Decode bytes from the network: DCE/RPC PDUs with the fields of their calls, and message packets.",
    ),
    "definitions": CommandSpec(
        "definitions",
        "Export queues, rights, users and settings to a file, compare them with a file, or import a file.",
    ),
    "directory": CommandSpec(
        "directory", "Show the directory of public queues and machines; manage distribution lists."
    ),
    "dlq": CommandSpec("dead_letters", "Show why messages became dead letters; return, redirect or delete them."),
    "domain": CommandSpec("domain", "Join or leave a domain, and check what is configured and what is missing."),
    "export": CommandSpec(
        "messages",
        "Write all messages as JSON lines to FILE or standard output (-): every property, the body in base64.",
    ),
    "fsck": CommandSpec(
        "service",
        "Verify the complete store in a data DIRECTORY; the daemon reads only the log since the last checkpoint.",
    ),
    "forward": CommandSpec("adopt", "Bridge a queue of this machine and a queue of another one permanently."),
    "handle": CommandSpec(
        "handles",
        "Show who has which queue open, exclusively or waiting for messages; close such handles.",
    ),
    "health": CommandSpec("health", "Check whether a queue manager works; scripts can use the exit code."),
    "import": CommandSpec("messages", "Send the messages of a file that `export` wrote.", "import_"),
    "job": CommandSpec(
        "jobs", "Run jobs on any number of messages in the background: start, show, pause, resume and cancel them."
    ),
    "journal": CommandSpec("dead_letters", "Show the journal of a QUEUE, or of the machine if no queue is named."),
    "keys": CommandSpec("keyring", "Manage the keys that encrypt message bodies."),
    "machine": CommandSpec(
        "administering", "Show the properties of the queue manager, or act on it as an administrator."
    ),
    "msg": CommandSpec("handling", "Find messages; move, copy, change, reject or delete individual messages."),
    "outgoing": CommandSpec("administering", "Manage outgoing queues, which hold messages for other machines."),
    "peek": CommandSpec("messages", "Show messages without removing them."),
    "pipeline": CommandSpec(
        "pipeline",
        "Archive and replay messages, explain dead letters and measure traffic on Spark (requires Java 17 or later).",
    ),
    "protocols": CommandSpec(
        "service", "List the interfaces and operations that are implemented, with the tests that verify them."
    ),
    "quickstart": CommandSpec(
        "quickstart", "Create a data directory and an administrator, start a queue manager, and print how to log in."
    ),
    "queue": CommandSpec("queues", "Create, list, show, change, delete and purge queues; set who may use them."),
    "receive": CommandSpec("messages", "Receive messages; each is removed after it has been written to the output."),
    "restore": CommandSpec(
        "backup", "Restore the backup in DIRECTORY into a data directory, which must be empty or new."
    ),
    "send": CommandSpec("messages", "Send one message: BODY, a file, or standard input."),
    "sequence": CommandSpec(
        "sequences", "Show, or forget, the position of other queue managers in transactional queues."
    ),
    "series": CommandSpec(
        "series",
        "Chart message rates and counts, sync and call times, and free disk space over ten minutes or a day.",
    ),
    "serve": CommandSpec("service", "Run the queue manager until SIGTERM."),
    "settings": CommandSpec(
        "settings",
        "Show the settings of a daemon, and the source of each: default, file, environment or option.",
    ),
    "tail": CommandSpec("watching", "Show each message that arrives, without removing it."),
    "token": CommandSpec("tokens", "Manage tokens, with which scripts log in to the HTTP server of a daemon."),
    "top": CommandSpec(
        "top", "Show a live view of the longest queues: messages, rate of change, age of the first message."
    ),
    "transaction": CommandSpec(
        "transactions", "Show distributed transactions and why one does not end; resolve one manually."
    ),
    "user": CommandSpec("users", "Manage the users that NTLM authenticates."),
}


class LazyGroup(click.Group):
    """The group of `COMMANDS`. Its help, and its hints for mistyped names, come from placeholders that have only a help
    text.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(commands=[click.Command(name, help=COMMANDS[name].help) for name in COMMANDS], **attributes)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        click.Group(commands=self.commands).format_commands(ctx, formatter)


def load(name: str) -> click.Command:
    """Load a command. Raises KeyError for a name that is not in `COMMANDS`."""
    entry = COMMANDS[name]
    command: click.Command = getattr(import_module(f"openmsmq.cli.{entry.module}"), entry.attribute or name)
    if "_OPENMSMQ_COMPLETE" in os.environ:
        from openmsmq.cli.completing import completing

        return completing(command)
    return command
