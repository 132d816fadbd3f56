"""Domain accounts log in with NTLM: Samba's winbind calls its domain controller; impacket is the independent client."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import add_user, at, checked
from daemon import Daemon, eventually
from interop import domain_controller as domain
from interop import impacket_msmq as calls
from interop.domain_controller import DOMAIN, PASSWORD, DomainController
from interop.domain_member import CLONE_NEWNS, SOCKETS, Member
from interop.impacket_client import SEND_ACCESS, direct
from interop.impacket_client import connect as impacket_connection
from interop.samba_connection import Samba, need_samba
from msrpc.rpc.pdu import AuthLevel
from openmsmq.model.errors import AccessDenied, BindError
from openmsmq.model.security import sid_bytes

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("domain")]
NAME = "MQ3"
MS_REC, MS_PRIVATE = 0x4000, 0x40000
ORDERS = r".\private$\orders"
REFUSED = (AccessDenied, BindError)
LEVELS = [AuthLevel.CONNECT, AuthLevel.PKT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY]


def options(controller: DomainController, logins: str) -> tuple[str, ...]:
    return (
        "--logins", logins, "--no-allow-anonymous", "--computer-name", NAME,
        "--domain-administrators", controller.sid("carol"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def daemon(controller: DomainController, member: Member, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    place = tmp_path_factory.mktemp("daemon") / "data"
    with Daemon(place, *options(controller, "ntlm,winbind"), prepare=member.enter()) as running:
        add_user(running.directory, "local", PASSWORD)
        add_user(running.directory, "bob", "Another#1")  # an account that is in the domain, too
        with running.connect(**login("carol"), level=AuthLevel.PKT_PRIVACY) as manager:
            manager.create_queue(ORDERS)
        for rule in (
            ("revoke", ORDERS, "everyone"), ("grant", ORDERS, controller.sid(domain.GROUP), "Send"),
            ("grant", ORDERS, controller.sid("carol"), "FullControl"),
        ):  # fmt: skip
            checked("queue", *rule, "--yes", "--user", rf"{DOMAIN}\carol", OPENMSMQ_PASSWORD=PASSWORD, **at(running))
        yield running
        assert running.alive
    assert "Traceback" not in running.log, running.log


def admits(daemon: Daemon) -> bool:
    try:
        daemon.connect(**login("alice")).close()
    except REFUSED:
        return False
    return True


def login(user: str, password: str = PASSWORD, of: str = DOMAIN) -> dict[str, Any]:
    return {"user": user, "password": password, "domain": of}


@pytest.mark.parametrize("spnego", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_an_account_of_the_domain_logs_in_by_its_password(daemon: Daemon, level: AuthLevel, spnego: bool) -> None:
    with daemon.connect(**login("alice"), level=level, spnego=spnego) as manager:
        assert manager.machine_id


def test_group_members_may_send_others_are_refused_and_the_log_names_the_authenticator(
    controller: DomainController, daemon: Daemon
) -> None:
    with daemon.connect(**login("alice")) as manager, manager.open(ORDERS, "send") as queue:
        queue.send(b"of alice")  # a user in a group of the group
    with daemon.connect(**login("bob")) as manager, pytest.raises(AccessDenied):
        manager.open(ORDERS, "send")
    with daemon.connect(**login("carol")) as manager, manager.open(ORDERS, protocol="qmcomm") as queue:
        assert queue.receive(5).sender_identifier == sid_bytes(controller.sid("alice"))
    assert rf"RIG\alice ({controller.sid('alice')}) logged in from 127.0.0.1 by winbind" in daemon.log


@pytest.mark.parametrize(
    ("user", "of"), [("alice", "rig.test"), ("ALICE", "rig"), ("alice", ""), ("alice@rig.test", "")]
)
def test_an_account_is_found_by_each_of_its_names(daemon: Daemon, user: str, of: str) -> None:
    with daemon.connect(**login(user, of=of)) as manager, manager.open(ORDERS, "send") as queue:
        queue.send(b"of the group")


@pytest.mark.parametrize("level", [2, 5, 6])
def test_impacket_logs_in_with_an_account_of_the_domain(daemon: Daemon, level: int) -> None:
    for user, wanted in (("alice", 0), ("bob", 0xC00E0025)):
        dce = impacket_connection(daemon.port, level, PASSWORD, user=user, of=DOMAIN)
        dce.bind(calls.QMCOMM)
        request = calls.request(
            "rpc_QMOpenQueueInternal", pQueueFormat=direct("orders"), dwDesiredAccess=SEND_ACCESS, dwShareMode=0,
            pLicGuid=bytes(range(16)), lpClientName="client\0",
        )  # fmt: skip
        assert dce.request(request, checkError=False)["result"] == wanted
        dce.disconnect()


@pytest.mark.parametrize("options", ["ntlm,connect", "ntlm,sign", "ntlm,seal", "spnego,packet", "spnego,seal"])
def test_samba_logs_in_with_an_account_of_the_domain(daemon: Daemon, options: str) -> None:
    need_samba()
    name = rf".\private$\samba{options.replace(',', '')}"
    with Samba(daemon.port, options, (rf"{DOMAIN}\carol", PASSWORD)) as samba:
        theirs = samba.manager()
        theirs.create_queue(name)
        with theirs.open(name, "send") as queue:
            queue.send(b"of carol")
        with theirs.open(name, protocol="qmcomm") as queue:
            assert queue.receive(5).body == b"of carol"


@pytest.mark.parametrize(("logins", "without_domain"), [("ntlm,winbind", "ntlm"), ("winbind,ntlm", "winbind")])
def test_for_two_accounts_of_one_name_the_client_or_the_order_decides(
    controller: DomainController, member: Member, tmp_path: Path, logins: str, without_domain: str
) -> None:
    local = "Another#1"
    with Daemon(tmp_path / "data", *options(controller, logins), prepare=member.enter()) as running:

        def who(user: str, password: str, of: str) -> str:
            with running.connect(**login(user, password, of)) as manager:
                manager.machine_id  # noqa: B018 - a call, after which the log contains the login
            lines = [line for line in running.log.splitlines() if " logged in " in line]
            return lines[-1].rpartition(" ")[2]

        add_user(running.directory, "bob", local)
        add_user(running.directory, "local", local)
        passwords = {"ntlm": local, "winbind": PASSWORD}
        assert who("bob", passwords.pop(without_domain), "") == without_domain
        (other,) = passwords.values()
        assert (who("bob", local, NAME), who("bob", PASSWORD, DOMAIN)) == ("ntlm", "winbind")
        for password, of in ((other, ""), (PASSWORD, NAME), (local, DOMAIN)):
            with pytest.raises(REFUSED):
                running.connect(**login("bob", password, of))
        assert who("local", local, "") == "ntlm"  # an account unknown to the domain
        assert who("alice", PASSWORD, "") == "winbind"  # an account that is not in the file


@pytest.mark.parametrize(
    ("change", "back", "said"),
    [
        (("disable", "bob"), ("enable", "bob"), "ACCOUNT_DISABLED"),
        (("setexpiry", "bob", "--days=-1"), ("setexpiry", "bob", "--noexpiry"), "ACCOUNT_EXPIRED"),
    ],
)
def test_an_account_that_is_disabled_or_has_expired_is_refused_with_the_reason_in_the_log(
    controller: DomainController, daemon: Daemon, change: tuple[str, ...], back: tuple[str, ...], said: str
) -> None:
    controller.tool("user", *change)
    try:
        with pytest.raises(REFUSED):
            daemon.connect(**login("bob"))
    finally:
        controller.tool("user", *back)
    assert said in daemon.log
    daemon.connect(**login("bob")).close()


def test_without_winbind_local_users_log_in_and_the_log_names_the_remedy(daemon: Daemon, member: Member) -> None:
    member.stop()
    try:
        daemon.connect(**login("local", of="")).close()
        with pytest.raises(REFUSED):
            daemon.connect(**login("alice"))
        assert "winbind does not answer" in daemon.log and "systemctl start winbind" in daemon.log
    finally:
        member.start()
    daemon.connect(**login("alice")).close()


def test_while_no_controller_answers_domain_logins_are_refused_and_do_not_count_as_guesses(
    controller: DomainController, daemon: Daemon
) -> None:
    controller.stop()
    try:
        for _ in range(3):
            started = time.monotonic()
            with pytest.raises(REFUSED):
                daemon.connect(**login("alice"))
            assert time.monotonic() - started < 15
        daemon.connect(**login("local", of="")).close()
    finally:
        controller.start()
    assert "NO_LOGON_SERVERS" in daemon.log or "has not said in time" in daemon.log

    eventually(lambda: admits(daemon), 60)


def test_a_silent_winbind_delays_no_other_login(daemon: Daemon, member: Member) -> None:
    refused: list[float] = []

    def try_it() -> None:
        started = time.monotonic()
        with pytest.raises(REFUSED):
            daemon.connect(**login("alice"))
        refused.append(time.monotonic() - started)

    asking = [threading.Thread(target=try_it) for _ in range(12)]  # more than there are threads
    with daemon.connect(**login("carol")) as manager:
        with member.silent():
            for thread in asking:
                thread.start()
            slowest, until = 0.0, time.monotonic() + 4
            while time.monotonic() < until:
                started = time.monotonic()
                manager.machine_id  # noqa: B018 - a call
                daemon.connect(**login("local", of="")).close()
                slowest = max(slowest, time.monotonic() - started)
            gone = impacket_connection(daemon.port, 6, PASSWORD, user="alice", of=DOMAIN)
            gone.bind(calls.QMCOMM)  # it waits now, and the client disconnects
            gone.disconnect()
            for thread in asking:
                thread.join(60)
    assert slowest < 1.5, "seconds of a concurrent local login and call"
    assert len(refused) == 12 and max(refused) < 15
    eventually(lambda: daemon.connect(**login("alice")), 30).close()


def test_many_users_log_in_concurrently(daemon: Daemon) -> None:
    failures: list[Exception] = []

    def repeat(user: str) -> None:
        try:
            for _ in range(20):
                daemon.connect(**login(user)).close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(user,)) for user in domain.ACCOUNTS * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_wrong_password_counts_as_a_guess(daemon: Daemon) -> None:
    for _ in range(100):
        with pytest.raises(REFUSED):
            daemon.connect(**login("nobody", "wrong"))
    with pytest.raises(REFUSED):
        daemon.connect(**login("alice"))
    assert "100 failed authentications" in daemon.log

    eventually(lambda: admits(daemon), 20)


def test_without_winbind_a_daemon_starts_and_serves_local_users(controller: DomainController, tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", *options(controller, "winbind,ntlm"), prepare=hide_winbind) as running:
        add_user(running.directory, "local", PASSWORD)
        assert "domain accounts cannot log in with NTLM yet" in running.log
        running.connect(**login("local", of="")).close()
        with pytest.raises(REFUSED):
            running.connect(**login("alice"))


def hide_winbind() -> None:
    """Hide winbind's socket."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "unshare")
    if libc.mount(b"none", SOCKETS.encode(), b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount")


def test_status_shows_whether_winbind_runs_and_for_which_computer(
    controller: DomainController, member: Member, tmp_path: Path
) -> None:
    def found(name: str, prepare: Callable[[], None]) -> dict[str, Any]:
        environment = {
            **os.environ, "OPENMSMQ_LOGINS": "ntlm,winbind", "OPENMSMQ_COMPUTER_NAME": name,
            "OPENMSMQ_DATA_DIR": str(tmp_path),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "openmsmq.cli", "domain", "status", "--json"], env=environment, preexec_fn=prepare,
            capture_output=True, text=True,
        )  # fmt: skip
        rows = {row["thing"]: row for row in map(json.loads, done.stdout.splitlines())}
        return dict(rows["winbind"])

    good = found(NAME, member.enter())
    assert good["ok"] and good["said"] == f"{NAME} is a member of {DOMAIN}"
    assert f"set computer_name to {NAME}" in found("ELSE", member.enter())["advice"]
    assert "systemctl start winbind" in found(NAME, hide_winbind)["advice"]
