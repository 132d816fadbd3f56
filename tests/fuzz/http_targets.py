"""Fuzz target for requests to the HTTP API and the console, with a daemon in this process. The server library parses
the head of a request before, so a request that it refuses is not tried."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import tempfile
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import h11

from openmsmq.accounts.users import UsersFile
from openmsmq.actions.background import Jobs
from openmsmq.actions.backup_job import BackupJob
from openmsmq.admin.jobs_file import JOBS_FILE
from openmsmq.console.managers import Managers
from openmsmq.console.services import QueueRows, Services, WebSettings
from openmsmq.console.serving import application
from openmsmq.model.errors import MsmqError
from openmsmq.processes.link import DaemonLink
from openmsmq.server import web
from openmsmq.server.config import Configuration
from openmsmq.server.daemon import Daemon

PEER, PASSWORD = "192.0.2.1", "s3cret"
UNAVAILABLE = (503, 504, 507)  # of the queue manager or of the OpenID provider
STREAM_SECONDS = 0.05
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class InThisProcess:
    """Stands in for `ChildProcess`: the other end of its channel is used here."""

    def __init__(
        self,
        program: object,
        serve: Callable[[socket.socket], Coroutine[Any, Any, None]],
        host: str,
        port: int,
        **settings: Any,
    ) -> None:
        self._serve = serve
        self.port = 18021
        self.settings = WebSettings(host, self.port, **settings)

    async def start(self) -> None:
        ours, self.channel = socket.socketpair()
        self._serving = asyncio.create_task(self._serve(ours))

    async def stop(self, grace: float = 0.0) -> None:
        self._serving.cancel()


class World:
    """A daemon with two users and a queue with a message, and the console in front of it."""

    def __init__(self) -> None:
        directory, backups = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
        users = UsersFile(directory / "users.json")
        users.add("alice", PASSWORD, administrator=True)
        users.add("bob", PASSWORD)
        configuration = Configuration(
            data_dir=directory, endpoint_mapper_port=0, rpc_port=0, message_port=0, web=True, web_port=0,
            backup_directory=backups, oidc_issuer="http://127.0.0.1:1", oidc_client_id="openmsmq",
        )  # fmt: skip
        made: list[InThisProcess] = []
        process = web.ChildProcess
        web.ChildProcess = lambda *given, **settings: made.append(InThisProcess(*given, **settings)) or made[-1]  # type: ignore[misc,assignment,func-returns-value]
        try:
            self._start(configuration)
        finally:
            web.ChildProcess = process  # type: ignore[misc]
        settings, link = made[0].settings, DaemonLink(made[0].channel)
        self.services = Services(
            replace(settings, metrics_queues=5), link, Managers(settings.socket), QueueRows(link),
            backups=BackupJob(settings.backups, settings.outside), jobs=Jobs(settings.directory / JOBS_FILE),
        )  # fmt: skip
        self.application = application(self.services)
        self.names = self._names()

    def _start(self, configuration: Configuration) -> None:
        """Start the daemon in a thread."""
        ready = threading.Event()

        async def run() -> None:
            daemon = Daemon(configuration)
            await daemon.start()
            ready.set()
            await daemon.stopping.wait()

        threading.Thread(target=asyncio.run, args=(run(),), daemon=True).start()
        assert ready.wait(60), "the daemon has not started"

    def _names(self) -> dict[bytes, bytes]:
        """Return what inputs name in braces, because it differs in each world."""
        known = self.services.login("alice", PASSWORD, PEER)
        secret, session = self.services.sessions.open(known["ticket"], known["sid"], known["name"])
        self.ticket = known["ticket"]
        names = {
            b"{cookie}": f"{self.services.settings.cookie}={secret}".encode(), b"{csrf}": session.csrf.encode(),
            b"{alice}": base64.b64encode(f"alice:{PASSWORD}".encode()),
            b"{bob}": base64.b64encode(f"bob:{PASSWORD}".encode()),
        }  # fmt: skip
        self.names = names
        self.queue = str(self._asked("POST /api/v1/queues", {"name": "fuzz"})["id"])
        names[b"{queue}"] = self.queue.encode()
        self._asked(f"POST /api/v1/queues/{self.queue}/messages", {"text": "body", "label": "label"})
        [message] = self._asked(f"GET /api/v1/queues/{self.queue}/messages")["messages"]
        names[b"{lookup}"] = message["lookup"].encode()
        names[b"{token}"] = self._asked("POST /api/v1/tokens", {"name": "fuzz", "role": "operator"})["secret"].encode()
        return names

    def _asked(self, line: str, document: object = None) -> Any:
        head = f"{line}\nAuthorization: Basic {{alice}}\nContent-Type: application/json\n\n"
        status, _, body = self.ask(head.encode() + json.dumps(document).encode()) or (0, [], b"")
        assert status in (200, 201), body
        return json.loads(body)

    @property
    def is_intact(self) -> bool:
        """Whether the user and the queue are still there."""
        try:
            self.services.link.call("whoami", ticket=self.ticket)
            self.services.queue(self.ticket, self.queue)
        except MsmqError:
            return False
        return True

    def ask(self, data: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes] | None:
        """Send a request; its lines end with LF. Return status, headers and body; None if it is not sent."""
        for name, value in self.names.items():
            data = data.replace(name, value)
        head, _, body = data.partition(b"\n\n")
        scope = scope_of(head.split(b"\n"))
        return None if scope is None else asyncio.run(answer(self.application, scope, body))


def scope_of(lines: list[bytes]) -> dict[str, Any] | None:
    """Return the request as the server library passes it on; None if it refuses it."""
    method, _, target = lines[0].partition(b" ")
    pairs = [line.partition(b":")[::2] for line in lines[1:]]
    headers = [(name, value.strip()) for name, value in pairs]
    if not any(name.lower() == b"host" for name, _ in headers):
        headers.append((b"Host", b"localhost"))
    try:
        event = h11.Request(method=method, target=target, headers=headers)
    except h11.LocalProtocolError:
        return None
    raw_path, _, query = event.target.partition(b"?")
    return {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "scheme": "http",
        "server": ("127.0.0.1", 18021), "client": (PEER, 1), "method": event.method.decode("ascii"), "root_path": "",
        "path": unquote(raw_path.decode("ascii")), "raw_path": raw_path, "query_string": query,
        "headers": [(name.lower(), value) for name, value in event.headers],
    }  # fmt: skip


async def answer(app: Any, scope: dict[str, Any], body: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return status, headers and body of a response. The client disconnects from a stream without an end."""
    requests = [{"type": "http.request", "body": body, "more_body": False}]
    found: list[Any] = []

    async def receive() -> Any:
        if requests:
            return requests.pop()
        await asyncio.sleep(STREAM_SECONDS)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        found.append(message)

    await app(scope, receive, send)
    start, *parts = found
    return start["status"], list(start["headers"]), b"".join(part["body"] for part in parts)


class Balanced(HTMLParser):
    """Fails for a page with an end tag that does not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """Elements of drawings may end at once."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert tag == self.open.pop(), (tag, self.open)


def check_body(kind: str, body: bytes) -> None:
    """Check that the body of a response is as declared."""
    if kind in ("application/json", "application/problem+json"):
        json.loads(body)
    elif kind == "text/html":
        page = Balanced()
        page.feed(body.decode())
        page.close()
        assert not page.open, page.open
    elif kind.startswith("text/"):
        body.decode()


worlds: list[World] = []


def fuzz_http(data: bytes) -> None:
    """A request. Its response is not an internal error, its head is acceptable, and its body is as declared."""
    if not worlds or not worlds[0].is_intact:
        worlds[:] = [World()]
    found = worlds[0].ask(data)
    if found is None:
        return
    status, headers, body = found
    assert status < 500 or status in UNAVAILABLE, (status, body)
    h11.Response(status_code=status, headers=headers)
    named = {name.decode(): value.decode("latin-1") for name, value in headers}
    if body and not data.startswith(b"HEAD "):
        assert int(named.get("content-length", len(body))) == len(body)
        check_body(re.split(r"[; ]", named.get("content-type", ""))[0], body)


TARGETS = {"http": fuzz_http}
