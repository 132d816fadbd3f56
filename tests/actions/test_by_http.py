"""Actions through HTTP, with a server whose replies no daemon would send."""

from __future__ import annotations

import base64
import json
import socket
from dataclasses import replace
from typing import Any

import pytest

from admin.test_http_requests import answer, document, problem, served
from openmsmq.actions import alarms, by_http, tokens, users
from openmsmq.actions.audit import AuditQuery, list_records
from openmsmq.actions.backups import NewBackup, list_backups, start_backup
from openmsmq.actions.by_http import perform
from openmsmq.actions.definitions import DefinitionsRequest, import_definitions
from openmsmq.actions.errors import ActionIncomplete
from openmsmq.actions.permissions import PermissionsChange, change_permissions
from openmsmq.actions.settings import SettingQuery, list_settings
from openmsmq.actions.table import Action, Empty, Input
from openmsmq.admin.http_requests import ApiError, ApiNotFound, ApiUnreachable, HttpRequests, by_password, by_token

TOKEN = {"id": "x", "name": "n", "user": "u", "role": "monitor", "created": 1, "expires": 2, "used": None}

STARTED: dict[str, Any] = {"name": "x", "state": "running", "time": None, "messages": None, "error": None}
PLANNED: dict[str, Any] = {"steps": [{"said": "create queue x", "can": True}], "token": "t", "command": ""}
DONE: dict[str, Any] = {"steps": [{"said": "create queue x", "result": "done"}], "failed": 0, "command": ""}

ALARMS: dict[str, Any] = {"active": [], "events": [], "machine": "m", "command": ""}

PAGE_OF_ONE = list_records.pages._replace(largest=1) if list_records.pages is not None else None


def record(seq: Any) -> dict[str, Any]:
    return {"seq": seq, "time": "t", "actor": {"name": "a", "sid": None}, "origin": {"door": "rpc", "peer": None},
            "action": "x", "type": "queue", "object": "q", "count": None, "before": None, "after": None,
            "result": "ok"}  # fmt: skip


class ScriptedAnswers:
    """Answers with each document in order, then repeats the last one."""

    def __init__(self, *documents: Any) -> None:
        self._rest = list(documents)

    def __call__(self, connection: socket.socket) -> None:
        document(self._rest.pop(0) if len(self._rest) > 1 else self._rest[0])(connection)


def records_of(*numbers: str) -> ScriptedAnswers:
    return ScriptedAnswers(*({"records": [record(number)], "command": ""} for number in numbers))


def ask(script: Any, action: Action, given: Input) -> Any:
    with served(script, keep=1000) as server:
        requests = HttpRequests(server.url, by_token("omq_secret"), seconds=10)
        try:
            return perform(requests, action, given)
        finally:
            requests.close()


@pytest.mark.parametrize(
    ("found", "action", "given"),
    [
        ({"records": [record(7)], "command": ""}, list_records, AuditQuery()),
        ({"records": [record("7") | {"actor": "a"}], "command": ""}, list_records, AuditQuery()),
        ({"records": [record("7") | {"after": []}], "command": ""}, list_records, AuditQuery()),
        ({"settings": [{"name": "x", "source": "file"}], "command": ""}, list_settings, SettingQuery()),
        ({**ALARMS, "active": [{"alarm": "disk"}]}, alarms.list_alarms, Empty()),
        ({**ALARMS, "machine": None}, alarms.list_alarms, Empty()),
        ({"users": [{"name": "x"}], "groups": [], "command": ""}, users.list_users, Empty()),
        ({"users": {}, "groups": [], "command": ""}, users.list_users, Empty()),
        (
            {"users": [], "groups": [{"name": "x", "sid": "s", "members": [1]}], "command": ""},
            users.list_users,
            Empty(),
        ),
        ({"done": "added user x", "command": ""}, users.create_user, users.NewUser("x", "y")),
        ({"secret": 1}, tokens.create_token, tokens.NewToken("x")),
        ({"token": {"id": "x"}, "command": ""}, tokens.revoke_token, tokens.TokenRevocation("x")),
        ({"tokens": [TOKEN | {"expires": 1 << 60}], "command": ""}, tokens.list_tokens, Empty()),
        ({"tokens": [TOKEN | {"expires": True}], "command": ""}, tokens.list_tokens, Empty()),
        ({"tokens": [TOKEN | {"role": "emperor"}], "command": ""}, tokens.list_tokens, Empty()),
        ({"directory": "/b", "backups": [{"name": "x"}], "outside": [], "command": ""}, list_backups, Empty()),
        (STARTED | {"directory": "/b", "backups": [{"name": "x"}], "outside": []}, start_backup, NewBackup("x")),
    ],
)
def test_a_response_without_required_members_counts_as_from_another_server(
    found: Any, action: Action, given: Input
) -> None:
    with pytest.raises(ApiUnreachable, match="is not the HTTP API of openmsmq, or not of this version"):
        ask(document(found), action, given)


