"""Logins decided by a domain: NTLM of domain accounts, and connections that wait for the result."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from rpc.accounts import NOW, TESTER, acceptor, lookup
from rpc.toys import ECHO, REVERSE, WHO, Toy, running_server

from msrpc.errors import AuthenticationError, LoginRefused, LogonUnavailable
from msrpc.rpc import winbind as module
from msrpc.rpc.blocking_auth import AuthExecutor
from msrpc.rpc.client import connect
from msrpc.rpc.credentials import Credentials, filetime
from msrpc.rpc.ntlm import (
    LoggedOn,
    NetworkLogon,
    NtlmAcceptor,
    NtlmInitiator,
    ServerNames,
    nt_hash,
    ntowf_v2,
)
from msrpc.rpc.ntlm_messages import Challenge, NegotiateFlags
from msrpc.rpc.security import Identity
from msrpc.rpc.throttle import FailureLimits, PeerFailures
from msrpc.rpc.winbind import _AUTH_ERROR, Winbind
from waiting import eventually

DOMAIN_SID = "S-1-5-21-9-9-9-1104"


class Domain:
    """A domain with the users dora and tester; records the logons."""

    def __init__(self, first: bool = False, fails: AuthenticationError | None = None) -> None:
        self.first = first
        self.fails = fails
        self.asked: list[NetworkLogon] = []

    def is_named(self, domain: str) -> bool:
        return domain.upper() == "DOM"

    def names(self, names: ServerNames) -> ServerNames:
        return ServerNames(names.computer, "DOM", names.dns_computer, "dom.test")

    def log_on(self, logon: NetworkLogon) -> LoggedOn | None:
        import hmac

        self.asked.append(logon)
        if self.fails is not None:
            raise self.fails
        if logon.user not in ("dora", "tester"):
            return None
        key = ntowf_v2(nt_hash("dompass"), logon.user, logon.domain)
        proof = hmac.digest(key, logon.challenge + logon.nt_response[16:], "md5")
        if proof != logon.nt_response[:16]:
            raise AuthenticationError("wrong password")
        return LoggedOn(
            Identity(logon.user, "DOM", DOMAIN_SID, frozenset(), "winbind"), hmac.digest(key, proof, "md5")
        )  # fmt: skip


def exchange(domain: Domain, user: str, password: str, of: str = "DOM", ask: bool = True) -> NtlmAcceptor:
    client = NtlmInitiator(user, password, of, random=lambda n: b"\xaa" * n, now=lambda: NOW)
    server = NtlmAcceptor(
        lookup, domain.names(ServerNames("RIG")), random=lambda n: b"\x01" * n, now=lambda: NOW, domain=domain
    )
    first = client.step(b"")
    assert server.question(first) is None
    token = client.step(server.step(first))
    question = server.question(token)
    if question is not None and ask:
        question()
    assert server.step(token) == b""
    assert server.session is not None and client.session is not None
    assert server.session.exported_session_key == client.session.exported_session_key
    return server


def test_the_domain_checks_the_response_and_its_key_protects_what_follows() -> None:
    server = exchange(Domain(), "dora", "dompass")
    assert server.identity is not None
    assert (server.identity.sid, server.identity.login) == (DOMAIN_SID, "winbind")


def test_the_challenge_says_that_the_target_is_a_domain() -> None:
    domain = Domain()
    server = NtlmAcceptor(lookup, domain.names(ServerNames("RIG")), random=bytes, now=lambda: NOW, domain=domain)
    client = NtlmInitiator("dora", "dompass", "DOM", random=bytes, now=lambda: NOW)
    challenge = Challenge.unpack(server.step(client.step(b"")))
    assert challenge.target_name == "DOM"
    assert challenge.flags & NegotiateFlags.TARGET_TYPE_DOMAIN
    assert not challenge.flags & NegotiateFlags.TARGET_TYPE_SERVER


@pytest.mark.parametrize(
    ("first", "user", "password", "of", "login"),
    [
        (False, "tester", "Passw0rd!", "", "ntlm"),
        (False, "tester", "Passw0rd!", "WORKGROUP", "ntlm"),
        (False, "tester", "dompass", "DOM", "winbind"),
        (True, "tester", "dompass", "", "winbind"),
        (True, "tester", "Passw0rd!", "RIG", "ntlm"),
        (False, "dora", "dompass", "", "winbind"),
    ],
)
def test_for_two_accounts_of_one_name_the_client_or_the_order_decides(
    first: bool, user: str, password: str, of: str, login: str
) -> None:
    server = exchange(Domain(first), user, password, of)
    assert server.identity is not None and server.identity.login == login


def test_a_wrong_password_in_the_domain_is_not_tried_with_a_local_account() -> None:
    for domain, of in ((Domain(True), ""), (Domain(), "DOM")):
        with pytest.raises(AuthenticationError, match="wrong password"):
            exchange(domain, "tester", "Passw0rd!", of)
        assert len(domain.asked) == 1


def test_while_the_domain_cannot_be_asked_local_users_log_in_but_for_those_who_name_the_domain() -> None:
    away = LogonUnavailable("away")
    assert exchange(Domain(True, away), "tester", "Passw0rd!", "").identity
    for user, of in (("tester", "DOM"), ("dora", ""), ("nobody", "WORKGROUP")):
        with pytest.raises(LogonUnavailable, match="away"):
            exchange(Domain(True, away), user, "Passw0rd!", of)
    with pytest.raises(LogonUnavailable, match="has not said in time"):
        exchange(Domain(), "dora", "dompass", ask=False)


def test_refused_logins_are_not_checked_and_nothing_is_checked_twice() -> None:
    domain = Domain()
    server = NtlmAcceptor(lookup, ServerNames("RIG"), random=bytes, now=lambda: NOW, domain=domain)
    client = NtlmInitiator("dora", "dompass", "DOM", random=bytes, now=lambda: NOW)
    token = client.step(server.step(client.step(b"")))
    for wrong in (b"", token[:70], bytes(len(token)), token[:20] + b"\xff\xff" + token[22:]):
        assert server.question(wrong) is None
    assert server.question(token) is not None
    assert server.question(token) is None


# -- connections that wait --------------------------------------------------------------------------------------------


class SlowDomain(Domain):
    """A domain that answers when `let` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()

    def log_on(self, logon: NetworkLogon) -> LoggedOn | None:
        assert self.let.wait(20)
        return super().log_on(logon)


