"""Administration by HTTP with a server that answers what a daemon would not."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from admin.test_http_api import Script, document, served
from openmsmq.admin.administration.by_http import HttpAdministration
from openmsmq.admin.http_requests import ApiError, ApiUnreachable, HttpRequests, by_token


def ask(script: Script, work: Callable[[HttpAdministration], Any], waits: list[float] | None = None) -> Any:
    with served(script, keep=1000) as server:
        requests = HttpRequests(server.url, by_token("omq_secret"), seconds=10)
        try:
            return work(HttpAdministration(requests, [].append if waits is None else waits.append))
        finally:
            requests.close()


class InTurn:
    """Answers with one document after the other, then with the last one again."""

    def __init__(self, *documents: Any) -> None:
        self._rest = list(documents)

    def __call__(self, connection: socket.socket) -> None:
        document(self._rest.pop(0) if len(self._rest) > 1 else self._rest[0])(connection)


@pytest.mark.parametrize(
    ("found", "work"),
    [
        ({"name": "x", "directory": "/b", "backups": [{"name": "x"}], "outside": []}, lambda d: d.back_up("x")),
        ({"steps": [{"said": "x"}], "token": ""}, lambda daemon: daemon.differences({}, local=False)),
        ({"steps": [{"said": "x", "can": 1}], "token": ""}, lambda daemon: daemon.differences({}, local=False)),
        ({"steps": [{"said": "x"}]}, lambda daemon: daemon.import_definitions({}, "", local=False)),
    ],
)
def test_an_answer_without_what_it_needs_is_of_another_server(
    found: Any, work: Callable[[HttpAdministration], Any]
) -> None:
    with pytest.raises(ApiUnreachable, match="is not the HTTP API of openmsmq, or not of this version"):
        ask(document(found), work)


def backups(state: str, error: str | None = None) -> dict[str, Any]:
    known = {"name": "x", "state": state, "time": None, "messages": 3, "error": error}
    return {"name": "x", "directory": "/b", "backups": [known], "outside": ["/users.json"]}


def test_a_backup_is_waited_for() -> None:
    waits: list[float] = []
    script = InTurn({"name": "x"}, backups("running"), backups("running"), backups("done"))
    made = ask(script, lambda daemon: daemon.back_up("x"), waits)
    assert (made.where, made.messages, made.bytes, made.outside) == ("/b/x", 3, None, ["/users.json"])
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("then", "said"),
    [
        (backups("failed", "the disk is full"), "the disk is full"),
        (backups("unfinished"), "it is unfinished"),
        (backups("done") | {"backups": []}, "it is not there any more"),
    ],
)
def test_a_backup_that_fails_says_why(then: dict[str, Any], said: str) -> None:
    with pytest.raises(ApiError, match=f"the backup /b/x failed: {said}"):
        ask(InTurn({"name": "x"}, backups("running"), then), lambda daemon: daemon.back_up("x"))
