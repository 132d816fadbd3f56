"""Logins: tickets, delays, sessions, cookies, and cross-site requests."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from console.browser import PASSWORD, Browser, Client, FreshDaemon, ask, port_of
from daemon import Daemon, eventually
from openmsmq.accounts.login_attempts import Delays
from openmsmq.accounts.users import UsersFile
from openmsmq.admin.tokens import TokensFile
from openmsmq.console.callers import WebSessions
from openmsmq.console.limits import IDLE_SECONDS, SESSION_SECONDS, SESSIONS_PER_USER
from openmsmq.gateways.logins import LONGEST, Tickets
from openmsmq.model.errors import AccessDenied


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def tokens(tmp_path: Path) -> TokensFile:
    return TokensFile(tmp_path)


@pytest.fixture
def users(tmp_path: Path) -> UsersFile:
    found = UsersFile(tmp_path / "users.json")
    found.add("alice", "one")
    found.add("bob", "one")
    return found


def test_a_ticket_names_its_user_until_its_end(users: UsersFile, tokens: TokensFile) -> None:
    clock = Clock()
    tickets = Tickets(users, tokens, clock)
    ticket = tickets.login("alice", "one")
    assert ticket is not None and tickets.check(ticket).name == "alice"
    clock.now += LONGEST + 3601
    with pytest.raises(AccessDenied):
        tickets.check(ticket)


def test_setting_the_clock_ends_no_ticket(users: UsersFile, tokens: TokensFile) -> None:
    ticket = Tickets(users, tokens).login("alice", "one")
    assert ticket is not None
    end = json.loads(ticket)[2]
    assert 0 < end - time.monotonic() - LONGEST <= 3600


def test_a_wrong_or_empty_password_gives_no_ticket(users: UsersFile, tokens: TokensFile) -> None:
    tickets = Tickets(users, tokens)
    assert tickets.login("alice", "two") is None and tickets.login("alice", "") is None
    assert tickets.login("carol", "one") is None


def test_a_ticket_ends_with_the_password_and_with_the_user(users: UsersFile, tokens: TokensFile) -> None:
    tickets = Tickets(users, tokens)
    ticket = tickets.login("alice", "one")
    other = tickets.login("bob", "one")
    assert ticket is not None and other is not None
    users.set_password("alice", "two")
    users.remove("bob")
    for ended in (ticket, other):
        with pytest.raises(AccessDenied):
            tickets.check(ended)


def test_nobody_can_make_a_ticket(users: UsersFile, tokens: TokensFile) -> None:
    tickets = Tickets(users, tokens)
    ticket = tickets.login("bob", "one")
    assert ticket is not None
    sid, name, end, token, signature = json.loads(ticket)
    alice = users.sid_of("alice")
    forged: list[object] = [
        [alice, "alice", end, token, signature], [alice, "bob", end, token, signature],
        [sid, name, end + 1, token, signature], [sid, name, end, token], [sid, name, end, token, None],
        [sid, [], end, token, signature], [sid, name, "9", token, signature], [sid, name, end, "0", signature],
        [sid, name, end, [], signature], {}, "x", 7,
    ]  # fmt: skip
    for document in forged:
        with pytest.raises(AccessDenied):
            tickets.check(json.dumps(document))
    for text in ("", "{", "[" * 100_000):
        with pytest.raises(AccessDenied):
            tickets.check(text)
    with pytest.raises(AccessDenied):
        Tickets(users, tokens).check(ticket)


def test_delays_double_after_failures_and_are_for_one_user_at_one_address() -> None:
    clock = Clock()
    delays = Delays(clock)
    waits = []
    for _ in range(6):
        delays.failed("Alice", "10.0.0.7")
        waits.append(delays.left("alice", "10.0.0.7"))
    assert waits == [0, 0, 1, 2, 4, 8]
    assert delays.left("alice", "10.0.0.8") == 0 and delays.left("bob", "10.0.0.7") == 0
    clock.now += 8
    assert delays.left("alice", "10.0.0.7") == 0
    delays.succeeded("alice", "10.0.0.7")
    delays.failed("alice", "10.0.0.7")
    assert delays.left("alice", "10.0.0.7") == 0


def test_a_session_ends_idle_and_at_its_latest() -> None:
    clock = Clock()
    sessions = WebSessions(clock)
    secret, session = sessions.open("t", "S-1", "alice")
    clock.now += IDLE_SECONDS - 1
    assert sessions.find(secret) is session
    clock.now += IDLE_SECONDS + 1
    assert sessions.find(secret) is None
    secret, _ = sessions.open("t", "S-1", "alice")
    for _ in range(int(SESSION_SECONDS / IDLE_SECONDS) + 1):
        clock.now += IDLE_SECONDS - 1
        sessions.find(secret)
    assert sessions.find(secret) is None


def test_a_user_has_a_number_of_sessions() -> None:
    clock = Clock()
    sessions = WebSessions(clock)
    secrets = []
    for _ in range(SESSIONS_PER_USER + 1):
        clock.now += 1
        secrets.append(sessions.open("t", "S-1", "alice")[0])
    assert len(sessions) == SESSIONS_PER_USER
    assert sessions.find(secrets[0]) is None and sessions.find(secrets[1]) is not None


def test_a_cookie_is_for_this_site_and_not_for_scripts(daemon: Daemon) -> None:
    browser = Browser(daemon)
    answer = browser.login()
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"openmsmq-{port_of(daemon)}="), "browsers do not keep cookies apart by port"
    assert answer.status == 201 and "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie
    assert browser.ask("GET", "/api/v1/session").json["user"] == "alice"


@pytest.mark.parametrize("other", ['a={"b": "c d"}', "a[b]=1", "a", '="', "(a)=1", "\xe9=1", "a=\xff"])
def test_cookies_of_other_programs_on_this_host_end_no_session(daemon: Daemon, other: str) -> None:
    browser = Browser(daemon)
    browser.login()
    browser.cookie = f"{other}; {browser.cookie}; {other}"
    assert browser.ask("GET", "/api/v1/session").json["user"] == "alice"


def test_a_change_by_cookie_needs_the_token_of_the_session(daemon: Daemon) -> None:
    browser = Browser(daemon)
    token = browser.login().json["csrf"]
    path, kind = "/api/v1/queues", {"Content_Type": "application/json"}
    body = json.dumps({"name": "csrf"}).encode()

    def create(**headers: str) -> int:
        sent = {"Cookie": browser.cookie, "Content-Type": "application/json", **headers}
        return ask(daemon, "POST", path, body, sent).status

    assert kind and create() == 403
    assert create(**{"X-CSRF-Token": "x"}) == 403
    for header in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert create(**{"X-CSRF-Token": token}, **header) == 403
    assert create(**{"X-CSRF-Token": token, "Sec-Fetch-Site": "same-origin"}) == 201


@pytest.mark.parametrize(("scheme", "secure"), [("http", False), ("https", True)])
def test_without_a_certificate_it_may_be_behind_a_tls_proxy(daemon: Daemon, scheme: str, secure: bool) -> None:
    """A proxy passes the Host header on. The scheme that the browser uses is in its Origin only."""
    headers = {"Host": "localhost", "Origin": f"{scheme}://localhost"}
    browser = Browser(daemon)
    form = {"user": "alice", "password": PASSWORD, "next": "/queues"}
    assert browser.ask("POST", "/login", form, **headers).status == 303
    assert ("Secure" in browser.last.headers["set-cookie"]) is secure
    csrf = browser.ask("GET", "/api/v1/session").json["csrf"]
    assert browser.ask("POST", "/logout", {"csrf": csrf}, Host="localhost", Origin="https://other").status == 403
    assert browser.ask("POST", "/logout", {"csrf": csrf}, **headers).status == 303
    body = json.dumps({"user": "alice", "password": PASSWORD}).encode()
    answer = ask(daemon, "POST", "/api/v1/session", body, {"Content-Type": "application/json", **headers})
    assert answer.status == 201 and ("Secure" in answer.headers["set-cookie"]) is secure


def test_another_site_cannot_log_a_browser_in(daemon: Daemon) -> None:
    body = json.dumps({"user": "alice", "password": PASSWORD}).encode()
    headers = {"Content-Type": "application/json", "Origin": "http://evil.example"}
    assert ask(daemon, "POST", "/api/v1/session", body, headers).status == 403
    assert ask(daemon, "POST", "/api/v1/session", body, {"Content-Type": "text/plain"}).status == 415


def test_a_session_ends_by_logging_out_and_with_the_password(own: FreshDaemon) -> None:
    browser = Browser(own.daemon)
    token = browser.login().json["csrf"]
    headers = {"Cookie": browser.cookie, "X-CSRF-Token": token}
    assert ask(own.daemon, "DELETE", "/api/v1/session", None, headers).status == 204
    assert browser.ask("GET", "/api/v1/session").status == 401
    browser.login()
    own.users.set_password("alice", "another")
    assert browser.ask("GET", "/api/v1/session").status == 401


def test_repeated_failed_logins_are_delayed(own: FreshDaemon) -> None:
    guesser = Client(own.daemon, "bob", "guess")
    statuses = [guesser.ask("GET", "/session").status for _ in range(4)]
    assert statuses == [401, 401, 401, 429]
    waiting = Client(own.daemon, "bob").ask("GET", "/session")
    assert waiting.status == 429 and int(waiting.headers["retry-after"]) >= 1
    assert own.client.ask("GET", "/session").status == 200
    eventually(lambda: Client(own.daemon, "bob").ask("GET", "/session").status == 200)
