"""A process that has imported `openmsmq` and forks for each command that a test runs. A daemon is ready five times
faster, and other commands have no start-up time.

    launch(["serve", ...], stderr, environment)    a daemon
    install(directory)                             `openmsmq` for shells whose PATH begins with the directory
    python()                                       a command that starts modules of the project and of PySpark

As a program (`python fork_server.py SOCKET`) this is the parent; it ends with the test process. Processes that such a
command starts by `sys.executable` (child processes of a daemon, Python workers of Spark) are forked from the parent,
too.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_STATUS = struct.Struct("<i")
_LONGEST = 1 << 20  # maximum bytes of a request
# Periods of forks, in seconds, instead of those in the sources: tests would only wait for them. A module is before
# those that import its period.
_PERIODS = (
    ("openmsmq.server.alarms", "PERIOD", 0.5),
    ("openmsmq.server.relay_reading", "PAUSE", 0.5),
    ("openmsmq.server.relay_sending", "PAUSE", 0.5),
    ("openmsmq.server.relays", "LOOK", 0.5),
    ("openmsmq.console.queue_history", "STEP", 1.0),
    ("openmsmq.console.navigation", "_KEPT", 1.0),
)
# When the command's process has ended, the parent ends the fork, so a SIGKILL ends both.
_COMMAND = """#!{python} -IS
import json, os, signal, socket, struct, sys
if {is_python} and sys.argv[1:2] != ["-m"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
forwarded = {{signal.SIGINT, signal.SIGTERM}}
signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)  # a shell ignores SIGINT in the background
parent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
parent.connect("\\0{address}")
status, there = os.pipe()
numbers = [int(name) for name in os.listdir("/proc/self/fd")]
passed = [n for n in numbers if n not in (parent.fileno(), status, there) and os.path.exists("/proc/self/fd/%d" % n)]
request = {{
    "arguments": sys.argv[1:], "environment": dict(os.environ), "directory": os.getcwd(), "numbers": passed,
    "is_python": {is_python}, "python": sys.argv[0] if {is_python} else None, "session": os.getsid(0) == os.getpid(),
}}
socket.send_fds(parent, [json.dumps(request).encode()], [*passed, there])
os.close(there)
for number in passed:
    os.close(number)
pid = int(parent.recv(32))
with open("/proc/self/comm", "w") as name:
    name.write("fork %d" % pid)
