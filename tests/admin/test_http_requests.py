"""The HTTP API client with hostile or slow servers, and servers of another kind."""

from __future__ import annotations

import json
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pytest

from openmsmq.actions import by_http
from openmsmq.actions.by_http import perform
from openmsmq.actions.handles import HandleList, HandleQuery, NamedHandle, close_handle, get_handle, list_handles
from openmsmq.actions.queues import absent_queues, queue_named
from openmsmq.admin import http_requests
from openmsmq.admin.http_requests import (
    ApiError,
    ApiNotFound,
    ApiRefused,
    ApiTimeout,
    ApiUnreachable,
    HttpRequests,
    by_token,
)

TOKEN = "omq_secret"
WHO = by_token(TOKEN)
Script = Callable[[socket.socket], None]


class Server:
    """A scripted server on a loopback port; records the heads and bodies of requests."""

    def __init__(self, script: Script, *, keep: int = 1) -> None:
        self.requests: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self._script, self._keep = script, keep  # maximum requests per connection
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines, suppress(OSError):
            for _ in range(self._keep):
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = lines.readline()
                    if not line:
                        return
                    head += line
                length = re.search(rb"(?i)content-length: (\d+)", head)
                self.requests.append(head)
                self.bodies.append(lines.read(int(length.group(1))) if length else b"")
                self._script(connection)

    def close(self) -> None:
        self._listener.close()


@contextmanager
def served(script: Script, *, keep: int = 1) -> Iterator[Server]:
    server = Server(script, keep=keep)
    try:
        yield server
    finally:
        server.close()


def answer(body: bytes, status: str = "200 OK", kind: str = "application/json", more: str = "") -> Script:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode()
    return lambda connection: connection.sendall(head + body)


def document(value: Any) -> Script:
    return answer(json.dumps(value).encode())


def problem(status: int, detail: str, **more: Any) -> Script:
    body = json.dumps({"status": status, "detail": detail, **more}).encode()
    return answer(body, f"{status} No", "application/problem+json")


def ask(script: Script, seconds: float = 30.0) -> HandleList:
    with served(script) as server, HttpRequests(server.url, WHO, seconds=seconds) as api:
        found: HandleList = perform(api, list_handles, HandleQuery(limit=0))
        return found


NONE = {"handles": [], "matching": 0, "all": 0, "next": None, "command": ""}
ROW = {
    "id": "ab", "queue": "p1", "name": "m\\private$\\q", "access": "receive", "since": 1, "exclusive": True,
    "waiting": 0, "cursors": 0, "held": 0, "user": "bob", "sid": "S-1", "origin": "rpc 10.0.0.7",
}  # fmt: skip


def test_a_row_is_read() -> None:
    found = ask(document(NONE | {"handles": [ROW], "matching": 1}))
    assert msgspec.structs.asdict(found.handles[0]) == ROW and found.matching == 1


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_a_redirect_is_not_followed_and_the_token_stays_here(status: str) -> None:
    with served(document(NONE)) as other:
        script = answer(b"", status, more=f"Location: {other.url}/api/v1/handles\r\n")
        with pytest.raises(ApiUnreachable, match="redirected to") as caught:
            ask(script)
        assert other.url in str(caught.value) and TOKEN not in str(caught.value)
        assert not other.requests


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_without_end_is_not_read_to_its_end(chunked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_requests, "_LARGEST", 1 << 20)
    sent = 0

    def pour(connection: socket.socket) -> None:
        nonlocal sent
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        piece = b" " * 65536
        connection.sendall(head + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"\r\n"))
        while True:
            connection.sendall(b"10000\r\n" + piece + b"\r\n" if chunked else piece)
            sent += len(piece)

    with pytest.raises(ApiUnreachable, match=r"exceeds 1,048,576 bytes"):
        ask(pour)
    assert sent < 64 << 20


def gone(connection: socket.socket, seconds: float) -> bool:
    """Whether a client that has sent all its data closes the connection within `seconds`."""
    return bool(select.select([connection], [], [], seconds)[0])


def test_a_slow_response_ends_at_the_time_limit() -> None:
    """Each byte follows soon after the previous one."""

    def trickle(connection: socket.socket) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000:
            connection.sendall(bytes([byte]))
            if gone(connection, 0.05):
                return

    started = time.monotonic()
    with pytest.raises(ApiTimeout, match=r"has not answered within 0.5 s"):
        ask(trickle, seconds=0.5)
    assert time.monotonic() - started < 10


