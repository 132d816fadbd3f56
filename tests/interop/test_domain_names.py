"""Names of the domain in the console and in settings: the daemon looks them up with its own account."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import add_user
from console.browser import Client, Refused
from daemon import Daemon, eventually
from interop import domain_controller as domain
from interop.domain_controller import DomainController, login
from openmsmq.model.errors import AccessDenied
from requirements import library

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("domain")]
PASSWORD = "Passw0rd!"
DEAD_LETTERS = r"DIRECT=OS:.\system$;deadletter"


def settings(directory: DomainController, keytab: Path, *more: str) -> tuple[str, ...]:
    return (
        "--directory-controllers", directory.address, "--kerberos-keytab", str(keytab), "--computer-name", "MQ1",
        "--logins", "kerberos,ntlm", "--no-allow-anonymous", *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def daemon(directory: DomainController, keytab: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    library("starlette", "make setup")
    with Daemon(
        tmp_path_factory.mktemp("daemon") / "data", *settings(directory, keytab, "--web", "--web-port", "0")
    ) as d:
        add_user(d.directory, "root", PASSWORD, "--admin")
        yield d
        assert d.alive
    assert "Traceback" not in d.log, d.log


def test_rights_are_given_to_names_of_the_domain_in_the_console_and_shown_with_them(
    directory: DomainController, daemon: Daemon, tickets: dict[str, Path]
) -> None:
    api = Client(daemon, "root", PASSWORD)
    queue = api.post("/queues", name="named")["id"]
    place = f"/queues/{queue}/permissions"
    api.post(place, change="revoke", user="everyone", confirm=True)
    api.post(place, change="grant", user=r"RIG\orders", rights=["WriteMessage"])
    api.post(place, change="grant", user="carol@rig.test", rights=["ReceiveMessage"])
    names = {entry["name"]: entry["sid"] for entry in api.get(place)["entries"]}
    assert names[r"RIG\orders"] == directory.sid(domain.GROUP)
    assert r"RIG\carol" in names
    assert api.get(place, **{"for": "alice@rig.test"})["effective"] == ["WriteMessage"]
    with pytest.raises(Refused, match="no user or group"):
        api.post(place, change="grant", user=r"RIG\nobody", rights=["WriteMessage"])
    with daemon.connect(**login(tickets["alice"])) as manager:
        manager.open(r".\private$\named", "send").close()
    with daemon.connect(**login(tickets["bob"])) as manager, pytest.raises(AccessDenied):
        manager.open(r".\private$\named", "send")
    directory.stop()
    try:
        shown = {entry["name"] for entry in api.get(place)["entries"]}
        assert r"RIG\orders" in shown  # known names still work
        with pytest.raises(Refused, match="does not answer"):
            api.post(place, change="grant", user=r"RIG\else", rights=["WriteMessage"])
    finally:
        directory.start()


def test_readers_of_system_queues_may_be_accounts_of_the_domain(
    directory: DomainController, keytab: Path, tickets: dict[str, Path], tmp_path: Path
) -> None:
    more = ("--system-queue-readers", r"RIG\orders, carol@rig.test, RIG\nobody")
    with Daemon(tmp_path / "data", *settings(directory, keytab, *more)) as running:

        def may(user: str) -> bool:
            try:
                with running.connect(**login(tickets[user])) as manager:
                    manager.open(DEAD_LETTERS, "peek", protocol="qmcomm").close()
            except AccessDenied:
                return False
            return True

        eventually(lambda: may("alice") and may("carol"), 20)
        assert not may("bob")
        assert r"setting system_queue_readers: account RIG\nobody could not be resolved" in running.log


def test_a_start_does_not_wait_for_an_unavailable_domain(
    directory: DomainController, keytab: Path, tickets: dict[str, Path], tmp_path: Path
) -> None:
    directory.stop()
    try:
        with Daemon(
            tmp_path / "data", *settings(directory, keytab, "--system-queue-readers", r"RIG\orders")
        ) as running:
            eventually(lambda: "could not be resolved" in running.log, 20)
            with running.connect(**login(tickets["alice"])) as manager, pytest.raises(AccessDenied):
                manager.open(DEAD_LETTERS, "peek", protocol="qmcomm")
    finally:
        directory.start()
