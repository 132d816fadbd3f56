"""Two queue managers for tests of migrations: `old` is the machine that is replaced and is accessed only through its
public protocols; `new` takes over its queues."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import openmsmq
from command_line import CommandResult, command, invoke
from console.browser import Client
from console.conftest import users
from daemon import PROGRAM, Daemon, eventually, free_port


class Move:
    """The two machines, and the operator's commands on the new one."""

    def __init__(self, directory: Path, old: Daemon, new: Daemon, message_port: int) -> None:
        self.old, self.new, self.message_port = old, new, message_port
        self._token = ""
        self._directory = directory

    def run(self, *words: str) -> CommandResult:
        return invoke(*words, **self._environment())

    def _environment(self) -> dict[str, str]:
        if not self._token:
            self._token = Client(self.new).post("/tokens", name="move", role="administrator", days=1)["secret"]
        return {"OPENMSMQ_TOKEN": self._token, "OPENMSMQ_DATA_DIR": str(self.new.directory)}

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command as a separate process with pipes for its output."""
        pipe = subprocess.PIPE
        environment = os.environ | self._environment()
        process = subprocess.Popen(command(*words), env=environment, stdout=pipe, stderr=pipe, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def run_and_kill(self, seconds: float, *words: str) -> bool:
        """Start a command and kill it after some time. Returns whether it was still running."""
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command(*words), env=os.environ | self._environment(), stdout=quiet, stderr=quiet)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()
        return process.wait() < 0

    def done(self, *words: str) -> str:
        """Return the output of a command that must succeed."""
        ended = self.run(*words)
        assert ended.code == 0, (words, ended)
        return ended.stdout

    def status(self, queue: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.done("adopt", "status", queue, "--json"))
        return found

    def when(self, queue: str, **wanted: Any) -> dict[str, Any]:
        """Wait until the status has these values and return it; for `empty_since`, the value is whether it is set."""

        def reached() -> dict[str, Any] | None:
            found = self.status(queue)
            values = found | {"empty_since": bool(found["empty_since"])}
            return found if all(values[name] == value for name, value in wanted.items()) else None

        return eventually(reached)


@contextmanager
def moving(
    directory: Path, net: int, *options: str, old_options: tuple[str, ...] = (), program: Sequence[str] = PROGRAM
) -> Iterator[Move]:
    """Run both machines; `program` is that of the new one, see `Daemon`."""
    hosts = f"127.0.{net}.1", f"127.0.{net}.2"
    transfers, calls = free_port(*hosts), free_port(hosts[0])
    common = "--message-port", str(transfers), "--peer-message-port", str(transfers)
    old = Daemon(
        directory / "old", "--listen", hosts[0], "--computer-name", "OLD", *common,
        "--peers", f"new={hosts[1]}:{calls}", *old_options,
    )  # fmt: skip
    old.ready = {"endpoints": {"qmcomm": {"port": calls}}}
    users(directory / "new")
    new = Daemon(
        directory / "new", "--listen", hosts[1], "--computer-name", "NEW", "--web", "--web-port", "0", *common,
        "--peers", f"old={hosts[0]}:{calls}", *options, program=program,
    )  # fmt: skip
    with old, new:
        yield Move(directory, old, new, transfers)
    for daemon in (old, new):
        assert "Traceback" not in daemon.log, daemon.log


def connect(daemon: Daemon, **security: Any) -> openmsmq.QueueManager:
    return openmsmq.connect(daemon.options[daemon.options.index("--listen") + 1], daemon.port, **security)
