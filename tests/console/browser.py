"""Clients of the HTTP server: one an API client, a browser-like one that keeps cookies, and bare sockets."""

from __future__ import annotations

import base64
import http.client
import json
import re
import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from daemon import Daemon
from openmsmq.accounts.users import UsersFile

ADMINISTRATOR, USER, PASSWORD = "alice", "bob", "s3cret"


def port_of(daemon: Daemon) -> int:
    return int(daemon.ready["endpoints"]["web"]["port"])


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(
    daemon: Daemon, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(daemon), timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


class Refused(Exception):
    """A problem response."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.text)
        self.status, self.problem = answer.status, answer.json
        assert answer.headers["content-type"] == "application/problem+json"
        assert self.problem["status"] == answer.status


@dataclass
class Client:
    """An API client that authenticates with name and password."""

    daemon: Daemon
    user: str = ADMINISTRATOR
    password: str = PASSWORD

    def ask(self, method: str, path: str, document: Any = None, **query: Any) -> Answer:
        credentials = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        headers = {"Authorization": f"Basic {credentials}"}
        body = None
        if document is not None:
            headers["Content-Type"] = "application/json"
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
        path = f"/api/v1{path}?{urlencode(query)}" if query else f"/api/v1{path}"
        return ask(self.daemon, method, path, body, headers)

    def _done(self, answer: Answer) -> Any:
        if answer.status >= 400:
            raise Refused(answer)
        return answer.json if answer.body else None

    def get(self, path: str, **query: Any) -> Any:
        return self._done(self.ask("GET", path, **query))

    def post(self, path: str, **document: Any) -> Any:
        return self._done(self.ask("POST", path, document))

    def act(self, method: str, path: str, **query: Any) -> Any:
        """Make a change without a request body."""
        return self._done(self.ask(method, path, **query))

    def patch(self, path: str, **document: Any) -> Any:
        return self._done(self.ask("PATCH", path, document))

    def put(self, path: str, **document: Any) -> Any:
        return self._done(self.ask("PUT", path, document))

    def send(self, queue: str, *labels: str, **properties: Any) -> None:
        for label in labels:
            self.post(f"/queues/{queue}/messages", **{"text": label, "label": label, **properties})

    def messages(self, queue: str, **query: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"/queues/{queue}/messages", **query)["messages"]
        return found


@dataclass
class Browser:
    """A client that keeps the cookie and reads pages."""

    daemon: Daemon
    cookie: str = ""
    last: Answer = field(init=False)

    def ask(
        self, method: str, path: str, form: dict[str, str] | list[tuple[str, str]] | None = None, **headers: str
    ) -> Answer:
        sent = {"Cookie": self.cookie} if self.cookie else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        body = None
        if form is not None:
            sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
            body = urlencode(form).encode()
        self.last = ask(self.daemon, method, path, body, sent)
        for line in self.last.headers.get_all("set-cookie") or []:
            self.cookie = line.partition(";")[0]
        return self.last

    def login(self, user: str = ADMINISTRATOR, password: str = PASSWORD) -> Answer:
        body = json.dumps({"user": user, "password": password}).encode()
        self.last = ask(self.daemon, "POST", "/api/v1/session", body, {"Content-Type": "application/json"})
        for line in self.last.headers.get_all("set-cookie") or []:
            self.cookie = line.partition(";")[0]
        return self.last

    def field(self, name: str) -> str:
        """Return the value of a hidden field of the last page."""
        found = re.search(rf'name="{name}" value="([^"]*)"', self.last.text)
        assert found is not None, self.last.text
        return found.group(1)


@dataclass
class FreshDaemon:
    """A daemon for a single test, and its users."""

    daemon: Daemon
    users: UsersFile

    @property
    def client(self) -> Client:
        return Client(self.daemon)


def bare(daemon: Daemon) -> socket.socket:
    """Open a TCP connection without sending anything."""
    return socket.create_connection(("127.0.0.1", port_of(daemon)), 30)
