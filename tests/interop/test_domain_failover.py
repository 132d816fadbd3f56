"""Two running controllers of one domain, one of which dies during a request."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from daemon import Daemon, eventually
from interop.domain_controller import CONTROLLER, SERVICE_NAME, DomainController, SambaServer, command, login
from interop.domain_forest import SECOND, SECOND_INDEX, second_controller, with_names
from openmsmq.directory.active.controllers import Controllers
from openmsmq.directory.active.locating import Named
from openmsmq.directory.active.session import LdapCredentials, LdapSession
from openmsmq.model.errors import MsmqError

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("domain")]
T = TypeVar("T")
SEARCH = ("DC=rig,DC=test", "(sAMAccountName=alice)", ["objectSid"])


@pytest.fixture(scope="module")
def second(directory: DomainController, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SambaServer]:
    with second_controller(directory, tmp_path_factory.mktemp("second") / "dc") as running:
        yield running


@pytest.fixture
def both(directory: DomainController, second: SambaServer) -> list[str]:
    """Both controllers; the second one is tried first, for tickets too."""
    directory.configure_kerberos([second.address, directory.address])
    return [second.address, directory.address]


def while_it_dies(server: SambaServer, work: Callable[[], T]) -> tuple[T, float]:
    """Start `work` at a controller that does not respond, and kill the controller. Returns the result of `work` and
    the seconds that it took after the kill. The controller is running again. Meanwhile, this thread must not stop."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    with server.silent():
        started = time.monotonic()
        thread.start()
        thread.join(0.7)
        assert time.monotonic() - started < 3, "the wait for the controller held Python's lock"
        assert not results, "it has not asked this controller"
        server.kill()
    started = time.monotonic()
    try:
        thread.join(30)
        took = time.monotonic() - started
    finally:
        server.start()
    assert results, "it has no end"
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0], took


def replicate(source: DomainController, target: SambaServer) -> None:
    """Replicate the source's directory to the target immediately."""
    names = [f"{SECOND}.rig.test", f"{CONTROLLER}.rig.test"]
    command = ["samba-tool", "drs", "replicate", *names, "DC=rig,DC=test", "--local", "-s", str(target.settings)]
    done = subprocess.run(
        [*with_names(source), *command], env=source.environment, capture_output=True, text=True,
        preexec_fn=source.net.enter(SECOND_INDEX),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def controllers(hosts: list[str]) -> Controllers:
    return Controllers(Named(hosts), partial(LdapSession, login=LdapCredentials()))


@pytest.mark.parametrize("logged_in", [True, False], ids=["search", "login"])
def test_a_search_and_a_login_at_the_directory_continue_at_the_other_controller(
    directory: DomainController, second: SambaServer, both: list[str], logged_in: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = directory.ticket("alice", *(f"ldap/{host}" for host in both), name="searching")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    asked = controllers(both)
    if logged_in:
        assert asked.read_now(lambda session: session.search(*SEARCH))
    found, took = while_it_dies(second, lambda: asked.read_now(lambda session: session.search(*SEARCH)))
    assert len(found) == 1 and took < 3


def test_a_user_gets_the_ticket_for_a_queue_manager_from_the_other_controller(
    directory: DomainController, second: SambaServer, both: list[str], keytab: Path, tmp_path: Path
) -> None:
    with Daemon(tmp_path / "data", "--kerberos-keytab", str(keytab), "--logins", "kerberos") as daemon:
        cache = directory.ticket("alice", name="granting")  # no ticket for the service

        def connect() -> str:
            with daemon.connect(**login(cache)) as manager:
                return str(manager.machine_id)

        identifier, took = while_it_dies(second, connect)
        assert identifier and took < 10


def test_public_queues_continue_while_a_controller_dies(
    directory: DomainController, second: SambaServer, both: list[str], keytab: Path, tmp_path: Path
) -> None:
    options = (
        "--directory-provider", "active-directory", "--kerberos-keytab", str(keytab), "--computer-name", "MQ1",
        "--logins", "kerberos", "--domain-administrators", directory.sid("carol"), "--directory-controllers",
    )  # fmt: skip
    carol = directory.ticket("carol", SERVICE_NAME)
    with Daemon(tmp_path / "data", *options, directory.address):
        pass
    replicate(directory, second)
    with Daemon(tmp_path / "data", *options, ",".join(both)) as daemon:
        run = command(daemon, carol)
        made, refused, stop = [], [], threading.Event()

        def create() -> None:
            with daemon.connect(**login(carol)) as manager:
                for number in range(2000):
                    if stop.is_set():
                        return
                    try:
                        manager.create_queue(rf".\during-{number}")
                        made.append(number)
                    except MsmqError as error:
                        refused.append(str(error))
                        time.sleep(0.2)

        thread = threading.Thread(target=create)
        thread.start()
        eventually(lambda: len(made) > 3, 30)
        second.kill()
        try:
            before = len(made)
            try:
                eventually(lambda: len(made) > before + 3, 30)
            except AssertionError:
                raise AssertionError(f"{refused[:3]} {refused[-3:]} {daemon.log}") from None
            stop.set()
            thread.join(30)
            assert f"asking {directory.address}" in daemon.log
            assert len(refused) <= 1, "a change that was under way may be refused, as it may have been made"
            found = directory.search("carol", f"(cn=during-{made[-1]})", "cn")
            assert f"CN=during-{made[-1]},CN=msmq,CN=MQ1" in found
            name = json.loads(run("queue", "create", "--public", "afterwards", "--json"))["format_name"]
            with daemon.connect(**login(carol)) as manager, manager.open(name, "send") as queue:
                queue.send(b"goes on")
        finally:
            stop.set()
            second.start()
    assert "Traceback" not in daemon.log