def test_an_answer_may_have_members_of_later_versions() -> None:
    found = ask(document({"token": TOKEN | {"new": 1}, "command": "", "more": []}), tokens.revoke_token,
                tokens.TokenRevocation("x"))  # fmt: skip
    assert found.token.name == "n"


def test_a_change_carries_its_document_and_names_stay_one_step_of_the_path() -> None:
    with served(document({"token": TOKEN, "secret": "s", "command": ""}), keep=2) as server:
        requests = HttpRequests(server.url, by_password("älice", "pä:ss"))
        perform(requests, tokens.create_token, tokens.NewToken("n", "operator", 7))
        perform(requests, tokens.revoke_token, tokens.TokenRevocation("a/../b?c"))
        requests.close()
        lines = server.requests[0].split(b"\r\n")
        assert json.loads(server.bodies[0]) == {"name": "n", "role": "operator", "days": 7}
        assert server.requests[1].startswith(b"DELETE /api/v1/tokens/a%2F..%2Fb%3Fc HTTP/1.1")
    assert lines[0] == b"POST /api/v1/tokens HTTP/1.1"
    assert b"Content-Type: application/json" in lines
    [basic] = [line.partition(b"Basic ")[2] for line in lines if line.startswith(b"Authorization")]
    assert base64.b64decode(basic).decode() == "älice:pä:ss"


def test_only_what_is_given_of_a_change_is_sent() -> None:
    with served(document({"done": "", "command": ""})) as server:
        requests = HttpRequests(server.url, by_token("omq_secret"))
        perform(requests, users.change_user, users.UserChange("bob", role="operator"))
        requests.close()
        assert server.requests[0].startswith(b"PATCH /api/v1/users/bob HTTP/1.1")
        assert json.loads(server.bodies[0]) == {"role": "operator"}


def test_an_empty_name_is_not_requested() -> None:
    with pytest.raises(ApiNotFound, match="a name is empty"):
        ask(document({}), tokens.revoke_token, tokens.TokenRevocation(""))


def test_credentials_are_not_shown() -> None:
    assert "secret" not in repr(by_token("omq_secret")) and "secret" not in repr(by_password("x", "secret"))


def test_errors_of_passwords_do_not_mention_tokens() -> None:
    with served(problem(401, "no")) as server:
        requests = HttpRequests(server.url, by_password("x", "y"))
        with pytest.raises(ApiError, match=r"no \(user or password\)$"):
            perform(requests, tokens.create_token, tokens.NewToken("x"))


def test_only_completed_items_count_as_done() -> None:
    for status in ("204 No Content", "206 Partial", "226 IM Used"):
        with pytest.raises(ApiUnreachable):
            ask(answer(b"{}", status), tokens.revoke_token, tokens.TokenRevocation("x"))


@pytest.mark.parametrize(
    "numbers", [["5", "5"], ["5", "6"], ["0", "0"], ["-1", "-1"], ["x", "x"], ["9" * 30, "1"], ["٥", "٥"]]
)
def test_a_list_whose_numbers_do_not_fall_ends(numbers: list[str]) -> None:
    with pytest.raises(ApiError, match="do not fall"):
        ask(records_of(*numbers), replace(list_records, pages=PAGE_OF_ONE), AuditQuery(limit=0))


@pytest.mark.parametrize("numbers", [["2", "1"], ["9" * 19, "9" * 18], ["1"], []])
def test_a_list_ends_with_an_empty_page(numbers: list[str]) -> None:
    pages = [{"records": [record(number)], "command": ""} for number in numbers]
    script = ScriptedAnswers(*pages, {"records": [], "command": ""})
    found = ask(script, replace(list_records, pages=PAGE_OF_ONE), AuditQuery(limit=0))
    assert [each.seq for each in found.records] == numbers


def test_a_list_without_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_http, "MOST_PAGES", 3)
    with pytest.raises(ApiError, match="more than 3 rows: ask for fewer"):
        ask(records_of(*map(str, range(9, 1, -1))), replace(list_records, pages=PAGE_OF_ONE), AuditQuery(limit=0))


def test_the_pages_of_a_list_become_one_with_as_many_rows_as_were_asked_for() -> None:
    found = ask(records_of("9", "7", "4", "1"), replace(list_records, pages=PAGE_OF_ONE), AuditQuery(limit=3))
    assert [each.seq for each in found.records] == ["9", "7", "4"]