def test_a_body_that_does_not_come_ends_at_the_time_limit() -> None:
    def stop(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")
        while connection.recv(4096):  # until the client closes the connection
            pass

    with pytest.raises(ApiTimeout):
        ask(stop, seconds=0.3)


@pytest.mark.parametrize(
    "script",
    [
        answer(b"<html>", kind="text/html"),
        answer(b'{"handles": [], "matching": 0}', kind="text/plain"),
        answer(b"{"),
        answer(b"[]"),
        answer(b"[" * 100_000),
        answer(b"\xff"),
        document({"handles": []}),
        document(NONE | {"handles": {}, "matching": 0}),
        document(NONE | {"handles": [], "matching": "0"}),
        document(NONE | {"handles": [], "matching": True}),
        document(NONE | {"handles": [7], "matching": 1}),
        document(NONE | {"handles": [ROW | {"since": None}], "matching": 1}),
        document(NONE | {"handles": [{name: value for name, value in ROW.items() if name != "since"}], "matching": 1}),
        answer(b"not found", "404 Not Found", "text/plain"),
        answer(b"{}", "404 Not Found", "application/problem+json"),
        answer(b'{"detail": 7}', "403 Forbidden", "application/problem+json"),
    ],
)
def test_a_response_that_is_not_from_the_api_is_reported_as_another_server(script: Script) -> None:
    with pytest.raises(ApiUnreachable, match="is not the HTTP API of openmsmq, or not of this version"):
        ask(script)


@pytest.mark.parametrize("raw", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n"])
def test_a_server_without_http_counts_as_unreachable(raw: bytes) -> None:
    with pytest.raises(ApiUnreachable, match="does not answer as an HTTP server does"):
        ask(lambda connection: connection.sendall(raw))


@pytest.mark.parametrize(("method", "doubtful"), [("POST", True), ("DELETE", True), ("GET", False)])
@pytest.mark.parametrize("closes", [True, False])
def test_a_change_without_an_answer_may_have_been_made(method: str, doubtful: bool, closes: bool) -> None:
    def silent(connection: socket.socket) -> None:
        if not closes:
            gone(connection, 30)

    with (
        served(silent) as server,
        HttpRequests(server.url, WHO, seconds=30 if closes else 0.2) as api,
        pytest.raises(ApiUnreachable if closes else ApiTimeout) as caught,
    ):
        api.ask(method, "/queues/1", body={} if method == "POST" else None)
    assert ("the change may have been made (openmsmq audit shows it)" in str(caught.value)) is doubtful


def test_a_closed_port_counts_as_unreachable() -> None:
    with socket.socket() as bound:  # held, so that no other program listens there
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with HttpRequests(url, WHO) as api:
            with pytest.raises(ApiUnreachable, match="refused"):
                perform(api, list_handles, HandleQuery())
            with pytest.raises(ApiUnreachable) as caught:
                api.ask("POST", "/queues", body={})
            assert "may have been made" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, ApiRefused), (403, ApiRefused), (404, ApiNotFound), (429, ApiError), (503, ApiError), (500, ApiError)],
)
def test_an_error_has_the_servers_text(status: int, kind: type[ApiError]) -> None:
    with pytest.raises(ApiError, match="the reason of the server") as caught:
        ask(problem(status, "the reason of the server"))
    assert type(caught.value) is kind


def test_a_long_reason_is_truncated() -> None:
    with pytest.raises(ApiError) as caught:
        ask(problem(503, "x" * 100_000))
    assert len(str(caught.value)) < 1000


def test_a_list_that_does_not_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_http, "MOST_PAGES", 3)
    with served(document(NONE | {"next": "more"}), keep=10) as server, HttpRequests(server.url, WHO) as api:
        with pytest.raises(ApiError, match="more than 0 rows"):
            perform(api, list_handles, HandleQuery(limit=0))
        assert (len(server.requests), server.connections) == (3, 1)


def test_a_connection_that_the_server_has_closed_is_made_again() -> None:
    with served(document(NONE)) as server, HttpRequests(server.url, WHO) as api:
        for _ in range(3):
            assert perform(api, list_handles, HandleQuery()).matching == 0
        assert server.connections == 3