DORA = Credentials("dora", "dompass", "DOM")


def serving(domain: Domain) -> Any:
    return running_server(Toy(), acceptor=acceptor(os.urandom, now=filetime, domain=domain))


@pytest.mark.parametrize("spnego", [False, True])
def test_requests_after_a_login_wait_for_its_result_and_other_clients_do_not(spnego: bool) -> None:
    domain, answers = SlowDomain(), []

    def log_in(port: int) -> None:
        with connect("127.0.0.1", port, credentials=DORA, spnego=spnego) as connection:
            connection.bind(ECHO.uuid, ECHO.version)
            answers.append(connection.call(WHO, b"").decode())

    with serving(domain) as (_, port):
        waiting = [threading.Thread(target=log_in, args=(port,)) for _ in range(3)]
        for thread in waiting:
            thread.start()
        with connect("127.0.0.1", port, credentials=TESTER) as connection:  # a local user
            connection.bind(ECHO.uuid, ECHO.version)
            assert connection.call(REVERSE, b"ab") == b"ba"
        assert answers == []
        domain.let.set()
        for thread in waiting:
            thread.join(20)
    assert answers == [f"DOM|dora|{DOMAIN_SID}|5|None"] * 3


def test_a_client_that_goes_while_the_domain_is_asked_leaves_nothing_behind() -> None:
    domain = SlowDomain()
    with serving(domain) as (server, port):
        connection = connect("127.0.0.1", port, credentials=DORA)
        connection.bind(ECHO.uuid, ECHO.version)  # the last login message has no reply
        connection.close()
        domain.let.set()
        eventually(lambda: len(domain.asked) == 1 and not server.connections, 5)
        with connect("127.0.0.1", port, credentials=DORA) as connection:
            connection.bind(ECHO.uuid, ECHO.version)
            assert connection.call(REVERSE, b"ab") == b"ba"


def test_a_silent_domain_refuses_the_login_after_the_time_limit_and_that_is_no_guess() -> None:
    domain = SlowDomain()
    with serving(domain) as (server, port):
        server.questions = AuthExecutor(seconds=0.1)
        server.failures = PeerFailures(time.monotonic, FailureLimits(login=1))
        for _ in range(3):
            with connect("127.0.0.1", port, credentials=DORA) as connection:
                connection.bind(ECHO.uuid, ECHO.version)
                with pytest.raises(LoginRefused):
                    connection.call(WHO, b"")
        domain.let.set()
        server.questions = AuthExecutor()
        wrong = Credentials("dora", "wrong", "DOM")
        with connect("127.0.0.1", port, credentials=wrong) as connection:
            connection.bind(ECHO.uuid, ECHO.version)
            with pytest.raises(LoginRefused):
                connection.call(WHO, b"")
        refused = pytest.raises(LoginRefused, match="too many logins")
        with connect("127.0.0.1", port, credentials=DORA) as connection, refused:
            connection.bind(ECHO.uuid, ECHO.version)  # the limit is one failed login