for number in forwarded:
    signal.signal(number, lambda number, frame: os.kill(pid, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
code, = struct.unpack("<i", os.read(status, 4))
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def _readable(descriptor: int, timeout: float | None) -> bool:
    """Wait for input within a time in seconds; unlike select, for any descriptor."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout is None else timeout * 1000))


class Process:
    """A child of the fork server, with the methods of `subprocess.Popen` that tests use. The parent writes the exit
    code to a pipe when it has reaped the child."""

    def __init__(self, pid: int, status: int, stdout: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = os.fdopen(stdout, "rb")
        self._status = status

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["openmsmq"], timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and _readable(self._status, timeout):
            data = os.read(self._status, _STATUS.size)
            # No status: the parent itself was killed, and its children with it.
            self.returncode = _STATUS.unpack(data)[0] if data else -signal.SIGKILL
            os.close(self._status)
        return self.returncode

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Parent:
    """The fork server of this process, started with the first daemon."""

    def __init__(self) -> None:
        self.address = f"openmsmq-tests-{os.getpid()}-{secrets.token_hex(4)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"\0{self.address}")
            listener.listen(64)
            os.set_inheritable(listener.fileno(), True)
            subprocess.Popen([sys.executable, __file__, str(listener.fileno())], close_fds=False)
        # The first connection is that of the tests: the parent ends when it closes.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(f"\0{self.address}")
        self._owner = os.getpid()
        self._directory = tempfile.TemporaryDirectory()
        self.python = Path(self._directory.name, "python")
        _write(self.python, self.address, is_python=True)

    @property
    def is_ours(self) -> bool:
        return self._owner == os.getpid()  # not from the process that forked this one

    def launch(self, arguments: Sequence[str], stderr: int, environment: Mapping[str, str]) -> Process:
        read_out, write_out = os.pipe()
        read_status, write_status = os.pipe()
        request = {
            "arguments": list(arguments), "environment": dict(environment), "directory": os.getcwd(),
            "is_python": False, "python": str(self.python), "numbers": [0, 1, 2], "session": False,
        }  # fmt: skip
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            passed = [nothing, write_out, stderr, write_status]
            socket.send_fds(self._socket, [json.dumps(request).encode()], passed)
            pid = int(self._socket.recv(32))
        finally:
            for descriptor in (nothing, write_out, write_status):
                os.close(descriptor)
        return Process(pid, read_status, read_out)


_parents: list[_Parent] = []


def _parent() -> _Parent:
    if not _parents or not _parents[0].is_ours:
        _parents[:] = [_Parent()]
    return _parents[0]


def launch(arguments: Sequence[str], stderr: int, environment: Mapping[str, str]) -> Process:
    """Run `openmsmq` with these arguments in a process forked by the fork server."""
    return _parent().launch(arguments, stderr, environment)


def install(directory: Path) -> None:
    """Make `openmsmq` in a directory: a command that runs in a process forked by the fork server."""
    _write(directory / "openmsmq", _parent().address, is_python=False)


def python() -> str:
    """A command that runs `-m MODULE ARGUMENTS` in a process forked by the fork server; Python runs anything else."""
    return str(_parent().python)


def fork_of(pid: int) -> int:
    """Return the forked process that executes the command with this number, to signal or examine it."""
    name, _, number = Path(f"/proc/{pid}/comm").read_text().partition(" ")
    return int(number) if name == "fork" else pid


def _write(command: Path, address: str, *, is_python: bool) -> None:
    command.write_text(_COMMAND.format(python=sys.executable, address=address, is_python=is_python))
    command.chmod(0o755)


# -- the parent --------------------------------------------------------------------------------------------------------


def _import_daemon() -> None:
    """Import what `openmsmq serve` imports with any settings, at its start or later, as far as it is installed."""
    for name in (
        "openmsmq.cli.root", "openmsmq.cli.service", "openmsmq.server.daemon", "openmsmq.server.web",
        "openmsmq.store.ring", "uvloop.loop", "encodings.idna",
    ):  # fmt: skip
        _import(name)


def _import(name: str) -> None:
    """Import a module once, for all later forks, and set the periods of its package."""
    if name in sys.modules:
        return
    with contextlib.suppress(ImportError):
        for module, period, seconds in _PERIODS:
            if module.rpartition(".")[0] == name.rpartition(".")[0]:
                imported = importlib.import_module(module)
                assert isinstance(getattr(imported, period), float | int)
                setattr(imported, period, seconds)
        importlib.import_module(name)


def _modules(request: Mapping[str, Any]) -> list[str]:
    """Return the modules of the project and of PySpark that a request starts."""
    arguments = request["arguments"]
    if not request["is_python"]:
        return []
    found = [name for name in arguments[1:3] if name.startswith(("openmsmq.", "pyspark."))]
    return [*found, "pyspark_msmq", "pyarrow.parquet"] if "pyspark." in arguments[1] else found


def serve(listener: socket.socket) -> None:
    """Fork for each request until the tests, which made the first connection, have ended."""
    _import_daemon()
    gc.collect()
    gc.freeze()
    statuses: dict[int, int] = {}
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests end this
    tests, _ = listener.accept()
    connections = {tests.fileno(): tests}
    forks: dict[int, int] = {}  # commands by the number of their connection
    while tests.fileno() in connections:
        ready, _, _ = select.select([listener, wake_read, *connections], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
        _reap(statuses)
        if listener in ready:
            accepted, _ = listener.accept()
            connections[accepted.fileno()] = accepted
        for number in connections.keys() & set(ready):
            try:
                data, passed, _, _ = socket.recv_fds(connections[number], _LONGEST, 64)
            except ConnectionResetError:
                data = b""
            if not data:
                connections.pop(number).close()
                if forks.get(number) in statuses:
                    os.kill(forks[number], signal.SIGKILL)
                continue
            request = json.loads(data)
            *streams, status = passed
            for name in _modules(request):
                _import(name)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                others = [listener.fileno(), wake_read, wake_write, *connections, status, *statuses.values()]
                _become(request, streams, others)
            statuses[pid] = status
            if number != tests.fileno():
                forks[number] = pid
            for descriptor in streams:
                os.close(descriptor)
            with contextlib.suppress(BrokenPipeError):  # the requester was killed: the next check ends the fork
                connections[number].send(str(pid).encode())
    for pid in statuses:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _reap(statuses: dict[int, int]) -> None:
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        pipe = statuses.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # the test no longer uses it
            os.write(pipe, _STATUS.pack(os.waitstatus_to_exitcode(status)))
        os.close(pipe)


def _become(request: Mapping[str, Any], streams: list[int], others: list[int]) -> None:
    """Turn the child into the command."""
    code = 1
    try:
        _take(streams, request["numbers"], others)
        if request["session"]:
            os.setsid()
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        if request["python"] is not None:
            sys.executable = request["python"]
        if "RECORD_LINES" in os.environ:
            import line_recorder

            line_recorder.start_in_daemon()
        _run(request["arguments"], is_python=request["is_python"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _take(streams: list[int], numbers: list[int], others: list[int]) -> None:
    """Give the received descriptors their original numbers."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 1000) for descriptor in streams]
    for descriptor in {*streams, *others} - {0, 1, 2}:
        os.close(descriptor)
    for descriptor, number in zip(high, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _run(arguments: list[str], *, is_python: bool) -> None:
    if not is_python:
        sys.argv = ["openmsmq", *arguments]
        from openmsmq.cli import main

        main()
        return
    module = arguments[1]
    Path("/proc/self/comm").write_text(module[-15:])
    sys.argv = [module, *arguments[2:]]
    added = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    sys.path[:0] = [os.getcwd(), *added]
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
