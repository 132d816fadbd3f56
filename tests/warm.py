"""A process that has imported the daemon and forks for each one that a test starts: ready in a tenth of the time.

    launch(["serve", ...], stdout, stderr, environment) -> Process

As a program (`python warm.py SOCKET`) this is that parent; it ends with the process of the tests.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence

_STATUS = struct.Struct("<i")
_LONGEST = 1 << 20  # bytes of a request


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
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            os.set_inheritable(there.fileno(), True)
            subprocess.Popen([sys.executable, __file__, str(there.fileno())], close_fds=False)
        self._socket = here
        self._owner = os.getpid()

    @property
    def is_ours(self) -> bool:
        return self._owner == os.getpid()  # and not of a process that forked this one

    def launch(self, arguments: Sequence[str], stderr: int, environment: Mapping[str, str]) -> Process:
        read_out, write_out = os.pipe()
        read_status, write_status = os.pipe()
        request = {"arguments": list(arguments), "environment": dict(environment), "directory": os.getcwd()}
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [write_out, stderr, write_status])
            pid = int(self._socket.recv(32))
        finally:
            os.close(write_out)
            os.close(write_status)
        return Process(pid, read_status, read_out)


_parents: list[_Parent] = []


def launch(arguments: Sequence[str], stderr: int, environment: Mapping[str, str]) -> Process:
    """Run `openmsmq` with these arguments in a fork of the warm parent."""
    if not _parents or not _parents[0].is_ours:
        _parents[:] = [_Parent()]
    return _parents[0].launch(arguments, stderr, environment)


# -- the parent --------------------------------------------------------------------------------------------------------


def _import_daemon() -> None:
    """What `openmsmq serve` imports, as far as its settings do not decide."""
    import openmsmq.cli.root
    import openmsmq.cli.service
    import openmsmq.server.daemon
    import openmsmq.server.web  # noqa: F401


def serve(connection: socket.socket) -> None:
    """Fork for each request until the tests are over."""
    _import_daemon()
    gc.collect()
    gc.freeze()
    statuses: dict[int, int] = {}
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests end this
    while True:
        ready, _, _ = select.select([connection, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
        _reap(statuses)
        if connection not in ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(connection, _LONGEST, 3)
        if not data:
            break
        stdout, stderr, status = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            others = [connection.fileno(), wake_read, wake_write, status, *statuses.values()]
            _become(json.loads(data), stdout, stderr, others)
        statuses[pid] = status
        os.close(stdout)
        os.close(stderr)
        connection.send(str(pid).encode())
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


def _become(request: dict[str, object], stdout: int, stderr: int, others: list[int]) -> None:
    """The child is the daemon from here on."""
    code = 1
    try:
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        for descriptor in {stdout, stderr, *others} - {0, 1, 2}:
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
