"""The commands by name. Each is loaded when it is used: `openmsmq --help` loads none of them, `openmsmq queue list` no
Spark, no store and no daemon."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, NamedTuple

import click


class CommandSpec(NamedTuple):
    module: str  # of openmsmq.cli
    help: str  # the first sentence of the command's help; tests/cli/test_start.py compares them
    attribute: str = ""  # of the module, where it isn't the name of the command


COMMANDS = {
    "alarm": CommandSpec("alarms", "Silence alarms for a time, and set their thresholds while a daemon runs."),
    "alarms": CommandSpec(
        "alarms",
        "Show the alarms of a daemon that are on: disk, quotas, syncs, dead letters, old messages, outgoing queues.",
    ),
    "audit": CommandSpec(
        "auditing", "Show who changed what, from where and how much: the audit log in the data directory of a daemon."
    ),
    "adopt": CommandSpec("adopt", "Move queues of another machine here, one at a time, and back again."),
    "backup": CommandSpec(
        "backup", "Copy the data directory of a daemon, which may run meanwhile, into a new DIRECTORY."
    ),
    "certificates": CommandSpec("keyring", "Manage the certificates by which senders of signed messages are known."),
    "connection": CommandSpec("connections", "Show who is connected, from where and by which way."),
    "connect-test": CommandSpec(
        "remote",
        "Test whether the queue manager of HOST can be reached from here: ports, ping, session.",
        "connect_test",
    ),
    "copy": CommandSpec("messages", "Copy all messages of one queue to another, with their properties."),
    "decode": CommandSpec(
        "decoding",
        "Show what bytes from the network mean: DCE/RPC PDUs with the fields of their calls, and message packets.",
    ),
    "definitions": CommandSpec(
        "definitions",
        "Write down queues, rights, users and settings; compare them with a file; make them as a file says.",
    ),
    "directory": CommandSpec(
        "directory", "Show the directory of public queues and machines; manage distribution lists."
    ),
    "dlq": CommandSpec(
        "dead_letters", "Show why messages became dead letters; return them, send them elsewhere, delete them."
    ),
    "domain": CommandSpec(
        "domain", "Join a domain and leave it; say what this machine has there, and what is missing."
    ),
    "export": CommandSpec(
        "messages",
        "Write all messages as JSON lines to FILE or standard output: every property, the body in base64.",
    ),
    "fsck": CommandSpec(
        "service",
        "Verify the store in a data DIRECTORY completely; the daemon reads only the log since the last checkpoint.",
    ),
    "forward": CommandSpec("adopt", "Bridge a queue here and a queue of another machine, for good."),
    "handle": CommandSpec(
        "handles",
        "Show who has which queue open, exclusively or waiting for messages; close that.",
    ),
    "health": CommandSpec(
        "health", "Say whether a queue manager works: for scripts, by its exit code, without Prometheus."
    ),
    "import": CommandSpec("messages", "Send the messages of a file that `export` wrote.", "import_"),
    "job": CommandSpec(
        "jobs", "Work on any number of messages in the background: start, show, pause, resume and cancel it."
    ),
    "journal": CommandSpec("dead_letters", "Look at journals: that of a QUEUE, or of the machine where none is named."),
    "keys": CommandSpec("keyring", "Manage the keys with which message bodies are encrypted."),
    "machine": CommandSpec(
        "administering", "Show the properties of the queue manager, or act on it as an administrator."
    ),
    "msg": CommandSpec("handling", "Find messages; move, copy, change, reject or delete single ones."),
    "outgoing": CommandSpec("administering", "Queues that hold messages for other machines."),
    "peek": CommandSpec("messages", "Show messages without removing them."),
    "pipeline": CommandSpec(
        "pipeline", "Archive, replay, explain dead letters, measure traffic: on Spark, which needs Java 17 or later."
    ),
    "protocols": CommandSpec(
        "service", "List the interfaces and operations that are served, with the tests that prove them."
    ),
    "quickstart": CommandSpec(
        "quickstart", "Make a data directory and an administrator, start a queue manager, and say how to log in."
    ),
    "queue": CommandSpec("queues", "Create, list, show, change, delete and purge queues; say who may use them."),
    "receive": CommandSpec("messages", "Receive messages: each is removed after it has been written out."),
    "restore": CommandSpec(
        "backup", "Make the data directory of a daemon from the backup in DIRECTORY; it must be empty or new."
    ),
    "send": CommandSpec("messages", "Send one message: BODY, a file, or standard input."),
    "sequence": CommandSpec("sequences", "Show how far other queue managers are with transactional queues; forget it."),
    "series": CommandSpec(
        "series",
        "Show rates and number of messages, how long syncs and calls took, and the free disk: ten minutes, or a day.",
    ),
    "serve": CommandSpec("service", "Run the queue manager until SIGTERM."),
    "settings": CommandSpec(
        "settings",
        "Show the settings that a daemon runs with, and where each comes from: default, file, environment or option.",
    ),
    "tail": CommandSpec("watching", "Show each message that arrives and leave it in the queue."),
    "token": CommandSpec("tokens", "Manage tokens, by which scripts log in to the HTTP server of a daemon."),
    "top": CommandSpec(
        "top", "Show the fullest queues, again and again: messages, how their number changes, the age of the first."
    ),
    "transaction": CommandSpec(
        "transactions", "Show distributed transactions, and why one does not end; end one by hand."
    ),
    "user": CommandSpec("users", "Manage the users that NTLM authenticates."),
}


class LazyGroup(click.Group):
    """The group of `COMMANDS`. Its help and its hints for mistyped names come from stand-ins that have just a help."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(commands=[click.Command(name, help=COMMANDS[name].help) for name in COMMANDS], **attributes)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        click.Group(commands=self.commands).format_commands(ctx, formatter)


def load(name: str) -> click.Command:
    """A command. Raises KeyError for a name that is not in `COMMANDS`."""
    entry = COMMANDS[name]
    command: click.Command = getattr(import_module(f"openmsmq.cli.{entry.module}"), entry.attribute or name)
    if "_OPENMSMQ_COMPLETE" in os.environ:
        from openmsmq.cli.completing import completing

        return completing(command)
    return command