def test_a_change_is_sent_once() -> None:
    with served(lambda connection: None) as server, HttpRequests(server.url, WHO) as api:
        with pytest.raises(ApiUnreachable):
            perform(api, close_handle, NamedHandle("ab"))
        assert len(server.requests) == 1 and server.requests[0].startswith(b"DELETE /api/v1/handles/ab ")


def test_a_name_stays_one_segment_of_the_path() -> None:
    with served(problem(404, "no")) as server, HttpRequests(server.url, WHO) as api:
        with pytest.raises(ApiNotFound):
            perform(api, get_handle, NamedHandle("../queues?x#\r\nX: y"))
        assert server.requests[0].startswith(b"GET /api/v1/handles/..%2Fqueues%3Fx%23%0D%0AX%3A%20y HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "url",
    ["", "host:18021", "ftp://host", "https://", "https://host/?x=1", "https://host/#x", "https://u:p@host",
     "http://10.0.0.7:18021", "http://localhost.example.org:18021"],
)  # fmt: skip
def test_a_url_to_which_no_token_may_go_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|https"):
        HttpRequests(url, WHO)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "https://10.0.0.7"])
def test_a_url_of_loopback_or_with_tls_is_taken(url: str) -> None:
    HttpRequests(url, WHO).close()


def queue(name: str, kind: str = "queue") -> dict[str, Any]:
    return {"id": name, "kind": kind, "name": name, "messages": 0, "bytes": 0, "came": 0, "left": 0, "grown": 0,
            "journal_messages": 0, "waiting": 0, "state": "", "label": "", "transactional": False, "journaling": False,
            "journal_bytes": 0, "quota": None, "handles": 0, "readers": 0, "exclusive": False}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("what?", "m\\private$\\what?"), ("st*r", "m\\private$\\st*r"),
        ("orders", "m\\private$\\orders"), (".\\private$\\ORDERS", "m\\private$\\orders"),
        ("m\\private$\\orders", "m\\private$\\orders"), ("orders;journal", "m\\private$\\orders;journal"),
        ("DeadLetter", "deadletter"), ("deadxact", "xactdeadletter"),
        ("DIRECT=OS:m\\private$\\orders", "DIRECT=OS:m\\private$\\orders"), (".\\public", "m\\public"),
    ],
)  # fmt: skip
def test_queues_are_named_as_people_name_them(said: str, found: str) -> None:
    rows = [
        queue("DIRECT=OS:m\\private$\\orders", "outgoing"), queue("m\\private$\\orders2"),
        queue("m\\private$\\orders"), queue("m\\private$\\orders;journal", "journal"), queue("m\\public"),
        queue("deadletter", "deadletter"), queue("xactdeadletter", "deadletter"),
        queue("m\\private$\\what?"), queue("m\\private$\\st*r"),
    ]  # fmt: skip
    with (
        served(document({"queues": rows, "matching": 7, "all": 7, "next": None, "command": ""})) as server,
        HttpRequests(server.url, WHO) as api,
    ):
        assert queue_named(api, said).name == found
        pattern = b"filter=%2A" in server.requests[0]  # a filter with a wildcard must match the whole name
        assert pattern is ("*" in said or "?" in said)
        with pytest.raises(ApiNotFound, match="there is no queue other"):
            queue_named(api, "other")


def test_a_newer_list_of_queues_is_waited_for_once_for_all_names(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    rows = [queue("m\\private$\\orders")]
    with (
        served(document({"queues": rows, "matching": 1, "all": 1, "next": None, "command": ""})) as server,
        HttpRequests(server.url, WHO) as api,
    ):
        assert absent_queues(api, ["other", "orders", "another"]) == ["other", "another"]
        assert (len(server.requests), waits) == (5, [1.1])


def test_a_request_that_the_server_would_refuse_for_its_size_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_requests, "MOST_BYTES", 1000)
    with served(document(NONE)) as server, HttpRequests(server.url, WHO) as http:
        with pytest.raises(ApiError, match="has 1,010 bytes, allowed: 1,000; make it in parts, or by a command "):
            http.ask("POST", "/definitions", body={"a": "b" * 1001})
        assert not server.requests