def test_more_rows_than_were_asked_for_are_not_looked_for() -> None:
    with served(document({"records": [record("7")], "command": ""}), keep=2) as server:
        requests = HttpRequests(server.url, by_token("omq_secret"))
        assert [each.seq for each in perform(requests, list_records, AuditQuery(limit=1)).records] == ["7"]
        requests.close()
        assert len(server.requests) == 1


# -- planned changes -------------------------------------------------------------------------------------------------


def test_what_a_dry_run_has_said_is_carried_out_with_its_token() -> None:
    given = DefinitionsRequest({"format": 1}, True)
    with served(ScriptedAnswers(PLANNED, DONE), keep=2) as server:
        requests = HttpRequests(server.url, by_token("omq_secret"))
        plan = by_http.plan(requests, import_definitions, given)
        assert [step.said for step in plan.would().steps] == ["create queue x"]
        assert plan.carry_out().steps[0].result == "done"
        requests.close()
        assert server.requests[0].startswith(b"POST /api/v1/definitions/dry-runs HTTP/1.1")
        assert json.loads(server.bodies[0]) == {"document": {"format": 1}, "local": True}
        assert server.requests[1].startswith(b"POST /api/v1/definitions HTTP/1.1")
        assert json.loads(server.bodies[1]) == {"document": {"format": 1}, "local": True, "token": "t"}


def test_a_dry_run_by_a_member_of_the_body_asks_the_same_operation() -> None:
    changed = {"queue": "q", "said": "x", "before": "", "after": "", "words_before": [], "words_after": [],
               "warnings": [], "done": False, "command": ""}  # fmt: skip
    with served(document(changed), keep=2) as server:
        requests = HttpRequests(server.url, by_token("omq_secret"))
        by_http.plan(requests, change_permissions, PermissionsChange(queue="7", change="revoke", user="bob"))
        requests.close()
        assert server.requests[0].startswith(b"POST /api/v1/queues/7/permissions HTTP/1.1")
        assert json.loads(server.bodies[0])["dry_run"] is True


def test_a_partial_change_reports_its_parts() -> None:
    failed = DONE | {"steps": [{"said": "create queue x", "result": "failed: no"}], "failed": 1}

    def one_after_the_other(connection: socket.socket) -> None:
        script = document(PLANNED) if not asked else problem(409, "1 step of 1 failed", steps=failed["steps"], failed=1)
        asked.append(script)
        script(connection)

    asked: list[Any] = []
    with served(one_after_the_other, keep=2) as server:
        requests = HttpRequests(server.url, by_token("omq_secret"))
        plan = by_http.plan(requests, import_definitions, DefinitionsRequest({"format": 1}))
        with pytest.raises(ActionIncomplete, match="1 step of 1 failed") as incomplete:
            plan.carry_out()
        requests.close()
    assert incomplete.value.output.failed == 1 and incomplete.value.output.steps[0].result == "failed: no"


def test_a_refused_change_is_not_reported_as_partial() -> None:
    def one_after_the_other(connection: socket.socket) -> None:
        script = problem(412, "make another one") if asked else document(PLANNED)
        asked.append(script)
        script(connection)

    asked: list[Any] = []
    with served(one_after_the_other, keep=2) as server:
        requests = HttpRequests(server.url, by_token("omq_secret"))
        plan = by_http.plan(requests, import_definitions, DefinitionsRequest({"format": 1}))
        with pytest.raises(ApiError, match="make another one"):
            plan.carry_out()
        requests.close()


# -- long-running changes --------------------------------------------------------------------------------------------


def backups(state: str, error: str | None = None) -> dict[str, Any]:
    known = {"name": "x", "state": state, "time": None, "messages": 3, "error": error}
    return {"directory": "/b", "backups": [known], "outside": ["/users.json"], "command": ""}


def test_a_backup_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(by_http.time, "sleep", waits.append)
    script = ScriptedAnswers(STARTED, backups("running"), backups("running"), backups("done"))
    made = ask(script, start_backup, NewBackup("x"))
    assert (made.where, made.messages, made.bytes, made.outside) == ("/b/x", 3, None, ["/users.json"])
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("then", "said"),
    [
        (backups("failed", "the disk is full"), "the disk is full"),
        (backups("unfinished"), "it is unfinished"),
        (backups("done") | {"backups": []}, "it no longer exists"),
    ],
)
def test_a_backup_that_fails_says_why(then: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_http.time, "sleep", lambda seconds: None)
    with pytest.raises(ApiError, match=f"the backup /b/x failed: {said}"):
        ask(ScriptedAnswers(STARTED, backups("running"), then), start_backup, NewBackup("x"))
