"""Actions by HTTP with a server that answers what a daemon would not."""

from __future__ import annotations

import base64
import json
import socket
from dataclasses import replace
from typing import Any

import pytest

from admin.test_http_api import answer, document, problem, served
from openmsmq.actions import alarms, by_http, tokens, users
from openmsmq.actions.audit import AuditQuery, list_records
from openmsmq.actions.by_http import perform
from openmsmq.actions.settings import SettingQuery, list_settings
from openmsmq.actions.table import Action, Empty, Input
from openmsmq.admin.http_requests import ApiError, ApiNotFound, ApiUnreachable, HttpRequests, by_password, by_token

TOKEN = {"id": "x", "name": "n", "user": "u", "role": "monitor", "created": 1, "expires": 2, "used": None}

ALARMS: dict[str, Any] = {"active": [], "events": [], "machine": "m", "command": ""}

PAGE_OF_ONE = list_records.pages._replace(largest=1) if list_records.pages is not None else None


def record(seq: Any) -> dict[str, Any]:
    return {"seq": seq, "time": "t", "actor": {"name": "a", "sid": None}, "origin": {"door": "rpc", "peer": None},
            "action": "x", "type": "queue", "object": "q", "count": None, "before": None, "after": None,
            "result": "ok"}  # fmt: skip


class InTurn:
    """Answers with one document after the other, then with the last one again."""

    def __init__(self, *documents: Any) -> None:
        self._rest = list(documents)

    def __call__(self, connection: socket.socket) -> None:
        document(self._rest.pop(0) if len(self._rest) > 1 else self._rest[0])(connection)


def records_of(*numbers: str) -> InTurn:
    return InTurn(*({"records": [record(number)], "command": ""} for number in numbers))


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
    ],
)
def test_an_answer_without_what_it_needs_is_of_another_server(found: Any, action: Action, given: Input) -> None:
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


def test_a_name_that_is_empty_is_not_asked_for() -> None:
    with pytest.raises(ApiNotFound, match="a name is empty"):
        ask(document({}), tokens.revoke_token, tokens.TokenRevocation(""))


def test_credentials_are_not_shown() -> None:
    assert "secret" not in repr(by_token("omq_secret")) and "secret" not in repr(by_password("x", "secret"))


def test_what_goes_wrong_with_a_password_is_not_said_of_tokens() -> None:
    with served(problem(401, "no")) as server:
        requests = HttpRequests(server.url, by_password("x", "y"))
        with pytest.raises(ApiError, match=r"no \(user or password\)$"):
            perform(requests, tokens.create_token, tokens.NewToken("x"))


def test_only_what_is_done_counts_as_done() -> None:
    for status in ("204 No Content", "206 Partial", "226 IM Used"):
        with pytest.raises(ApiUnreachable):
            ask(answer(b"{}", status), tokens.revoke_token, tokens.TokenRevocation("x"))


@pytest.mark.parametrize(
    "numbers", [["5", "5"], ["5", "6"], ["0", "0"], ["-1", "-1"], ["x", "x"], ["9" * 30, "1"], ["٥", "٥"]]
)
def test_a_list_whose_numbers_do_not_fall_ends(numbers: list[str]) -> None:
    with pytest.raises(ApiError, match="do not fall"):
        ask(records_of(*numbers), replace(list_records, pages=PAGE_OF_ONE), AuditQuery(limit=0))


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
