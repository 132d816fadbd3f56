"""`openmsmq …` in the process of the tests: what its own process would add is its start, again and again.

What only a process can show is tested with one: `command` is how it is started.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from click.testing import CliRunner

import warm
from daemon import Daemon
from openmsmq.cli import main


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str


def command(*arguments: str) -> list[str]:
    """The command line as a process of its own, which is a fork of the warm one."""
    return [warm.python(), "-m", "openmsmq.cli", *arguments]


def at(service: Daemon) -> dict[str, str]:
    """The environment in which the command line uses a daemon."""
    return {"OPENMSMQ_HOST": "127.0.0.1", "OPENMSMQ_PORT": str(service.port)}


def invoke(*arguments: str, stdin: str = "", directory: Path | None = None, **environment: str) -> Ended:
    """Run a command here. An error that the program does not expect is raised; a process would print its trace."""
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
        return Ended(code, out.getvalue().decode("utf-8"), err.getvalue().decode("utf-8"))


def checked(*arguments: str, stdin: str = "", **environment: str) -> str:
    """Standard output of a command that has to succeed."""
    ended = invoke(*arguments, stdin=stdin, **environment)
    assert ended.code == 0, (arguments, *ended)
    return ended.stdout


def add_user(directory: Path, name: str, password: str, *options: str) -> str:
    """`openmsmq user add`; returns the SID it prints."""
    given = ("user", "--data-dir", str(directory), "add", name, "--password-stdin", *options)
    return checked(*given, stdin=password + "\n").strip()
