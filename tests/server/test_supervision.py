"""Notifications of the daemon to systemd."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmsmq.server.supervision import Supervision


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(20)
        yield receiver


def environment(notified: socket.socket, **values: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": notified.getsockname(), **values}


def test_a_daemon_notifies_systemd_of_readiness_liveness_and_stopping(tmp_path: Path, notified: socket.socket) -> None:
    command = [sys.executable, "-m", "openmsmq.cli", "serve", "--data-dir", str(tmp_path / "data")]
    command += ["--endpoint-mapper-port", "0", "--rpc-port", "0", "--message-port", "0"]
    with subprocess.Popen(
        command, env=os.environ | environment(notified, WATCHDOG_USEC="200000"), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert notified.recv(4096) == b"READY=1\nSTATUS=serving"
        assert [notified.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        process.send_signal(signal.SIGTERM)
        while (told := notified.recv(4096)) == b"WATCHDOG=1":
            pass
        assert told.startswith(b"STOPPING=1")
        assert process.wait(20) == 0


def test_a_hanging_event_loop_sends_no_keep_alives(notified: socket.socket) -> None:
    """The keep-alives are sent by the event loop, not by a separate thread."""

    async def hang() -> None:
        supervision = Supervision(asyncio.get_running_loop(), environment(notified, WATCHDOG_USEC="2000"))
        supervision.started()
        assert [notified.recv(4096) for _ in range(2)] == [b"READY=1\nSTATUS=serving", b"WATCHDOG=1"]
        notified.settimeout(0.05)  # fifty keep-alive periods
        with pytest.raises(TimeoutError):
            notified.recv(4096)
        supervision.stopping()

    asyncio.run(hang())


def test_a_supervisor_that_was_away_gets_further_keep_alives(
    tmp_path: Path, notified: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "notify"

    async def run() -> None:
        supervision = Supervision(asyncio.get_running_loop(), environment(notified, WATCHDOG_USEC="2000"))
        path.rename(tmp_path / "away")
        supervision.started()
        async with asyncio.timeout(20):
            while caplog.text.count("cannot notify") < 3:
                await asyncio.sleep(0)  # the watchdog's timer logs
        (tmp_path / "away").rename(path)
        await asyncio.get_running_loop().run_in_executor(None, notified.recv, 4096)
        supervision.stopping()

    asyncio.run(run())


def test_a_hangup_ends_the_daemon_in_order_unless_it_is_ignored(tmp_path: Path, notified: socket.socket) -> None:
    command = [sys.executable, "-m", "openmsmq.cli", "serve", "--data-dir", str(tmp_path / "data")]
    command += ["--endpoint-mapper-port", "0", "--rpc-port", "0", "--message-port", "0"]
    for prefix, last in ((["nohup"], signal.SIGTERM), (["env", "--default-signal=HUP"], signal.SIGHUP)):
        with subprocess.Popen(
            [*prefix, *command], env=os.environ | environment(notified, WATCHDOG_USEC="200000"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            assert notified.recv(4096) == b"READY=1\nSTATUS=serving"
            process.send_signal(signal.SIGHUP)
            if last is not signal.SIGHUP:
                assert [notified.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
                process.send_signal(last)
            while (told := notified.recv(4096)) == b"WATCHDOG=1":
                pass
            assert told.startswith(b"STOPPING=1")
            assert process.wait(20) == 0


def test_the_socket_may_have_an_abstract_address() -> None:
    """sd_notify(3): `@` stands for the zero byte at the beginning of the name."""
    name = f"openmsmq-test-{os.getpid()}"

    async def start() -> None:
        Supervision(asyncio.get_running_loop(), {"NOTIFY_SOCKET": f"@{name}"}).started()

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}")
        receiver.settimeout(20)
        asyncio.run(start())
        assert receiver.recv(4096).startswith(b"READY=1")


@pytest.mark.parametrize(
    "values", [{}, {"WATCHDOG_USEC": "2000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}]
)
def test_keep_alives_are_sent_only_on_request(notified: socket.socket, values: dict[str, str]) -> None:
    async def start() -> None:
        supervision = Supervision(asyncio.get_running_loop(), environment(notified, **values))
        supervision.started()
        await asyncio.sleep(0.02)
        supervision.stopping()

    asyncio.run(start())
    assert notified.recv(4096).startswith(b"READY=1")
    assert notified.recv(4096).startswith(b"STOPPING=1")


def test_without_systemd_nothing_is_sent() -> None:
    async def start() -> None:
        supervision = Supervision(asyncio.get_running_loop(), {"WATCHDOG_USEC": "2000"})
        supervision.started()
        supervision.stopping()

    asyncio.run(start())
