"""Choice of the domain controller, and number of attempts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from directory.active.ldap_tree import LdapTree
from openmsmq.directory.active.controllers import THREADS, Controllers
from openmsmq.directory.active.locating import Named
from openmsmq.directory.active.session import ControllerTimeout, DirectorySession
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