# -- AuthExecutor -----------------------------------------------------------------------------------------------------


def run(test: Callable[[], Any]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def test_questions_are_asked_a_few_at_a_time_and_none_waits_longer_than_the_limit() -> None:
    release, running, most = threading.Event(), 0, 0
    lock = threading.Lock()

    def slow() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        release.wait(20)
        with lock:
            running -= 1

    async def test() -> None:
        questions = AuthExecutor(2, 0.3)
        done: list[float] = []
        started = time.monotonic()
        for _ in range(6):
            questions.ask(slow, lambda: done.append(time.monotonic() - started))
        while len(done) < 6:
            await asyncio.sleep(0.01)
        assert all(0.25 < seconds < 2 for seconds in done), done
        assert most == 2
        release.set()  # the threads become free
        answered = asyncio.Event()
        questions.ask(lambda: None, answered.set)
        await asyncio.wait_for(answered.wait(), 5)
        assert len(done) == 6, "each goes on once"

    run(test)


def test_a_question_that_fails_continues_and_the_log_has_it(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        answered = asyncio.Event()
        AuthExecutor().ask(lambda: 1 // 0, answered.set)  # type: ignore[arg-type, return-value]
        await asyncio.wait_for(answered.wait(), 5)

    run(test)
    assert "a query for a login failed" in caplog.text


@pytest.mark.parametrize(
    ("status", "error"),
    [(0xC0000064, None), (0xC00000DF, None), (0xC000005E, LogonUnavailable), (0xC000006A, AuthenticationError)],
)
def test_winbind_refuses_does_not_know_or_cannot_ask_about_a_user(status: int, error: type[Exception] | None) -> None:
    winbind = Winbind.__new__(Winbind)
    failure: Any = SimpleNamespace(contents=SimpleNamespace(status=status, text=b"why"))
    logon: Any = SimpleNamespace(domain="D", user="u")
    with pytest.raises(error) if error is not None else nullcontext():
        winbind._check_refusal(_AUTH_ERROR, failure, logon)


class FakeLibrary:
    """libwbclient of a member of a domain, with the calls that tell its names. Counts what is open."""

    def __init__(self, domain: bytes, status: int = 0) -> None:
        self.contexts = self.blocks = 0
        self._details = module._Details(0, b"", b"\\", b"MQ1", domain, b"dom.test")

        class Function:
            """A function of a library, which has attributes."""

            def __init__(self, does: Callable[..., Any]) -> None:
                self._does = does

            def __call__(self, *arguments: Any) -> Any:
                return self._does(*arguments)

        def create() -> int:
            self.contexts += 1
            return self.contexts

        def close(context: int) -> None:
            self.contexts -= 1

        def give(context: int, details: Any) -> int:
            details._obj.contents = self._details
            self.blocks += 1
            return status

        def free(memory: Any) -> None:
            self.blocks -= 1

        self.wbcCtxCreate, self.wbcCtxFree = Function(create), Function(close)
        self.wbcCtxInterfaceDetails, self.wbcFreeMemory = Function(give), Function(free)
        self.wbcErrorString, self.wbcCtxAuthenticateUserEx = Function(lambda error: b"why"), Function(lambda *_: 1)


def test_the_names_of_a_member_come_from_winbind_and_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeLibrary(b"DOM")
    monkeypatch.setattr(module.ctypes, "CDLL", lambda name: library)
    winbind = Winbind(first=False)
    assert winbind.membership() == ("MQ1", "DOM")
    assert winbind.is_named("dom") and winbind.is_named("DOM.TEST") and not winbind.is_named("MQ1")
    assert (library.contexts, library.blocks) == (0, 0)


@pytest.mark.parametrize(("domain", "status", "said"), [(b"", 0, "join this machine"), (b"DOM", 7, "why")])
def test_a_winbind_without_a_domain_lets_nobody_log_in(
    monkeypatch: pytest.MonkeyPatch, domain: bytes, status: int, said: str
) -> None:
    library = FakeLibrary(domain, status)
    monkeypatch.setattr(module.ctypes, "CDLL", lambda name: library)
    with pytest.raises(LogonUnavailable, match=said):
        Winbind(first=False).membership()
    assert (library.contexts, library.blocks) == (0, 0)
