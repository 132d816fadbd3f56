"""Slow and unresponsive peers, with short limits; the server runs in this process."""

from __future__ import annotations

import asyncio
import errno
import http.client
import logging
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from console.certificate import self_signed
from daemon import eventually
from openmsmq.console import application, bounded, navigation
from openmsmq.console.application import Web
from openmsmq.console.bounded import BoundedProtocol, BoundedServer
from openmsmq.console.callers import WebCaller
from openmsmq.console.pages import Console
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
def served(app: Any, **options: Any) -> Iterator[int]:
    """Run a server in a thread, with options of uvicorn. Yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=BoundedProtocol, ws="none", lifespan="off", log_config=None, **options)
    server = BoundedServer(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
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


async def small(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def test_endless_headers_are_cut_off_even_after_a_valid_request() -> None:
    with served(small) as port, socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in connection.recv(100)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        eventually(lambda: not BoundedProtocol.open_connections, 5)


@contextmanager
def served_with_tls(directory: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """Run a server with TLS. Yields its port and the context of its clients."""
    certificate, key = self_signed(directory)
    with served(small, ssl_certfile=certificate, ssl_keyfile=key) as port:
        yield port, ssl.create_default_context(cafile=certificate)


def status(port: int, context: ssl.SSLContext) -> int:
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=10)
    with closing(connection):
        connection.request("GET", "/")
        return connection.getresponse().status


def test_connections_without_a_tls_handshake_end_in_time(tmp_path: Path) -> None:
    with served_with_tls(tmp_path) as (port, context), socket.create_connection(("127.0.0.1", port), 10) as silent:
        eventually(lambda: len(BoundedProtocol.open_connections) == 1)
        assert rest(silent) == 0
        eventually(lambda: not BoundedProtocol.open_connections and not BoundedProtocol.peers)
        assert status(port, context) == 200


def test_connections_without_a_tls_handshake_are_counted_and_refused_with_one_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounded, "CONNECTIONS_PER_PEER", 2)
    monkeypatch.setattr(bounded, "HEADERS_SECONDS", 10.0)
    with served_with_tls(tmp_path) as (port, context), ExitStack() as held:
        opened = [held.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(8)]
        assert [rest(connection) for connection in opened[2:]] == [0] * 6
        assert len(BoundedProtocol.open_connections) == 2
        for connection in opened:
            connection.close()
        eventually(lambda: not BoundedProtocol.open_connections and not BoundedProtocol.peers)
        assert status(port, context) == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "HTTP connection from 127.0.0.1 refused: too many are open"
    ]


def test_a_failed_handshake_is_no_error_and_frees_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with served_with_tls(tmp_path) as (port, context), socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        rest(plain)
        eventually(lambda: not BoundedProtocol.open_connections and not BoundedProtocol.peers)
        assert status(port, context) == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_without_file_descriptors_accepting_continues_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounded, "PAUSE", 0.01)
    failures, accept = iter([errno.EMFILE, errno.ENFILE, errno.ECONNABORTED]), socket.socket.accept

    def accepting(listener: socket.socket) -> Any:
        for number in failures:
            raise OSError(number, "no more")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accepting)
    with served(small) as port, socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in connection.recv(100)
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "HTTP connections cannot be accepted: [Errno 24] no more" in record.getMessage() and not record.exc_info


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


def test_work_that_takes_too_long_says_that_a_change_may_still_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "WORK_SECONDS", 0.1)
    with pytest.raises(Problem) as caught:
        asyncio.run(web().work(time.sleep, 0.5))
    assert caught.value.status == 504 and "a change may still be made" in caught.value.detail


@pytest.mark.parametrize(("status", "unchanged"), [(412, True), (507, True), (503, False), (504, False)])
def test_a_page_says_that_nothing_was_changed_only_if_that_is_known(
    monkeypatch: pytest.MonkeyPatch, status: int, unchanged: bool
) -> None:
    monkeypatch.setattr(navigation, "counts_of", lambda services, caller: None)
    monkeypatch.setattr(navigation, "links", lambda path, counts, caller: [])
    request = Request({"type": "http", "method": "POST", "path": "/queues", "headers": []})
    request.state.caller = WebCaller("", "alice", "", False, "")
    request.state.form, request.state.problem = {}, Problem(status, "why").document("1")
    page = asyncio.run(Console(web()).render(request, "problem.html", "Queues", failed=request.state.problem))
    assert (b"Nothing was changed" in page.body) is unchanged


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ConnectionRefusedError("no listener"), 503, b"the queue manager does not answer: no listener"),
        (RuntimeError("a defect"), 500, b"this request failed, see the log"),
    ],
)
def test_a_page_that_fails_is_a_page_without_navigation_if_the_queue_manager_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, said: bytes
) -> None:
    def count(services: Any, caller: WebCaller) -> Any:
        raise ConnectionRefusedError("no listener")

    async def look(request: Request) -> Response:
        request.state.caller = WebCaller("", "alice", "", False, "")
        raise error

    monkeypatch.setattr(navigation, "counts_of", count)
    request = Request({"type": "http", "method": "GET", "path": "/queues", "headers": [], "state": {"request_id": "1"}})
    page = asyncio.run(Console(web()).with_error_pages(look)(request))
    assert page.status_code == status and page.media_type == "text/html" and said in page.body
