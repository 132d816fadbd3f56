"""Audit records of operations on a daemon."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import add_user, at, invoke
from daemon import Daemon


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data") as running:
        for name, options in (("alice", []), ("chief", ["--admin"])):
            add_user(running.directory, name, "Secret#1", *options)
        yield running
    assert "Traceback" not in running.log


def run(daemon: Daemon, *arguments: str, code: int = 0, user: str | None = None) -> str:
    environment = {**at(daemon), "OPENMSMQ_DATA_DIR": str(daemon.directory), "OPENMSMQ_PASSWORD": "Secret#1"}
    ended = invoke(*arguments, *(("--user", user) if user else ()), **environment)
    assert ended.code == code, (arguments, *ended)
    return ended.stdout if not code else ended.stderr


def records(daemon: Daemon, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(daemon, "audit", "--json", "-n", "0", *options).splitlines()]


def test_changes_are_recorded_with_who_from_where_what_and_how_many(service: Daemon) -> None:
    run(service, "queue", "create", "orders", user="alice")
    run(service, "queue", "set", "orders", "label=new", "quota=77", user="alice")
    for _ in range(3):
        run(service, "send", "orders", "x", "--ttl", "500", "--deadletter")
    run(service, "queue", "purge", "orders", "--yes", user="chief")
    run(service, "queue", "revoke", "orders", "everyone", "DeleteQueue", user="alice")
    run(service, "queue", "delete", "orders", "--yes", code=5, user="chief")
    run(service, "queue", "grant", "orders", "chief", "DeleteQueue", user="alice")
    run(service, "send", "orders", "y")
    run(service, "queue", "delete", "orders", "--yes", user="chief")
    run(service, "machine", "disconnect", code=5)
    run(service, "machine", "disconnect", user="chief")
    run(service, "machine", "grant", "alice", "PeekDeadLetter")

    found = [(r["action"], r["actor"]["name"], r["count"], r["result"]) for r in records(service)]
    assert [entry for entry in found if not entry[0].startswith(("daemon.", "user.", "login"))] == [
        ("queue.create", "alice", None, "ok"),
        ("queue.properties", "alice", None, "ok"),
        ("messages.purge", "chief", 3, "ok"),
        ("queue.permissions", "alice", None, "ok"),
        ("queue.delete", "chief", None, "denied"),
        ("queue.permissions", "alice", None, "ok"),
        ("queue.delete", "chief", 1, "ok"),
        ("machine.act", "anonymous", None, "denied"),
        ("machine.act", "chief", None, "ok"),
        ("machine.permissions", records(service)[-1]["actor"]["name"], None, "ok"),
    ]
    assert [entry[0] for entry in found][:3] == ["daemon.start", "user.add", "user.add"]
    assert {("login", "alice", None, "ok"), ("login", "chief", None, "ok")} <= set(found)
    (changed,) = records(service, "--action", "queue.properties")
    assert changed["before"] == {"label": "", "quota": 4294967295} and changed["after"] == {"label": "new", "quota": 77}
    assert changed["from"] == {"door": "rpc", "peer": "127.0.0.1"} and changed["actor"]["sid"].startswith("S-1-5-21-")
    rights = records(service, "--action", "queue.permissions")[0]
    assert "WD)" in rights["after"]["security"] and rights["after"] != rights["before"]
    assert records(service, "--action", "machine.act")[-1]["after"] == {"act": "DISCONNECT the machine"}
    shown = run(service, "audit", "--by", "chief", "--object", "*orders")
    assert "messages.purge" in shown and "machine.act" not in shown
    assert len(records(service, "--denied")) == 2


def test_receives_of_administrators_are_recorded_and_ordinary_ones_are_not(service: Daemon) -> None:
    run(service, "queue", "create", "orders", "--journal")
    for _ in range(3):
        run(service, "send", "orders", "x")
    run(service, "receive", "orders", "-n", "0")
    run(service, "receive", "orders;journal", "-n", "2")
    found = [
        (r["action"], r["object"]["name"].rpartition("\\")[2], r["count"])
        for r in records(service, "--action", "messages.*")
    ]
    assert ("messages.open", "orders;journal", None) in found
    assert ("messages.receive", "orders;journal", 2) in found
    assert all(name.endswith("journal") for _, name, _ in found)


def test_an_unwritable_log_stops_changes_only_if_configured(tmp_path: Path) -> None:
    for required in (False, True):
        data = tmp_path / str(required)
        with Daemon(data, *(["--audit-required"] if required else [])) as daemon:
            os.rename(data / "audit.jsonl", data / "audit.away")
            (data / "audit.jsonl").mkdir()
            said = run(daemon, "queue", "create", "orders", code=1 if required else 0)
            assert ("MQ_ERROR_INSUFFICIENT_RESOURCES" in said) is required
            run(daemon, "queue", "show", "orders", code=3 if required else 0)
            assert "cannot write the audit log" in daemon.log
            (data / "audit.jsonl").rmdir()


def test_no_audit_log_is_written_if_disabled(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", "--no-audit") as daemon:
        run(daemon, "queue", "create", "orders")
        assert not (daemon.directory / "audit.jsonl").exists()
