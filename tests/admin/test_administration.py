"""Administration by HTTP with a server that answers what a daemon would not."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

from admin.test_http_api import Script, answer, document, problem, served
from openmsmq.admin.administration import by_http
from openmsmq.admin.administration.by_http import HttpAdministration
from openmsmq.admin.audit import AuditFilter
from openmsmq.admin.http_requests import ApiError, ApiNotFound, ApiUnreachable, HttpRequests, by_password, by_token
from openmsmq.model.roles import Role


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


def record(seq: Any) -> dict[str, Any]:
    return {"seq": seq, "time": "t", "actor": {"name": "a", "sid": None}, "origin": {"door": "rpc", "peer": None},
            "action": "x", "type": "queue", "object": "q", "count": None, "before": None, "after": None,
            "result": "ok"}  # fmt: skip


@pytest.mark.parametrize(
    "numbers",
    [["5", "5"], ["5", "6"], ["0", "0"], ["-1", "-1"], ["x", "x"], ["9" * 30, "1"], ["٥", "٥"]],
)
def test_an_audit_log_whose_numbers_do_not_fall_ends(numbers: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_http, "_RECORDS", 1)
    script = InTurn(*({"records": [record(number)]} for number in numbers))
    with pytest.raises(ApiError, match="do not fall"):
        ask(script, lambda daemon: daemon.audit(AuditFilter(), 0))


def test_an_audit_log_without_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_http, "_RECORDS", 1)
    monkeypatch.setattr(by_http, "MOST_PAGES", 3)
    script = InTurn(*({"records": [record(str(number))]} for number in range(9, 1, -1)))
    with pytest.raises(ApiError, match="more than 3 records: ask for fewer"):
        ask(script, lambda daemon: daemon.audit(AuditFilter(), 0))


def test_more_records_than_were_asked_for_are_not_looked_for() -> None:
    with served(document({"records": [record("7")]}), keep=2) as server:
        requests = HttpRequests(server.url, by_token("omq_secret"))
        assert [one["seq"] for one in HttpAdministration(requests).audit(AuditFilter(), 1)] == ["7"]
        requests.close()
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("found", "work"),
    [
        ({"records": [record(7)]}, lambda daemon: daemon.audit(AuditFilter(), 1)),
        ({"records": [record("7") | {"actor": "a"}]}, lambda daemon: daemon.audit(AuditFilter(), 1)),
        ({"records": [record("7") | {"after": []}]}, lambda daemon: daemon.audit(AuditFilter(), 1)),
        ({"users": [{"name": "x"}]}, lambda daemon: daemon.users()),
        ({"users": {}, "groups": []}, lambda daemon: daemon.users()),
        ({"groups": [{"name": "x", "sid": "s", "members": [1]}]}, lambda daemon: daemon.groups()),
        ({"secret": 1}, lambda daemon: daemon.create_token("x", "y", Role.MONITOR, 1)),
        ({"token": {"id": "x"}}, lambda daemon: daemon.revoke_token("x")),
        ({"active": [{"alarm": "disk"}], "events": []}, lambda daemon: daemon.alarms()),
        ({"settings": [{"name": "x", "source": "file"}]}, lambda daemon: daemon.settings()),
        ({"name": "x", "directory": "/b", "backups": [{"name": "x"}], "outside": []}, lambda d: d.back_up("x")),
        ({"machine": None}, lambda daemon: daemon.machine_name()),
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


def test_who_was_added_and_is_gone_is_not_found() -> None:
    script = InTurn({"done": "added"}, {"users": [], "groups": []})
    with pytest.raises(ApiNotFound, match="was added, and is not there any more"):
        ask(script, lambda daemon: daemon.add_user("x", "y", administrator=False, role=Role.MONITOR))


def test_a_change_carries_its_document_and_names_stay_one_step_of_the_path() -> None:
    with served(document({})) as server:
        requests = HttpRequests(server.url, by_password("älice", "pä:ss"))
        HttpAdministration(requests).set_role("a/../b?c", Role.OPERATOR)
        requests.close()
        lines = server.requests[0].split(b"\r\n")
        assert json.loads(server.bodies[0]) == {"role": "operator"}
    assert lines[0] == b"PATCH /api/v1/users/a%2F..%2Fb%3Fc HTTP/1.1"
    assert b"Content-Type: application/json" in lines
    [basic] = [line.partition(b"Basic ")[2] for line in lines if line.startswith(b"Authorization")]
    assert base64.b64decode(basic).decode() == "älice:pä:ss"


def test_credentials_are_not_shown() -> None:
    assert "secret" not in repr(by_token("omq_secret")) and "secret" not in repr(by_password("x", "secret"))


def test_what_goes_wrong_with_a_password_is_not_said_of_tokens() -> None:
    with served(problem(401, "no")) as server:
        requests = HttpRequests(server.url, by_password("x", "y"))
        with pytest.raises(ApiError, match=r"no \(user or password\)$"):
            HttpAdministration(requests).create_token("x", "x", Role.MONITOR, 1)


def test_only_what_is_done_counts_as_done() -> None:
    for status in ("204 No Content", "206 Partial", "226 IM Used"):
        with pytest.raises(ApiUnreachable):
            ask(answer(b"{}", status), lambda daemon: daemon.remove_user("x"))
