"""Choice of the domain controller, and number of attempts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from directory.active.ldap_tree import LdapTree
from openmsmq.directory.active import session as session_module
from openmsmq.directory.active.controllers import THREADS, Controllers
from openmsmq.directory.active.locating import Named
from openmsmq.directory.active.session import ControllerTimeout, DirectorySession, LdapSession
from openmsmq.directory.provider import DirectoryDenied, DirectoryError, DirectoryNotConnected

Work = Callable[[DirectorySession], str]


class Domain:
    """Controllers that can be down; each session knows its controller."""

    def __init__(self, *hosts: str) -> None:
        self.down: dict[str, type[DirectoryNotConnected]] = {}
        self.logins: list[str] = []
        self.sessions: list[LdapTree] = []
        self.controllers = Controllers(Named(hosts), self.connect)

    def connect(self, host: str) -> DirectorySession:
        self.logins.append(host)
        self.check(host)
        session = LdapTree({"": {"dnshostname": [host.encode()]}})
        session.host = host  # type: ignore[attr-defined]
        self.sessions.append(session)
        search = session.search
        session.search = lambda *a, **k: (self.check(host), search(*a, **k))[1]  # type: ignore[method-assign]
        return session

    def check(self, host: str) -> None:
        if kind := self.down.get(host):
            raise kind(f"{host} is down")

    def name(self, session: DirectorySession) -> str:
        host: str = session.host  # type: ignore[attr-defined]
        self.check(host)
        return host


def test_a_session_is_kept_for_the_next_query() -> None:
    domain = Domain("dc1", "dc2")
    assert [domain.controllers.read_now(domain.name) for _ in range(3)] == ["dc1"] * 3
    assert domain.controllers.change_now(domain.name) == "dc1"
    assert domain.logins == ["dc1"]


def test_the_next_controller_is_used_until_it_fails(caplog: pytest.LogCaptureFixture) -> None:
    domain = Domain("dc1", "dc2")
    domain.controllers.read_now(domain.name)
    domain.down["dc1"] = DirectoryNotConnected
    assert domain.controllers.read_now(domain.name) == "dc2"
    assert "dc1 does not answer (dc1 is down): asking dc2" in caplog.text
    domain.down = {"dc2": DirectoryNotConnected}
    assert domain.controllers.change_now(domain.name) == "dc1"


def test_without_a_controller_the_directory_is_unavailable_with_a_reason_for_each() -> None:
    domain = Domain("dc1", "dc2")
    domain.down = {"dc1": DirectoryNotConnected, "dc2": ControllerTimeout}
    for ask in (domain.controllers.read_now, domain.controllers.change_now):
        with pytest.raises(DirectoryNotConnected, match="dc1: dc1 is down; dc2: dc2 is down"):
            ask(domain.name)


def test_a_session_that_has_ended_is_replaced_at_the_same_controller() -> None:
    domain = Domain("dc1")
    domain.controllers.read_now(domain.name)
    ended, worked = domain.sessions[0], []

    def work(session: DirectorySession) -> str:
        worked.append(session)
        if session is ended:
            raise DirectoryNotConnected("ended")
        return "done"

    assert domain.controllers.read_now(work) == "done"
    assert ended.closed and len(worked) == 2


def test_a_change_with_unknown_outcome_is_not_repeated() -> None:
    domain, made = Domain("dc1", "dc2"), []

    def change(session: DirectorySession) -> str:
        made.append(session)
        raise ControllerTimeout("no answer")

    with pytest.raises(DirectoryError, match="may have been made") as caught:
        domain.controllers.change_now(change)
    assert len(made) == 1 and made[0].closed
    assert not isinstance(caught.value, DirectoryNotConnected), "there is another controller"
    assert domain.controllers.change_now(domain.name) == "dc2"
    alone = Domain("dc1")
    with pytest.raises(DirectoryNotConnected):
        alone.controllers.change_now(change)


def test_a_change_goes_to_a_session_that_answers() -> None:
    domain = Domain("dc1", "dc2")
    domain.controllers.read_now(domain.name)
    domain.down["dc1"] = ControllerTimeout
    made: list[str] = []
    domain.controllers.change_now(lambda session: made.append(domain.name(session)))
    assert made == ["dc2"] and domain.sessions[0].closed
    assert domain.logins == ["dc1", "dc2"]  # a silent controller is not tried twice


def test_an_answer_that_is_an_error_keeps_the_session() -> None:
    domain = Domain("dc1")

    def work(session: DirectorySession) -> str:
        raise DirectoryDenied("no")

    for _ in range(2):
        with pytest.raises(DirectoryDenied):
            domain.controllers.change_now(work)
    assert domain.logins == ["dc1"] and not domain.sessions[0].closed


def test_a_silent_controller_blocks_threads_but_not_the_event_loop() -> None:
    domain, released = Domain("dc1"), threading.Event()
    running, before = threading.Semaphore(0), set(threading.enumerate())

    def wait(session: DirectorySession) -> str:
        running.release()
        released.wait(10)
        return "done"

    async def run() -> None:
        asked = [asyncio.create_task(domain.controllers.read(wait)) for _ in range(3 * THREADS)]
        for _ in range(THREADS):
            await asyncio.to_thread(running.acquire)
        # All work has been submitted by now, and the pool creates its threads on submission.
        pool = [t for t in threading.enumerate() if t not in before and t.name.startswith("active-directory")]
        assert len(pool) == THREADS
        released.set()
        assert await asyncio.gather(*asked) == ["done"] * 3 * THREADS
        await domain.controllers.close()

    asyncio.run(run())
    assert all(session.closed for session in domain.sessions)
    assert len(domain.sessions) <= THREADS


def test_a_session_that_was_idle_for_long_is_not_used_again() -> None:
    """A firewall may have dropped its connection without a word, and the controller would seem silent."""
    now, sessions = 0.0, []

    def connect(_: str) -> DirectorySession:
        session, used = LdapTree({"": {}}), now

        def search(*_: object, **__: object) -> list:
            nonlocal used
            if now - used > 300.0:
                raise ControllerTimeout("no answer")
            used = now
            return []

        session.search = search  # type: ignore[method-assign]
        sessions.append(session)
        return session

    controllers = Controllers(Named(["dc1"]), connect, clock=lambda: now)

    def read(session: DirectorySession) -> None:
        session.search("", "(objectClass=*)", [])

    def two_at_once(session: DirectorySession) -> None:
        controllers.read_now(read)
        read(session)

    controllers.read_now(two_at_once)
    for now in range(60, 660, 60):  # noqa: B007
        controllers.read_now(read)
    controllers.read_now(two_at_once)
    assert [session.closed for session in sessions] == [False, True, False]


def test_controllers_that_may_rest_are_not_all_waited_for_and_are_left_alone_for_a_while() -> None:
    asked: list[str] = []
    now = 0.0

    def silent(host: str) -> DirectorySession:
        nonlocal now
        asked.append(host)
        now += 3.0
        raise DirectoryNotConnected("no answer")

    controllers = Controllers(Named([f"dc{number}" for number in range(9)]), silent, 60.0, lambda: now)
    for _ in range(3):
        with pytest.raises(DirectoryNotConnected, match="dc0: no answer; dc1: no answer"):
            controllers.read_now(lambda session: "done")
    assert asked == ["dc0", "dc1"]
    now += 60.0
    with pytest.raises(DirectoryNotConnected):
        controllers.read_now(lambda session: "done")
    assert asked[2:] == ["dc2", "dc3"]


def test_a_query_of_many_slow_requests_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now, sent = 0.0, []
    monkeypatch.setattr(session_module.time, "monotonic", lambda: now)

    class Slow:
        def search_ext(self, base: str, *_: object, **__: object) -> int:
            nonlocal now
            sent.append(base)
            now += 3.0
            return 0

        def result3(self, call: int) -> object:
            return None, [("CN=a", {})], call, []

    def connect(_: str) -> DirectorySession:
        session: Any = LdapSession.__new__(LdapSession)
        failures = dict.fromkeys(
            ("NO_SUCH_OBJECT", "ALREADY_EXISTS", "INSUFFICIENT_ACCESS", "REFERRAL", "TIMEOUT", "SERVER_DOWN",
             "CONNECT_ERROR", "UNAVAILABLE", "BUSY", "DECODING_ERROR", "LOCAL_ERROR", "LDAPError"), RuntimeError,
        )  # fmt: skip
        control = SimpleNamespace(SimplePagedResultsControl=lambda *_, **__: SimpleNamespace(controlType="page"))
        session._ldap, session._connection, session._patience = SimpleNamespace(controls=control, **failures), Slow(), 4
        session.close = lambda: None
        return session

    def work(session: DirectorySession) -> None:
        while True:
            session.search("DC=x", "(objectClass=*)", ["cn"])

    with pytest.raises(DirectoryNotConnected, match="dc1: no complete answer in 8 s"):
        Controllers(Named(["dc1"]), connect).read_now(work)
    assert len(sent) == 3
    assert session_module._limits.until is None
