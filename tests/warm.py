"""A process that has imported `openmsmq` and forks for each command that a test runs: a daemon is ready in a fifth of
the time, and any other command needs no start.

    launch(["serve", ...], stderr, environment)    a daemon
    install(directory)                             `openmsmq` for shells whose PATH begins with the directory

As a program (`python warm.py SOCKET`) this is that parent; it ends with the process of the tests.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_STATUS = struct.Struct("<i")
_LONGEST = 1 << 20  # bytes of a request
_COMMAND = """#!{python} -IS
import json, os, signal, socket, struct, sys
parent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
parent.connect("\\0{address}")
status, there = os.pipe()
request = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "directory": os.getcwd()}}
socket.send_fds(parent, [json.dumps(request).encode()], [0, 1, 2, there])
os.close(there)
pid = int(parent.recv(32))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
code, = struct.unpack("<i", os.read(status, 4))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


class Process:
    """A child of the warm parent, with the methods of `subprocess.Popen` that tests use. Its exit code comes by a pipe
    that the parent writes to when it has reaped the child."""

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
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            data = os.read(self._status, _STATUS.size)
            # Without a status the parent itself was killed, and its children with it.
            self.returncode = _STATUS.unpack(data)[0] if data else -signal.SIGKILL
            os.close(self._status)
        return self.returncode

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Parent:
    """The warm parent of this process, which is started for the first daemon."""

    def __init__(self) -> None:
        self.address = f"openmsmq-tests-{os.getpid()}-{secrets.token_hex(4)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"\0{self.address}")
            listener.listen(64)
            os.set_inheritable(listener.fileno(), True)
            subprocess.Popen([sys.executable, __file__, str(listener.fileno())], close_fds=False)
        # The first connection is that of the tests: the parent ends with it.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(f"\0{self.address}")
        self._owner = os.getpid()

    @property
    def is_ours(self) -> bool:
        return self._owner == os.getpid()  # and not of a process that forked this one

    def launch(self, arguments: Sequence[str], stderr: int, environment: Mapping[str, str]) -> Process:
        read_out, write_out = os.pipe()
        read_status, write_status = os.pipe()
        request = {"arguments": list(arguments), "environment": dict(environment), "directory": os.getcwd()}
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
    """Run `openmsmq` with these arguments in a fork of the warm parent."""
    return _parent().launch(arguments, stderr, environment)


def install(directory: Path) -> None:
    """Make `openmsmq` in a directory: a command that runs in a fork of the warm parent."""
    command = directory / "openmsmq"
    command.write_text(_COMMAND.format(python=sys.executable, address=_parent().address))
    command.chmod(0o755)


# -- the parent --------------------------------------------------------------------------------------------------------


def _import_daemon() -> None:
    """What `openmsmq serve` imports, as far as its settings do not decide."""
    import openmsmq.cli.root
    import openmsmq.cli.service
    import openmsmq.server.daemon
    import openmsmq.server.web  # noqa: F401


def serve(listener: socket.socket) -> None:
    """Fork for each request until the tests are over, which made the first connection."""
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
    while tests.fileno() in connections:
        ready, _, _ = select.select([listener, wake_read, *connections], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
        _reap(statuses)
        if listener in ready:
            accepted, _ = listener.accept()
            connections[accepted.fileno()] = accepted
        for number in connections.keys() & set(ready):
            data, passed, _, _ = socket.recv_fds(connections[number], _LONGEST, 4)
            if not data:
                connections.pop(number).close()
                continue
            *streams, status = passed
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                others = [listener.fileno(), wake_read, wake_write, *connections, status, *statuses.values()]
                _become(json.loads(data), streams, others)
            statuses[pid] = status
            for descriptor in streams:
                os.close(descriptor)
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
        with contextlib.suppress(BrokenPipeError):  # the test has forgotten it
            os.write(pipe, _STATUS.pack(os.waitstatus_to_exitcode(status)))
        os.close(pipe)


def _become(request: dict[str, object], streams: list[int], others: list[int]) -> None:
    """The child is `openmsmq` from here on."""
    code = 1
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        for descriptor in {*streams, *others} - {0, 1, 2}:
            os.close(descriptor)
        os.chdir(str(request["directory"]))
        os.environ.clear()
        os.environ.update(request["environment"])  # type: ignore[call-overload]
        sys.argv = ["openmsmq", *request["arguments"]]  # type: ignore[misc]
        from openmsmq.cli import main

        main()
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


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
