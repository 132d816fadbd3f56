"""Users change their own password through HTTP, a command or the console; a stolen session cannot change it."""

from __future__ import annotations

import json

import pytest

from command_line import invoke
from console.browser import PASSWORD, USER, Browser, Client, FreshDaemon, Refused, ask

NEW = "n3w s3cret"


def test_a_user_changes_the_own_password_and_the_old_one_ends(own: FreshDaemon) -> None:
    bob = Client(own.daemon, USER)
    with pytest.raises(Refused) as refused:
        bob.put("/session/password", current="wrong", password=NEW)
    assert refused.value.status == 422 and "current password is wrong" in refused.value.problem["detail"]
    assert bob.put("/session/password", current=PASSWORD, password=NEW)["done"] == "changed the password of bob"
    assert bob.ask("GET", "/session").status == 401
    assert Client(own.daemon, USER, NEW).get("/session")["user"] == USER
    [entry] = [e for e in Client(own.daemon).get("/audit")["records"] if e["action"] == "user.password"]
    assert USER in entry["object"] and NEW not in str(entry)


def test_a_stolen_session_cannot_guess_the_password(own: FreshDaemon) -> None:
    browser = Browser(own.daemon)
    browser.login(USER, PASSWORD)
    browser.ask("GET", "/tokens")
    guess = {"csrf": browser.field("csrf"), "current": "guess", "password": NEW}
    statuses = [browser.ask("POST", "/password", guess).status for _ in range(6)]
    assert statuses[0] == 422 and 429 in statuses


def test_a_token_changes_no_password(own: FreshDaemon) -> None:
    secret = Client(own.daemon, USER).post("/tokens", name="script", role="operator", days=1)["secret"]
    body = json.dumps({"current": PASSWORD, "password": NEW}).encode()
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    answer = ask(own.daemon, "PUT", "/api/v1/session/password", body, headers)
    assert answer.status == 403 and "a token cannot change the password" in answer.json["detail"]


def test_the_command_asks_for_both(own: FreshDaemon) -> None:
    given = ("user", "own-password", "--user", USER, "--data-dir", str(own.daemon.directory), "--password-stdin")
    refused = invoke(*given, stdin=f"wrong\n{NEW}\n")
    assert refused.code == 5, refused
    done = invoke(*given, stdin=f"{PASSWORD}\n{NEW}\n")
    assert done.code == 0 and "changed the password of bob" in done.stderr, done
    assert invoke(*given, stdin=f"{PASSWORD}\nx\n").code == 5


def test_the_page_has_a_form_and_asks_to_log_in_again(own: FreshDaemon) -> None:
    browser = Browser(own.daemon)
    browser.login(USER, PASSWORD)
    assert 'action="/password"' in browser.ask("GET", "/tokens").text
    csrf = browser.field("csrf")
    wrong = browser.ask("POST", "/password", {"csrf": csrf, "current": "wrong", "password": NEW})
    assert wrong.status == 422 and "current password is wrong" in wrong.text and NEW not in wrong.text
    done = browser.ask("POST", "/password", {"csrf": csrf, "current": PASSWORD, "password": NEW})
    assert (done.status, done.headers["location"]) == (303, "/login")
    assert Browser(own.daemon).login(USER, NEW).status == 201
