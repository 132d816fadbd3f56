"""Hostile, slow and numerous peers, and a web process that dies."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest

import fork_server
from console.browser import PASSWORD, Client, FreshDaemon, ask, bare, port_of
from console.certificate import self_signed
from console.conftest import OPTIONS, users
from daemon import Daemon, eventually
from msrpc.rpc.client import connect
from msrpc.rpc.faults import RpcFault
from msrpc.rpc.tickets import Ticket
from openmsmq.console.limits import BODY, CONNECTIONS_PER_PEER, HEADERS
from openmsmq.interfaces import ms_mqmp
from openmsmq.model.errors import BindError
from openmsmq.server.config import ConfigurationError
from openmsmq.server.loading import load

TLS = {"web_certificate": Path("c.pem"), "web_key": Path("k.pem")}


def web_process(daemon: Daemon) -> psutil.Process:
    children = psutil.Process(daemon.pid).children()
    child = next(child for child in children if "openmsmq.console.serving" in child.cmdline())
    return psutil.Process(fork_server.fork_of(child.pid))


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.x", ""])
def test_another_name_of_this_address_is_refused(daemon: Daemon, host: str) -> None:
    assert ask(daemon, "GET", "/livez", None, {"Host": host}).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:18021", "127.0.0.1", "[::1]:1", "10.0.0.7:18021"])
def test_the_names_of_this_machine_are_served(daemon: Daemon, host: str) -> None:
    assert ask(daemon, "GET", "/livez", None, {"Host": host}).status == 200


def test_every_answer_has_the_headers(daemon: Daemon) -> None:
    for path in ("/livez", "/api/v1/queues", "/nothing", "/metrics"):
        headers = ask(daemon, "GET", path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
        assert headers["server"] is None


def test_what_cannot_be_converted_is_refused(daemon: Daemon) -> None:
    for value in ("Basic \xe9", "Basic a", "Basic //8="):
        assert ask(daemon, "GET", "/api/v1/queues", None, {"Authorization": value}).status == 401
    for status in ("9" * 5000, "422.", "-1", "\u0664"):
        assert ask(daemon, "GET", f"/problems/{quote(status)}").status == 404
    assert ask(daemon, "GET", "/problems/422").status == 200


def test_a_body_is_bounded(client: Client, queue: str) -> None:
    answer = client.ask("POST", f"/queues/{queue}/messages", b'{"text":"' + b"a" * BODY + b'"}')
    assert answer.status == 413


def test_headers_that_come_slowly_are_not_waited_for(own: FreshDaemon) -> None:
    silent, slow = bare(own.daemon), bare(own.daemon)
    with silent, slow:
        slow.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        started = time.monotonic()
        slow.settimeout(30)
        silent.settimeout(30)
        for number in range(40):
            try:
                slow.sendall(b"X-Slow: %d\r\n" % number)
            except OSError:
                break
            if not own.daemon.alive or time.monotonic() - started > 25:
                pytest.fail("a request without an end is still open")
            time.sleep(0.5)
        assert silent.recv(10) == b""
    assert ask(own.daemon, "GET", "/livez").status == 200


def test_connections_of_one_host_are_bounded(own: FreshDaemon) -> None:
    held = [bare(own.daemon) for _ in range(CONNECTIONS_PER_PEER)]
    try:
        eventually(lambda: _is_refused(own.daemon))
    finally:
        for connection in held:
            connection.close()
    eventually(lambda: not _is_refused(own.daemon))


def _is_refused(daemon: Daemon) -> bool:
    try:
        return ask(daemon, "GET", "/livez").status != 200
    except OSError:
        return True


def test_headers_are_bounded(daemon: Daemon) -> None:
    with bare(daemon) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000)
        assert b"400" in connection.recv(100)


@pytest.mark.parametrize(("size", "status"), [(HEADERS - 200, 200), (HEADERS, 400), (60_000, 400), (120_000, 400)])
@pytest.mark.parametrize("request_of", ["/livez HTTP/1.1\r\nX: {}", "/livez?{} HTTP/1.1\r\nX: x"])
def test_headers_that_arrive_at_once_are_bounded(daemon: Daemon, request_of: str, size: int, status: int) -> None:
    with bare(daemon) as connection:
        connection.sendall(f"GET {request_of.format('a' * size)}\r\nHost: localhost\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 %d " % status)


def test_the_daemon_continues_when_the_web_process_dies(own: FreshDaemon) -> None:
    own.client.post("/queues", name="kept")
    port = port_of(own.daemon)
    os.kill(web_process(own.daemon).pid, signal.SIGKILL)
    with own.daemon.connect() as manager:
        assert manager.queues()
    eventually(lambda: "the web process was ended by SIGKILL; its users have to log in again" in own.daemon.log)
    eventually(lambda: not _is_refused(own.daemon))
    assert port_of(own.daemon) == port and own.client.get("/queues", filter="kept")["matching"] == 1


def test_the_web_process_ends_with_the_daemon(own: FreshDaemon) -> None:
    process = web_process(own.daemon)
    own.daemon.kill()
    process.wait(10)


def test_the_private_socket_accepts_only_tickets_of_the_daemon(daemon: Daemon) -> None:
    path = daemon.directory / "web.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    interface = ms_mqmp.qmcomm
    with connect(str(path), 0, credentials=Ticket('["S-1-5-18", "system", 9999999999, "00"]', "x")) as connection:
        with pytest.raises(BindError):
            connection.bind(interface.uuid, interface.version)
    operation = next(o for o in interface.operations if o.name == "R_QMCreateObjectInternal")
    with connect(str(path), 0) as connection:
        connection.bind(interface.uuid, interface.version)
        with pytest.raises(RpcFault, match="ACCESS_DENIED"):
            connection.call(operation.opnum, b"")


def test_an_old_socket_is_replaced(own: FreshDaemon) -> None:
    own.daemon.kill()
    assert (own.daemon.directory / "web.sock").exists()
    own.daemon.ready.pop("web", None)
    own.daemon.start()
    assert own.client.get("/overview")["user"] == "alice"


def test_a_data_directory_may_have_a_long_name(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 100) / "data"
    users(directory)
    with Daemon(directory, "--web", "--web-port", "0") as daemon:
        assert Client(daemon).get("/overview")["user"] == "alice"


def test_off_loopback_there_is_no_start_without_tls() -> None:
    with pytest.raises(ConfigurationError, match="web_certificate"):
        load(None, {}, {"web": True, "web_listen": "0.0.0.0"})
    load(None, {}, {"web": True, "web_listen": "::1"})
    with pytest.raises(ConfigurationError, match="web_key"):
        load(None, {}, {"web": True, "web_certificate": Path("c.pem")})


@pytest.mark.parametrize(
    ("options", "everybody"),
    [
        ({}, True),
        ({"allow_anonymous": False}, False),
        ({"listen": "10.0.0.7"}, False),
        ({"web_listen": "10.0.0.7", **TLS}, False),
        ({"web_listen": "10.0.0.7", "allow_anonymous": True, **TLS}, True),
    ],
)
def test_sums_are_for_everybody_where_anonymous_callers_are_served(options: dict[str, Any], everybody: bool) -> None:
    assert load(None, {}, {"web": True, **options}).web_shows_sums is everybody


def test_sums_need_a_login_where_nobody_is_anonymous(tmp_path: Path) -> None:
    users(tmp_path / "data")
    with Daemon(tmp_path / "data", *OPTIONS, "--no-allow-anonymous") as daemon:
        assert ask(daemon, "GET", "/metrics").status == 401
        assert ask(daemon, "GET", "/livez").status == ask(daemon, "GET", "/readyz").status == 200


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(RuntimeError, match="web on"):
            Daemon(tmp_path / "data", "--web", "--web-port", str(taken.getsockname()[1])).start()


def test_passwords_and_tickets_are_in_no_log(own: FreshDaemon) -> None:
    Client(own.daemon, "alice", "hunter2-wrong").ask("GET", "/session")
    own.client.get("/overview")
    assert "hunter2" not in own.daemon.log and PASSWORD not in own.daemon.log
    environment = web_process(own.daemon).environ()
    assert not any(PASSWORD in value for value in environment.values())


def test_with_a_certificate_it_is_https_and_the_cookie_is_for_that_alone(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    directory = tmp_path / "data"
    users(directory)
    options = ("--web-certificate", str(certificate), "--web-key", str(key))
    with Daemon(directory, *OPTIONS, *options) as daemon:
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("localhost", port_of(daemon), context=context, timeout=30)
        body = json.dumps({"user": "alice", "password": PASSWORD})
        connection.request("POST", "/api/v1/session", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        cookie = response.headers["set-cookie"]
        assert cookie.startswith("__Host-openmsmq=") and "Secure" in cookie
        assert response.headers["strict-transport-security"]
        response.read()
        headers = {"Content-Type": "application/json", "Origin": f"http://localhost:{port_of(daemon)}"}
        connection.request("POST", "/api/v1/session", body, headers)
        assert connection.getresponse().status == 403, "its pages are never those of http"
        connection.close()
        with bare(daemon) as plain:
            plain.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP" not in plain.recv(100)


def test_the_log_may_be_json_of_every_process(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", "--web", "--web-port", "0", "--log-format", "json") as daemon:
        assert ask(daemon, "GET", "/livez").status == 200
    records = [json.loads(line) for line in daemon.log.splitlines()]
    assert all(record.keys() >= {"time", "level", "logger", "message"} for record in records)
    assert {"openmsmq.server.daemon", "uvicorn.error"} <= {record["logger"] for record in records}


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/session", "/nothing"])
def test_a_request_with_two_lengths_is_refused_and_its_connection_ends(daemon: Daemon, path: str) -> None:
    """RFC 9112 6.1: the bytes after it could be taken for the request of another client."""
    request = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        "0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    with bare(daemon) as connection:
        connection.sendall(request.encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1
