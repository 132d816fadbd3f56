"""Roles and tokens: rights, expiry, and audit records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from command_line import checked, invoke
from console.browser import PASSWORD, Answer, Browser, Client, FreshDaemon, Refused, ask
from daemon import Daemon, eventually
from openmsmq.admin.tokens import read_uses
from openmsmq.console.resources import OPERATIONS
from openmsmq.model.roles import Role


def by_token(daemon: Daemon, secret: str, method: str, path: str, document: Any = None) -> Answer:
    headers = {"Authorization": f"Bearer {secret}"}
    body = None
    if document is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(document).encode()
    return ask(daemon, method, f"/api/v1{path}", body, headers)


def records(own: FreshDaemon, action: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = own.client.get("/audit", action=action)["records"]
    return found


#: For each role, a request that requires at least this role.
WANTS = {
    Role.MONITOR: ("GET", "/queues/{queue}", None),
    Role.OPERATOR: ("GET", "/queues/{queue}/messages", None),
    Role.ADMINISTRATOR: ("PATCH", "/queues/{queue}", {"label": "x"}),
}


@pytest.mark.parametrize("role", list(Role))
def test_a_role_bounds_what_a_token_may_do(client: Client, queue: str, role: Role) -> None:
    secret = client.post("/tokens", name=f"bound-{role.word}", role=role.word)["secret"]
    for wanted, (method, path, document) in WANTS.items():
        answer = by_token(client.daemon, secret, method, path.format(queue=queue), document)
        assert answer.status == (200 if role >= wanted else 403), (role, wanted, answer.text)
        if role < wanted:
            assert role.word in answer.json["detail"] and wanted.word in answer.json["detail"]
    administers = by_token(client.daemon, secret, "GET", "/settings").status
    assert administers == (200 if role is Role.ADMINISTRATOR else 403)


def test_a_role_never_gives_a_right(client: Client, bob: Client) -> None:
    secret = bob.post("/tokens", name="bold", role="administrator")["secret"]
    for path in ("/settings", "/audit", "/users"):
        assert by_token(client.daemon, secret, "GET", path).status == 403


def test_a_viewer_sees_no_messages(client: Client) -> None:
    """By the operation table, no operation allowed to monitors shows individual messages."""
    allowed = {(one.method, one.path) for one in OPERATIONS if one.needs_login and one.role is Role.MONITOR}
    changes = {(method, path) for method, path in allowed if method != "GET"}
    own = {("DELETE", "/session"), ("PUT", "/session/password"), ("POST", "/tokens"), ("DELETE", "/tokens/{token}")}
    assert changes == own
    assert not [path for _, path in allowed if "messages" in path or "audit" in path]


def test_a_user_is_bounded_in_the_console_too(own: FreshDaemon) -> None:
    queue = own.client.post("/queues", name="orders")["id"]
    own.client.send(queue, "secret text")
    browser = Browser(own.daemon)
    csrf = browser.login("bob").json["csrf"]
    assert "secret text" in browser.ask("GET", f"/queues/{queue}").text
    own.users.set_role("bob", Role.MONITOR)
    page = browser.ask("GET", f"/queues/{queue}")
    assert page.status == 200 and "secret text" not in page.text and "needs the role operator" in page.text
    assert '<form method="post" action="/queues' not in page.text
    for path, form in ((f"/queues/{queue}/send", {"text": "x"}), ("/queues", {"name": "more"})):
        assert browser.ask("POST", path, {"csrf": csrf, **form}).status == 403
    assert browser.ask("GET", f"/queues/{queue}/messages/1").status == 403


def test_a_token_makes_no_token_and_none_is_more_than_its_maker(own: FreshDaemon) -> None:
    made = own.client.post("/tokens", name="script", role="administrator")
    assert by_token(own.daemon, made["secret"], "POST", "/tokens", {"name": "another"}).status == 403
    own.users.set_role("bob", Role.OPERATOR)
    with pytest.raises(Refused) as refused:
        Client(own.daemon, "bob").post("/tokens", name="more", role="administrator")
    assert refused.value.status == 403
    secret = Client(own.daemon, "bob").post("/tokens", name="as much", role="operator")["secret"]
    assert by_token(own.daemon, secret, "GET", "/session").json["role"] == "operator"
    own.users.set_role("bob", Role.MONITOR)
    assert by_token(own.daemon, secret, "GET", "/session").json["role"] == "monitor"


def test_a_revoked_token_stops_at_once(own: FreshDaemon) -> None:
    made = own.client.post("/tokens", name="script", role="monitor")
    secret, identifier = made["secret"], made["token"]["id"]
    assert by_token(own.daemon, secret, "GET", "/queues").status == 200
    own.client.act("DELETE", f"/tokens/{identifier}")
    assert by_token(own.daemon, secret, "GET", "/queues").status == 401
    assert by_token(own.daemon, secret[:-1], "GET", "/queues").status == 401
    for wrong in ("Bearer x", "Bearer", "Bearer omq_", "Basic", "Basic !!", "Negotiate x", ""):
        assert ask(own.daemon, "GET", "/api/v1/session", None, {"Authorization": wrong}).status in (401, 429)


def test_a_token_outlives_a_password_and_not_its_user(own: FreshDaemon) -> None:
    secret = Client(own.daemon, "bob").post("/tokens", name="script")["secret"]
    own.users.set_password("bob", "another")
    assert by_token(own.daemon, secret, "GET", "/session").status == 200
    own.users.remove("bob")
    own.users.add("bob", PASSWORD)
    assert by_token(own.daemon, secret, "GET", "/session").status == 401, "another user of that name"


def test_users_see_their_own_tokens_and_administrators_all(own: FreshDaemon) -> None:
    bob = Client(own.daemon, "bob")
    mine = own.client.post("/tokens", name="alices")["token"]["id"]
    theirs = bob.post("/tokens", name="bobs")["token"]["id"]
    assert {token["id"] for token in bob.get("/tokens")["tokens"]} == {theirs}
    assert {token["id"] for token in own.client.get("/tokens")["tokens"]} == {mine, theirs}
    with pytest.raises(Refused) as refused:
        bob.act("DELETE", f"/tokens/{mine}")
    assert refused.value.status == 404
    own.client.act("DELETE", f"/tokens/{theirs}")


def test_tokens_by_the_command_line(own: FreshDaemon) -> None:
    where = ("--data-dir", str(own.daemon.directory))
    made = json.loads(checked("token", "create", "nightly", "--user", "BOB", "--role", "operator", "--json", *where))
    known = by_token(own.daemon, made["secret"], "GET", "/session").json
    assert (known["user"], known["role"]) == ("bob", "operator")
    listed = json.loads(checked("token", "list", "--json", *where))
    assert (listed["id"], listed["name"], listed["user"]) == (made["id"], "nightly", "bob")
    checked("token", "revoke", made["id"], *where)
    assert by_token(own.daemon, made["secret"], "GET", "/session").status == 401
    gone = invoke("token", "revoke", made["id"], *where)
    assert gone.code == 1 and "no token" in gone.stderr


def test_the_audit_log_has_logins_and_tokens(own: FreshDaemon) -> None:
    for password in ("wrong", PASSWORD, PASSWORD):
        Client(own.daemon, "bob", password).ask("GET", "/session")
    Client(own.daemon, "s3cret-typed-here", "x").ask("GET", "/session")
    made = own.client.post("/tokens", name="script")
    by_token(own.daemon, made["secret"], "GET", "/session")
    own.client.act("DELETE", f"/tokens/{made['token']['id']}")
    logins = records(own, "login")
    of_bob = [(record["result"], record["origin"]["door"]) for record in logins if record["actor"]["name"] == "bob"]
    assert sorted(of_bob) == [("denied", "http"), ("ok", "http")], "the same login once a minute"
    assert "s3cret-typed-here" not in json.dumps(logins)
    assert [record["after"] for record in logins if record["after"]] == [{"token": made["token"]["id"]}]
    actions = [(record["action"], record["object"]) for record in records(own, "token.*")]
    assert actions == [("token.revoke", "script"), ("token.create", "script")]
    assert made["secret"] not in (own.daemon.directory / "audit.jsonl").read_text()


def test_failed_logins_do_not_fill_the_audit_log(own: FreshDaemon) -> None:
    for number in range(40):
        Client(own.daemon, f"nobody{number}", "x").ask("GET", "/session")
    assert len(records(own, "login")) <= 21


def test_when_a_token_was_used_survives_the_daemon(own: FreshDaemon) -> None:
    made = own.client.post("/tokens", name="script")
    by_token(own.daemon, made["secret"], "GET", "/session")
    own.daemon.stop()
    assert made["token"]["id"] in read_uses(own.daemon.directory)


def test_the_tokens_of_a_user_end_with_the_user(own: FreshDaemon) -> None:
    for user in ("carol", "dave"):
        own.client.post("/users", name=user, password="pw", role="monitor")
        Client(own.daemon, user, "pw").post("/tokens", name="script")
    own.client.act("DELETE", "/users/carol")
    checked("user", "remove", "dave", "--data-dir", str(own.daemon.directory))
    assert own.client.get("/tokens")["tokens"] == []
    assert [record["after"]["user"] for record in records(own, "token.revoke")] == ["dave", "carol"]


def test_users_by_http(own: FreshDaemon) -> None:
    client = own.client
    client.post("/users", name="carol", password="pw", role="monitor")
    assert Client(own.daemon, "carol", "pw").get("/session")["role"] == "monitor"
    client.post("/groups", name="clerks", members=["carol"])
    client.patch("/groups/clerks", join=["bob"], leave=["carol"])
    known = client.get("/users")
    assert {user["name"]: user["groups"] for user in known["users"]} == {"alice": [], "bob": ["clerks"], "carol": []}
    client.patch("/users/carol", password="new", role="operator", administrator=True)
    who = Client(own.daemon, "carol", "new").get("/session")
    assert who["role"] == "operator" and who["administrator"]
    assert Client(own.daemon, "carol", "new").ask("GET", "/users").status == 403, "the role bounds the right"
    assert Client(own.daemon, "carol", "pw").ask("GET", "/session").status == 401
    client.act("DELETE", "/users/carol")
    client.act("DELETE", "/groups/clerks")
    assert Client(own.daemon, "carol", "new").ask("GET", "/session").status == 401
    assert [record["action"] for record in records(own, "user.*")][:2] == ["user.remove", "user.role.operator"]
    assert "pw" not in json.dumps(records(own, "user.*"))


@pytest.mark.parametrize(
    ("method", "path", "document", "status"),
    [
        ("POST", "/users", {"name": "x", "password": ""}, 422),
        ("POST", "/users", {"name": "BOB", "password": "x"}, 409),
        ("POST", "/users", {"name": "a/b", "password": "x"}, 409),
        ("POST", "/users", {"name": "x", "password": "x", "nt_hash": "00"}, 422),
        ("PATCH", "/users/nobody", {"password": "x"}, 404),
        ("PATCH", "/users/bob", {}, 422),
        ("PATCH", "/users/bob", {"password": ""}, 422),
        ("PATCH", "/users/alice", {"administrator": False}, 409),
        ("PATCH", "/users/alice", {"role": "monitor"}, 409), ("PATCH", "/users/ALICE", {"password": "x"}, 409),
        ("DELETE", "/users/Alice", None, 409),
        ("DELETE", "/users/nobody", None, 404),
        ("POST", "/groups", {"name": "bob"}, 409),
        ("POST", "/groups", {"name": "g", "members": ["nobody"]}, 404),
        ("PATCH", "/groups/none", {"join": ["bob"]}, 404),
        ("PATCH", "/groups/none", {}, 422),
        ("DELETE", "/groups/none", None, 404),
    ],
)  # fmt: skip
def test_what_cannot_be_done_to_users_is_refused(
    client: Client, method: str, path: str, document: Any, status: int
) -> None:
    assert client.ask(method, path, document).status == status


def test_users_are_for_administrators(bob: Client) -> None:
    for method, path, document in (
        ("GET", "/users", None), ("POST", "/users", {"name": "x", "password": "x"}), ("DELETE", "/users/alice", None),
        ("PATCH", "/users/alice", {"password": "mine"}), ("POST", "/groups", {"name": "g"}),
    ):  # fmt: skip
        assert bob.ask(method, path, document).status == 403
    eventually(lambda: bob.get("/session")["user"] == "bob")
