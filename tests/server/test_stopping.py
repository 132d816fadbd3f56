"""SIGTERM: running requests end within the grace time, waiting ones are cut off at its end, and nothing that was
acknowledged is lost."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import time
from pathlib import Path
from threading import Event, Thread

from console.browser import ADMINISTRATOR, PASSWORD, Client, bare, port_of
from console.conftest import OPTIONS, users
from daemon import Daemon, eventually
from openmsmq.model.errors import MsmqError, ReceiveTimeout, RpcConnectionError

PATH = ".\\private$\\q"


def test_a_call_that_can_end_within_the_grace_time_is_answered(tmp_path: Path) -> None:
    users(tmp_path / "data")
    with Daemon(tmp_path / "data", *OPTIONS, "--shutdown-grace-seconds", "15") as daemon:
        with daemon.connect() as sending, daemon.connect() as receiving:
            sending.create_queue(PATH)
            got: list[str] = []

            def receive() -> None:
                with receiving.open(PATH, protocol="qmcomm") as reader:  # with one-phase receives
                    got.append(reader.receive(60).label)

            with sending.open(PATH, "send") as writer:
                reader = Thread(target=receive)
                reader.start()
                eventually(lambda: _waits(daemon))
                started = time.monotonic()
                os.kill(daemon.pid, signal.SIGTERM)
                eventually(lambda: _refuses(daemon.port))
                writer.send("x", label="in time", recoverable=True)
                reader.join(20)
        assert got == ["in time"]
        assert daemon.wait() == 0
        assert time.monotonic() - started < 14, "it does not wait when nothing is under way"


def test_a_waiting_call_is_cut_off_after_the_grace_time(tmp_path: Path) -> None:
    users(tmp_path / "data")
    with Daemon(tmp_path / "data", *OPTIONS, "--shutdown-grace-seconds", "2") as daemon, daemon.connect() as manager:
        manager.create_queue(PATH)
        ended: list[BaseException] = []

        def receive() -> None:
            try:
                with manager.open(PATH) as reader:
                    reader.receive(300)
            except (MsmqError, RpcConnectionError, OSError) as error:
                ended.append(error)

        reader = Thread(target=receive)
        reader.start()
        eventually(lambda: _waits(daemon))
        started = time.monotonic()
        os.kill(daemon.pid, signal.SIGTERM)
        assert daemon.wait() == 0
        took = time.monotonic() - started
        assert 1.9 < took < 12
        reader.join(30)
        assert ended


def test_a_receive_whose_time_ends_within_the_grace_time_is_answered_and_the_daemon_waits_no_longer(
    tmp_path: Path,
) -> None:
    users(tmp_path / "data")
    with Daemon(tmp_path / "data", *OPTIONS, "--shutdown-grace-seconds", "20") as daemon, daemon.connect() as manager:
        manager.create_queue(PATH)
        ended: list[BaseException] = []

        def receive() -> None:
            try:
                with manager.open(PATH, protocol="qmcomm") as reader:
                    reader.receive(4)
            except (MsmqError, RpcConnectionError, OSError) as error:
                ended.append(error)

        reader = Thread(target=receive)
        reader.start()
        eventually(lambda: _waits(daemon))
        started = time.monotonic()
        os.kill(daemon.pid, signal.SIGTERM)
        assert daemon.wait() == 0 and time.monotonic() - started < 18
        reader.join(30)
        (error,) = ended
        assert isinstance(error, ReceiveTimeout), repr(error)


def test_changes_answered_during_the_stop_are_durable(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "data")
    sent: list[str] = []
    going = Event()

    def send() -> None:
        try:
            with daemon.connect() as manager, manager.open(PATH, "send") as writer:
                for number in range(1_000_000):
                    writer.send("x", label=str(number), recoverable=True)
                    sent.append(str(number))
                    if number == 50:
                        going.set()
        except (MsmqError, RpcConnectionError, OSError):
            return

    with daemon:
        with daemon.connect() as manager:
            manager.create_queue(PATH)
        sender = Thread(target=send)
        sender.start()
        assert going.wait(20)
        assert daemon.stop() == 0
        sender.join(30)
        daemon.start()
        with daemon.connect() as manager, manager.open(PATH, "peek") as reader:
            labels = [message.label for message in reader]
        assert labels[: len(sent)] == sent and len(labels) <= len(sent) + 1


def test_a_request_by_http_ends_within_the_grace_time(tmp_path: Path) -> None:
    users(tmp_path / "data")
    with Daemon(tmp_path / "data", *OPTIONS, "--shutdown-grace-seconds", "15") as daemon:
        login = base64.b64encode(f"{ADMINISTRATOR}:{PASSWORD}".encode()).decode()
        body = json.dumps({"name": "late"}).encode()
        head = (
            f"POST /api/v1/queues HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with bare(daemon) as connection:
            connection.sendall(head.encode() + body[:5])
            eventually(lambda: Client(daemon).get("/session"))  # the request above is being read by now
            started = time.monotonic()
            os.kill(daemon.pid, signal.SIGTERM)
            eventually(lambda: _refuses(port_of(daemon)))
            connection.sendall(body[5:])
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 201")
        assert daemon.wait() == 0 and time.monotonic() - started < 14


def test_a_stream_of_events_is_cut_off_when_the_grace_time_is_over(tmp_path: Path) -> None:
    users(tmp_path / "data")
    with Daemon(tmp_path / "data", *OPTIONS, "--shutdown-grace-seconds", "1") as daemon:
        login = base64.b64encode(f"{ADMINISTRATOR}:{PASSWORD}".encode()).decode()
        request = f"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n\r\n"
        with bare(daemon) as connection:
            connection.sendall(request.encode())
            assert b"200" in connection.recv(4096)
            started = time.monotonic()
            assert daemon.stop() == 0
            assert time.monotonic() - started < 10


def _refuses(port: int) -> bool:
    """Whether the listener at a port has begun to stop and refuses new connections."""
    try:
        socket.create_connection(("127.0.0.1", port), 10).close()
    except OSError:
        return True
    return False


def _waits(daemon: Daemon) -> bool:
    return bool(Client(daemon).get("/handles", waiting="true")["handles"])
