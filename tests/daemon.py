"""The queue manager as a separate process, for tests and benchmarks that need a real one."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any, BinaryIO

import fork_server
import openmsmq
from openmsmq.server.allowed_values import STANDARD_PORTS
from tallies import tally
from waiting import START
from waiting import eventually as eventually

ENDPOINTS = ("ept", "qmcomm", "messages")
PROGRAM = ("-m", "openmsmq.cli")


class Daemon:
    """`openmsmq serve` on a directory; `start` after `kill` or `stop` uses the same ports again."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        prepare: Callable[[], None] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        """`options` are command-line options; `prepare` runs in the new process before the program; `program` is the
        program that Python runs."""
        self.program = program
        # `prepare` and `program` need a new process instead of a fork, and benchmarks examine the process.
        self._is_forked = prepare is None and program == PROGRAM and "pytest" in sys.modules
        self.directory = directory
        self.options = ("--system-queue-readers", "everyone", *options)
        self.prepare = prepare
        self.ready: dict[str, Any] = {}
        self._log = directory.with_name(directory.name + ".log")
        self._process: subprocess.Popen[bytes] | fork_server.Process | None = None

    def start(self) -> Daemon:
        self._process = self._launch()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the daemon ended with {self._process.wait()}:\n{self.log}")
        self.ready = json.loads(line)
        return self

    def _launch(self) -> subprocess.Popen[bytes] | fork_server.Process:
        ready = self.ready.get("endpoints", {})
        # Not 0: while the daemon is down, the system may give the port to other programs or connections.
        ports = {name: ready.get(name, {}).get("port") or free_port("127.0.0.1") for name in ENDPOINTS}
        command = [sys.executable, *self.program, "serve", "--data-dir", str(self.directory)]
        command += ["--endpoint-mapper-port", str(ports["ept"]), "--rpc-port", str(ports["qmcomm"])]
        command += ["--message-port", str(ports["messages"]), *self.options]
        with self._log.open("ab") as log:
            if self._is_forked:
                return fork_server.launch(command[len(self.program) + 1 :], log.fileno(), os.environ)
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, preexec_fn=self.prepare)  # noqa: PLW1509

    @property
    def port(self) -> int:
        return int(self.ready["endpoints"]["qmcomm"]["port"])

    @property
    def mapper_port(self) -> int:
        return int(self.ready["endpoints"]["ept"]["port"])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def resident(self) -> int:
        """Resident memory in bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def connect(self, **security: Any) -> openmsmq.QueueManager:
        return openmsmq.connect("127.0.0.1", self.port, **security)

    def kill(self) -> None:
        """Send SIGKILL: only data on the disk survives."""
        tally("kills of daemons")
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        return self._end(signal.SIGTERM)

    def wait(self, timeout: float = START) -> int:
        assert self._process is not None
        return self._process.wait(timeout)

    def _end(self, signum: int) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signum)
        try:
            return self._process.wait(START)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()

    def __enter__(self) -> Daemon:
        return self if self.alive else self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()


# Each pytest worker has its own ports: two that check at the same moment would both find one free. All ports of this
# process are used before any is reused: a daemon with six ports must not get one twice.
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_OWN = range(20_000 + _WORKER, 32_000, _WORKERS)
_PORTS = cycle(secrets.SystemRandom().sample(_OWN, len(_OWN)))


def free_port(*hosts: str) -> int:
    """Return a TCP port that is free at all of these addresses and that the system assigns to no connection."""
    while True:
        port = next(_PORTS)
        with ExitStack() as stack, suppress(OSError):
            for host in hosts:
                stack.enter_context(socket.create_server((host, port)))
            return port


def free_offset() -> int:
    """Return a port offset with which all standard ports are free."""
    while True:
        offset = free_port() - STANDARD_PORTS["web_port"]
        with ExitStack() as stack, suppress(OSError):
            for port in set(STANDARD_PORTS.values()):
                stack.enter_context(socket.create_server(("127.0.0.1", port + offset)))
            return offset


def open_files(directory: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield the regular files in a directory, open for reading, except those that a daemon deletes meanwhile."""
    for path in directory.iterdir():
        with suppress(FileNotFoundError):
            if path.is_file():
                with path.open("rb") as file:
                    yield path, file


@contextmanager
def meanwhile(seconds: float, work: Callable[[], object]) -> Iterator[None]:
    """Run something in another thread after a short delay; it has ended when the block ends."""
    timer = threading.Timer(seconds, work)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def partner_daemons(directory: Path, *names: str, options: Sequence[str] = ()) -> list[Daemon]:
    """Return unstarted daemons, by computer name, that know each other and share distributed transactions."""
    ports = {name: free_port("127.0.0.1") for name in names}
    peers = ",".join(f"{name}=127.0.0.1:{port}" for name, port in ports.items())
    daemons = []
    for name, port in ports.items():
        own = ("--computer-name", name, "--distributed-transactions", "none", "--peers", peers)
        daemons.append(Daemon(directory / name, *own, *options))
        daemons[-1].ready = {"endpoints": {"qmcomm": {"port": port}}}
    return daemons
