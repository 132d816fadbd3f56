"""Run `openmsmq …` in the test process, which avoids the start of a process for each command.

Tests that need a separate process start it with `command`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from click.testing import CliRunner

import fork_server
from daemon import Daemon
from openmsmq.cli import main

#: A function of the shell: it runs a command until it has printed something, and then ends it as Ctrl-C does.
UNTIL_CTRL_C = """
until_ctrl_c() {
    rm -f shown
    "$@" > shown & local pid=$!
    until [ -s shown ] || ! kill -0 $pid; do sleep 0.05; done
    kill -INT $pid
    wait $pid || { local code=$?; cat shown; return $code; }
    cat shown
}
"""


class CommandResult(NamedTuple):
    code: int
    stdout: str
    stderr: str


def command(*arguments: str) -> list[str]:
    """Return the command line of a separate process, a fork of the fork server."""
    return [fork_server.python(), "-m", "openmsmq.cli", *arguments]


def at(service: Daemon) -> dict[str, str]:
    """Return the environment in which the command line uses a daemon."""
    return {"OPENMSMQ_HOST": "127.0.0.1", "OPENMSMQ_PORT": str(service.port)}


def invoke(*arguments: str, stdin: str = "", directory: Path | None = None, **environment: str) -> CommandResult:
    """Run a command in this process. Unexpected errors are raised; a process would print a traceback."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", ["openmsmq", *arguments]))
        stack.enter_context(contextlib.chdir(directory or os.getcwd()))
        out, err, _ = stack.enter_context(CliRunner(env=environment).isolation(stdin))
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        return CommandResult(code, out.getvalue().decode("utf-8"), err.getvalue().decode("utf-8"))


def checked(*arguments: str, stdin: str = "", **environment: str) -> str:
    """Run a command that must succeed; return its standard output."""
    ended = invoke(*arguments, stdin=stdin, **environment)
    assert ended.code == 0, (arguments, *ended)
    return ended.stdout


def machines_in(*directory: str) -> str:
    """Return what `openmsmq directory machines` prints; empty while no daemon has created the directory. A daemon is
    ready before it is in its directory."""
    return invoke("directory", *directory, "machines").stdout


def add_user(directory: Path, name: str, password: str, *options: str) -> str:
    """`openmsmq user add`; returns the SID it prints."""
    given = ("user", "--data-dir", str(directory), "add", name, "--password-stdin", *options)
    return checked(*given, stdin=password + "\n").strip()
