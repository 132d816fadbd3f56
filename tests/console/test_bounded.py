"""Slow and unresponsive peers, with short limits; the server runs in this process."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from daemon import eventually
from openmsmq.console import application, bounded
from openmsmq.console.application import Web
from openmsmq.console.bounded import BoundedProtocol, sweep
from openmsmq.console.problems import Problem
from openmsmq.console.services import Services, WebSettings

LARGE = b"x" * (64 << 20)
PARTS = 24  # number of parts in which a slow client reads


class LargeResponse:
    """A response too large for socket buffers, sent in parts of a given size."""

    def __init__(self, size: int) -> None:
        self._size = size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(LARGE))]})
        for start in range(0, len(LARGE), self._size):
            await send({"type": "http.response.body", "body": LARGE[start : start + self._size], "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@contextmanager
def served(app: Any) -> Iterator[int]:
    """Run a server in a thread. Yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, http=BoundedProtocol, ws="none", lifespan="off", log_config=None))

    async def run() -> None:
        sweeping = asyncio.create_task(sweep())
        await server.serve(sockets=[listener])
        sweeping.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        eventually(lambda: server.started)
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "SWEEP", 0.05)
    monkeypatch.setattr(bounded, "HEADERS_SECONDS", 0.5)
    monkeypatch.setattr(bounded, "ANSWER_SECONDS", 0.5)


def rest(connection: socket.socket) -> int:
    """Return the number of bytes until the connection ends."""
    size = 0
    try:
        while part := connection.recv(1 << 20):
            size += len(part)
    except ConnectionResetError:
        pass
    return size


def test_an_unread_response_is_aborted() -> None:
    with served(LargeResponse(1 << 20)) as port, socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        eventually(lambda: len(BoundedProtocol.open_connections) == 1)
        eventually(lambda: not BoundedProtocol.open_connections)
        assert rest(connection) < len(LARGE)


@pytest.mark.parametrize("size", [1 << 20, len(LARGE)])
def test_an_answer_that_is_read_slowly_arrives_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client waits for a timeout check after each part, so the whole takes several times the time limit."""
    looks, check_time = 0, BoundedProtocol.check_time

    def looking(connection: BoundedProtocol, now: float) -> None:
        nonlocal looks
        check_time(connection, now)
        looks += 1

    monkeypatch.setattr(BoundedProtocol, "check_time", looking)
    assert PARTS * bounded.SWEEP > 2 * bounded.ANSWER_SECONDS
    with served(LargeResponse(size)) as port, socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        got, parts = 0, 0
        while part := connection.recv(1 << 20):
            got += len(part)
            if parts < PARTS and got > parts * len(LARGE) // PARTS:
                parts, before = parts + 1, looks
                # The last parts fit into socket buffers: the server may close the connection before they are read.
                eventually(lambda before=before: looks > before or not BoundedProtocol.open_connections)
        assert got > len(LARGE) and parts == PARTS


def test_endless_headers_are_cut_off_even_after_a_valid_request() -> None:
    async def small(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    with served(small) as port, socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in connection.recv(100)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        eventually(lambda: not BoundedProtocol.open_connections, 5)


# -- the application -----------------------------------------------------------------------------------------------


def web() -> Web:
    settings = WebSettings(
        host="127.0.0.1", port=1, certificate="", key="", socket="", data_dir="", store="", users_file="",
        backups="", outside=[], webhook="", webhook_key_file="",
        mail_to=[], mail_from="", mail_server="", mail_tls="", mail_user="", mail_password_file="",
        hosts=["here"], open_metrics=False, audit=False, audit_required=False, audit_bytes=0,
        log_level="info", log_format="text",
    )  # fmt: skip
    nothing: Any = None
    return Web(Services(settings, nothing, nothing, nothing), ())


def test_a_body_that_comes_slowly_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "BODY_SECONDS", 0.1)

    async def stream() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.02)

    request = Request({"type": "http", "method": "POST", "headers": []})
    monkeypatch.setattr(request, "stream", stream)
    with pytest.raises(Problem) as caught:
        asyncio.run(web().read(request))
    assert caught.value.status == 408


def test_long_running_work_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "WORK_SECONDS", 0.1)
    with pytest.raises(Problem) as caught:
        asyncio.run(web().work(time.sleep, 0.5))
    assert caught.value.status == 504
