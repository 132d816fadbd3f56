"""RPC logins in the audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import openmsmq
from daemon import Daemon
from openmsmq.accounts.users import UsersFile
from openmsmq.admin.audit import AuditLog

TRIES = 60  # failing logins, fewer than a host is allowed


@pytest.fixture
def running(tmp_path: Path) -> Any:
    with Daemon(tmp_path / "data") as daemon:
        UsersFile(daemon.directory / "users.json").add("alice", "secret")
        yield daemon


def log_in(daemon: Daemon, user: str, password: str) -> bool:
    try:
        with daemon.connect(user=user, password=password):
            return True
    except openmsmq.MsmqError:
        return False


def logins(daemon: Daemon) -> list[tuple[str, str | None, str, str]]:
    """Return name, SID, entry point with peer, and result of each recorded login."""
    return [
        (record["actor"]["name"], record["actor"]["sid"], f"{record['from']['door']} {record['from']['peer']}",
         record["result"])
        for record in [*AuditLog(daemon.directory).read()][::-1] if record["action"] == "login"
    ]  # fmt: skip


def test_successful_and_failed_logins_are_recorded(running: Daemon) -> None:
    sid = UsersFile(running.directory / "users.json").list()[0].sid
    assert log_in(running, "alice", "secret") and log_in(running, "alice", "secret")
    assert not log_in(running, "ALICE", "wrong")
    assert not log_in(running, "typed-into-the-wrong-field", "x")
    with running.connect():  # anonymous, no login
        pass
    assert logins(running) == [
        ("alice", sid, "rpc 127.0.0.1", "ok"),  # recorded once a minute
        ("ALICE", None, "rpc 127.0.0.1", "denied"),
        ("an unknown user", None, "rpc 127.0.0.1", "denied"),
    ]


def test_password_guessing_does_not_fill_the_audit_log(running: Daemon) -> None:
    for number in range(TRIES):
        assert not log_in(running, f"guess{number}", "x")
    assert log_in(running, "alice", "secret")
    names = [name for name, *_ in logins(running)]
    assert names == ["an unknown user"] * 20 + ["alice"]
