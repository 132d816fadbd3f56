"""Modules loaded at startup, which takes most of the time of a short command."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest

from command_line import invoke
from openmsmq.cli import connection, root
from openmsmq.cli.commands import COMMANDS, load
from openmsmq.server import allowed_values, loading

# Runs the command line like a process, and prints the loaded modules as the last line.
PROGRAM = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules))))
sys.argv = ["openmsmq", *sys.argv[1:]]
from openmsmq.cli import main
main()
"""


def loaded_by(*arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=60)
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_the_help_loads_no_command() -> None:
    loaded = loaded_by("--help")
    assert "openmsmq.cli.root" in loaded
    assert not [m for m in loaded if m.startswith(("openmsmq.client", "msrpc.rpc", "openmsmq.store", "rich"))]


def test_a_client_command_loads_no_daemon_and_no_spark() -> None:
    loaded = loaded_by("queue", "list", "--help")
    assert "openmsmq.client.sync" in loaded
    ours = ("server", "store", "queueing", "spark", "bulk", "flight", "gateways", "protection")
    unused = (*(f"openmsmq.{package}" for package in ours), "pyspark", "pyarrow", "rich")
    assert not [m for m in loaded if m.startswith(unused)]


@pytest.mark.parametrize("name", ["alarms", "audit"])
def test_a_command_of_the_table_of_actions_loads_no_users_file_before_it_works(name: str) -> None:
    loaded = loaded_by(name, "--help")
    assert "openmsmq.actions.table" in loaded
    assert not [m for m in loaded if m.startswith(("openmsmq.accounts.users", "msrpc.rpc.ntlm", "rich"))]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_matches_the_commands(name: str) -> None:
    command = load(name)
    assert command.name == name
    assert command.get_short_help_str(1000) == COMMANDS[name].help


def test_the_help_of_the_program_is_that_of_its_commands() -> None:
    context = click.Context(root.cli, info_name="openmsmq", terminal_width=100)
    eager = click.Group(commands=[load(name) for name in COMMANDS], params=[], help=root.cli.help)
    _, _, shown = root.cli.get_help(context).partition("Commands:")
    _, _, expected = eager.get_help(context).partition("Commands:")
    assert shown and shown == expected


def test_a_mistyped_command_gets_a_hint() -> None:
    with pytest.raises(click.UsageError) as refused:
        root.cli.main(["quue"], standalone_mode=False)
    assert "Did you mean 'queue'?" in refused.value.format_message()


def test_levels_and_variables_are_those_of_the_daemons_configuration() -> None:
    assert tuple(allowed_values.LEVELS) == connection.LEVELS
    assert set(loading.CLIENT_VARIABLES) == root._USUAL_VARIABLES


def test_options_of_the_table_of_actions_show_what_they_take() -> None:
    told = invoke("queue", "permissions", "--help").stdout
    assert "--set SDDL" in told
