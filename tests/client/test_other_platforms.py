"""Clients in a process from which what only Linux has is hidden. They are pure Python, and programs on Windows use
them, too. No test runs on Windows."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from daemon import Daemon
from msrpc.rpc import sockets

PROGRAM = r"""
import asyncio, ctypes.util, importlib.abc, os, select, selectors, signal, socket, subprocess
import sys, threading, time

import sources

sources.prefer()
HIDDEN = {"fcntl", "grp", "pwd", "resource", "syslog", "termios", "uvloop"}
MISSING = {
    socket: "AF_UNIX MSG_DONTWAIT MSG_NOSIGNAL SO_REUSEPORT TCP_KEEPIDLE TCP_USER_TIMEOUT",
    select: "epoll poll POLLRDHUP",
    os: "chown eventfd fchmod fchown fdatasync fork getegid geteuid getgid getloadavg getsid getuid killpg nice pipe2 "
    "pread pwrite register_at_fork sched_getaffinity setsid statvfs sysconf uname "
    "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_PATH",
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGUSR1 pthread_sigmask set_wakeup_fd setitimer",
    time: "clock_gettime tzset",
}

class Hider(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in HIDDEN:
            raise ImportError(name)

for name in HIDDEN:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hider())
unix, pair = socket.AF_UNIX, socket.socketpair
socket.socketpair = lambda: pair(unix)  # asyncio's own
for module, names in MISSING.items():
    for name in names.split():
        delattr(module, name)

import openmsmq, openmsmq.aio, openmsmq.com

port, mapper = map(int, sys.argv[1:])
with openmsmq.connect("127.0.0.1", port=port) as qm:
    qm.create_queue("orders")
    with qm.open("orders", "send") as queue:
        queue.send_many(["one", "two", "three"], recoverable=True)
    with qm.open("orders") as queue:
        print(queue.receive(timeout=1).decode())

async def main():
    async with await openmsmq.aio.connect("127.0.0.1", port=port) as qm, await qm.open("orders") as queue:
        print((await queue.receive(timeout=1)).decode())

asyncio.run(main())

class Handler:
    def Arrived(self, queue, cursor):
        print(queue.Receive(ReceiveTimeout=0).Body, flush=True)
        done.set()

done = threading.Event()
info = openmsmq.com.Dispatch("MSMQQueueInfo", host="127.0.0.1", port=mapper)
info.PathName = r".\private$\orders"
event = openmsmq.com.Dispatch("MSMQEvent", host="127.0.0.1", port=mapper)
connection = openmsmq.com.WithEvents(event, Handler)
info.Open(1, 0).EnableNotification(event)
assert done.wait(60)
openmsmq.com.close_all()
"""


def test_the_clients_need_nothing_that_only_linux_has(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    with Daemon(tmp_path / "data") as daemon:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(daemon.port), str(daemon.mapper_port)], capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (tests, tests.parent / "src")))}, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["one", "two", "three"])


@pytest.mark.parametrize("linux", [True, False])
def test_the_end_of_an_idle_connection_is_noticed(linux: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not linux:
        monkeypatch.setattr(sockets, "_POLLRDHUP", 0)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as here:
        there, _ = listener.accept()
        assert not sockets.peer_has_closed(here.fileno())
        there.close()
        assert sockets.peer_has_closed(here.fileno())
