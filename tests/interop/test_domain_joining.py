"""`openmsmq domain join` and `leave` with Samba as the domain: a daemon works with the files that they create."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command_line import CommandResult, add_user, at, checked, invoke
from daemon import Daemon
from interop.domain_controller import ADMINISTRATOR, PASSWORD, REALM, DomainController, login
from openmsmq.model.errors import AccessDenied

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("domain")]
NAME, HOST = "JOINER", "joiner.rig.test"
COMPUTER = f"CN={NAME},CN=Computers,DC=rig,DC=test"
LOCAL = {"user": "local", "password": "Passw0rd!"}


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5CCNAME", "MEMORY:replaced")  # restored after logins with keys and passwords change it


def run(directory: DomainController, data: Path, *arguments: str, name: str = NAME, **settings: str) -> CommandResult:
    given = {
        "OPENMSMQ_DATA_DIR": str(data), "OPENMSMQ_DIRECTORY_CONTROLLERS": directory.address,
        "OPENMSMQ_COMPUTER_NAME": name, "OPENMSMQ_PASSWORD": PASSWORD,
    } | settings  # fmt: skip
    return invoke("domain", *arguments, **given)


def join(
    directory: DomainController, data: Path, *arguments: str, user: str = ADMINISTRATOR, name: str = NAME
) -> CommandResult:
    host = f"{name.lower()}.rig.test"
    return run(directory, data, "join", "--user", f"{user}@{REALM}", "--host-name", host, *arguments, name=name)


def leave(directory: DomainController, data: Path, *arguments: str) -> CommandResult:
    return run(directory, data, "leave", "--user", f"{ADMINISTRATOR}@{REALM}", *arguments)


def computer(directory: DomainController, name: str = NAME) -> str:
    return directory.search("alice", f"(|(sAMAccountName={name}$)(&(objectClass=mSMQConfiguration)(cn=msmq)))", "cn")


def settings(directory: DomainController, keytab: Path) -> tuple[str, ...]:
    return (
        "--directory-provider", "active-directory", "--directory-controllers", directory.address,
        "--kerberos-keytab", str(keytab), "--computer-name", NAME, "--logins", "kerberos,ntlm",
        "--domain-administrators", directory.sid("carol"), "--no-allow-anonymous",
    )  # fmt: skip


def test_a_queue_manager_moves_into_the_domain_with_its_queues_and_leaves_it_again(
    directory: DomainController, tickets: dict[str, Path], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with Daemon(data, "--computer-name", NAME) as before:
        add_user(before.directory, LOCAL["user"], LOCAL["password"])
        with before.connect() as manager:
            former = manager.machine_id
            manager.create_queue(r".\private$\kept")
            manager.create_queue(r".\listed", label="moved")
            public = manager.format_name(r".\listed")
            for queue in (r".\private$\kept", public):
                with manager.open(queue, "send") as sending:
                    sending.send(b"of before", recoverable=True)
            private = manager.format_name(r".\private$\kept")
        checked("queue", "revoke", "kept", "everyone", "--yes", **at(before))
        checked("queue", "grant", "kept", "local", "FullControl", "--yes", OPENMSMQ_DATA_DIR=str(data), **at(before))
        running = join(directory, data)
        assert running.code == 1 and "stop the daemon first" in running.stderr
    assert f"CN={NAME}" not in computer(directory)
    tried = join(directory, data, "--publish", "--dry-run")
    assert tried.code == 0, tried
    assert f"would create the account {NAME}$" in tried.stdout and "1 public queues get objects" in tried.stdout
    assert f"CN={NAME}" not in computer(directory) and not (data / "machine.keytab").exists()

    joined = join(directory, data, "--publish")
    assert joined.code == 0, joined
    assert f"{public} is PUBLIC=" in joined.stdout
    keytab = data / "machine.keytab"
    assert keytab.stat().st_mode & 0o777 == 0o600
    status = run(directory, data, "status", OPENMSMQ_KERBEROS_KEYTAB=str(keytab))
    assert status.code == 0, status
    service = f"host/{HOST}@{REALM}"
    carol, alice = directory.ticket("carol", service, name="c"), directory.ticket("alice", service, name="a")
    with Daemon(data, *settings(directory, keytab)) as moved:
        with moved.connect(**login(carol, service)) as manager:
            assert manager.machine_id != former
            assert f"CN=msmq,{COMPUTER}" in computer(directory)
        with moved.connect(**LOCAL) as manager, manager.open(private, protocol="qmcomm") as queue:  # by its former name
            assert queue.receive(5).body == b"of before"
        with moved.connect(**login(alice, service)) as manager:
            with pytest.raises(AccessDenied):
                manager.open(private, protocol="qmcomm")
            with manager.open(rf"{NAME}\listed", protocol="qmcomm") as queue:
                assert queue.receive(5).body == b"of before"
        found = directory.search("alice", "(mSMQLabelEx=moved)", "cn")
        assert f"CN=listed,CN=msmq,{COMPUTER}" in found
        assert "does not have the public queue" not in moved.log and "domain join" not in moved.log
        with moved.connect(**LOCAL) as manager, manager.open(r"DIRECT=OS:elsewhere\private$\q", "send") as queue:
            queue.send(b"waits", recoverable=True)
    again = join(directory, data, "--publish")  # it moves nothing, so it need not wait
    assert again.code == 0 and "this machine is a member" in again.stdout, again
    assert "PUBLIC=" not in again.stdout

    assert "would delete the account" in leave(directory, data, "--dry-run").stdout
    left = leave(directory, data, "--yes")
    assert left.code == 0, left
    assert f"CN={NAME}" not in computer(directory) and not keytab.exists()
    assert directory.search("alice", "(mSMQLabelEx=moved)", "cn") == ""
    nothing = leave(directory, data, "--yes")
    assert nothing.code == 0 and "has no objects of" in nothing.stdout
    with Daemon(data, "--computer-name", NAME) as alone, alone.connect(**LOCAL) as manager:
        manager.open(private, protocol="qmcomm").close()


def test_a_machine_that_is_a_member_keeps_its_account_and_its_keys(
    directory: DomainController, keytab: Path, tmp_path: Path
) -> None:
    before = keytab.read_bytes()
    joined = join(directory, tmp_path, "--keytab", str(keytab), name="MQ1")
    assert joined.code == 0 and "this machine is a member" in joined.stdout, joined
    assert keytab.read_bytes() == before
    services = directory.search("alice", "(sAMAccountName=MQ1$)", "servicePrincipalName")
    assert "servicePrincipalName: MSMQ/mq1.rig.test" in services
    status = run(directory, tmp_path, "status", name="MQ1", OPENMSMQ_KERBEROS_KEYTAB=str(keytab))
    assert status.code == 0, status
    left = run(directory, tmp_path, "leave", "--user", f"{ADMINISTRATOR}@{REALM}", "--yes", name="MQ1")
    assert left.code == 0 and "delete the account" not in left.stdout, left
    assert "CN=MQ1," in computer(directory, "MQ1") and keytab.exists()


def test_an_account_that_others_may_use_gets_a_new_password_only_on_request(
    directory: DomainController, tmp_path: Path
) -> None:
    refused = join(directory, tmp_path, name="OTHER")
    assert refused.code == 1 and "--reset-password" in refused.stderr, refused
    place, sid = "CN=OTHER,CN=Computers,DC=rig,DC=test", directory.sid("OTHER$")
    directory.tool("dsacl", "set", f"--objectdn={place}", f"--sddl=(D;;CC;;;{sid})")  # it may create no child objects
    joined = join(directory, tmp_path, "--reset-password", name="OTHER")
    assert joined.code == 0, joined
    assert f"CN=msmq,{place}" in computer(directory, "OTHER")
    keytab = tmp_path / "machine.keytab"
    assert run(directory, tmp_path, "status", name="OTHER", OPENMSMQ_KERBEROS_KEYTAB=str(keytab)).code == 0
    (record,) = [json.loads(path.read_bytes()) for path in tmp_path.glob("domain.json")]
    assert record["account"] == ""  # it existed before: `leave` keeps it


def test_a_user_who_cannot_join_gets_the_reason(directory: DomainController, tmp_path: Path) -> None:
    wrong = run(directory, tmp_path, "join", "--user", f"{ADMINISTRATOR}@{REALM}", OPENMSMQ_PASSWORD="wrong")
    assert wrong.code == 1 and "is the password right?" in wrong.stderr, wrong
    denied = join(directory, tmp_path, "--reset-password", user="bob", name="OTHER")
    assert denied.code == 1 and "OTHER" in denied.stderr, denied
    away = run(directory, tmp_path, "join", OPENMSMQ_DIRECTORY_CONTROLLERS="127.0.0.1:9")
    assert away.code == 1 and "127.0.0.1:9" in away.stderr, away
    assert run(directory, tmp_path, "join", OPENMSMQ_DIRECTORY_CONTROLLERS="").code == 2


def test_messages_waiting_for_other_machines_block_the_move(directory: DomainController, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Daemon(data, "--computer-name", "WAITER") as before, before.connect() as manager:
        with manager.open(r"DIRECT=OS:elsewhere\private$\q", "send") as queue:
            queue.send(b"waits", recoverable=True)
    refused = join(directory, data, name="WAITER")
    assert refused.code == 1 and "1 for DIRECT=OS:elsewhere" in refused.stderr, refused
    assert os.listdir(data)


def test_only_one_of_two_concurrent_joins_succeeds(directory: DomainController, tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    running = []
    for place in places:
        environment = {
            **os.environ, "OPENMSMQ_DATA_DIR": str(place), "OPENMSMQ_COMPUTER_NAME": "TWIN",
            "OPENMSMQ_DIRECTORY_CONTROLLERS": directory.address, "OPENMSMQ_PASSWORD": PASSWORD,
        }  # fmt: skip
        command = [sys.executable, "-m", "openmsmq.cli", "domain", "join", "--user", f"{ADMINISTRATOR}@{REALM}"]
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    ended = [(process.communicate(timeout=60), process.returncode) for process in running]
    assert sorted(code for _, code in ended) == [0, 1], ended
    winner = places[[code for _, code in ended].index(0)]
    keytab = str(winner / "machine.keytab")
    assert run(directory, winner, "status", name="TWIN", OPENMSMQ_KERBEROS_KEYTAB=keytab).code == 0


def test_a_join_at_a_silent_controller_times_out_and_leaves_nothing_behind(
    directory: DomainController, tmp_path: Path
) -> None:
    with directory.silent():
        started = time.monotonic()
        ended = join(directory, tmp_path, name="LATE")
        assert ended.code == 1, ended
        assert time.monotonic() - started < 60
    assert "CN=LATE" not in computer(directory, "LATE") and not list(tmp_path.iterdir())
