"""A command on the wrong directory reports that, instead of an empty result."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from command_line import at, invoke
from daemon import Daemon

READERS = (
    ("alarms",), ("alarms", "--history"), ("audit",), ("user", "list"), ("user", "group", "list"), ("token", "list"),
    ("settings",), ("machine", "permissions"), ("backup", "copy"), ("certificates", "list"), ("keys", "list"),
    ("certificates", "export", "S-1-1-0", "0a" * 16), ("directory", "queues"),
)  # fmt: skip
WRITERS = (
    ("user", "remove", "alice"), ("user", "admin", "alice"), ("user", "group", "join", "g", "alice"),
    ("token", "revoke", "x"), ("token", "create", "x", "--user", "alice"),
    ("machine", "grant", "everyone", "CreateQueue"), ("keys", "remove", "00000000-0000-0000-0000-000000000001"),
    ("certificates", "remove", "S-1-1-0", "0a" * 16),
)  # fmt: skip


@pytest.mark.parametrize("command", [*READERS, *WRITERS], ids=" ".join)
@pytest.mark.parametrize("kind", ["missing", "other", "file"])
def test_a_directory_that_is_not_a_data_directory_is_named(tmp_path: Path, kind: str, command: tuple[str, ...]) -> None:
    where = tmp_path / "wrong"
    if kind == "other":
        where.mkdir()
        (where / "notes.txt").write_text("")
    elif kind == "file":
        where.write_text("")
    group, *rest = command
    given = (group, "--data-dir", str(where), *rest) if group in ("certificates", "keys", "directory") else (
        *command, "--data-dir", str(where)
    )  # fmt: skip
    ended = invoke(*given, directory=tmp_path)
    assert ended.code not in (0, None) and str(where) in ended.stderr and "--data-dir" in ended.stderr, ended
    assert ended.stdout == "" and "Traceback" not in ended.stderr
    left = sorted(os.listdir(tmp_path))
    assert left == ([] if kind == "missing" else ["wrong"]), "nothing was made of it"
    assert kind != "other" or os.listdir(where) == ["notes.txt"]


def test_a_user_is_not_added_where_the_running_daemon_does_not_look(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        password = ("--password-stdin",)
        ended = invoke("user", "add", "alice", *password, stdin="x\n", **at(daemon))
        assert ended.code == 2 and "reads other files" in ended.stderr and "OPENMSMQ_DATA_DIR" in ended.stderr
        elsewhere = tmp_path / "other"
        ended = invoke("user", "add", "alice", *password, "--data-dir", str(elsewhere), stdin="x\n", **at(daemon))
        assert ended.code == 0 and "will not know what is added" in ended.stderr
        ended = invoke("user", "add", "bob", *password, "--data-dir", str(tmp_path / "data"), stdin="x\n", **at(daemon))
        assert ended.code == 0 and ended.stderr == ""
    assert invoke("user", "add", "carol", *password, "--data-dir", str(tmp_path / "new"), stdin="x\n").code == 0
    assert "carol" in invoke("user", "list", "--data-dir", str(tmp_path / "new")).stdout
