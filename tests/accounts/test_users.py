"""The user file."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from msrpc.rpc.ntlm import nt_hash
from openmsmq.accounts import users as users_module
from openmsmq.accounts.users import UsersFile, UsersFileError
from openmsmq.files.locks import locked


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.json"


def test_users_are_found_without_regard_to_case_and_domain(path: Path) -> None:
    user = UsersFile(path).add("Anna", "secret")
    assert UsersFile(path).lookup("ANY", "anna") == (nt_hash("secret"), user.sid)
    assert UsersFile(path).lookup("ANY", "bert") is None


def test_sids_belong_to_one_machine_and_are_never_reused(path: Path) -> None:
    users = UsersFile(path)
    first = users.add("anna", "x").sid
    users.remove("anna")
    second = UsersFile(path).add("anna", "x").sid
    assert first.rpartition("-")[0] == second.rpartition("-")[0] == users.machine_sid
    assert (first.rpartition("-")[2], second.rpartition("-")[2]) == ("1000", "1001")


def test_the_file_is_for_its_owner_only(path: Path) -> None:
    UsersFile(path).add("anna", "x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(UsersFileError, match="0600"):
        UsersFile(path).list()
    assert UsersFile(path).lookup("", "anna") is None


def test_a_change_by_another_process_is_seen(path: Path) -> None:
    daemon, tool = UsersFile(path), UsersFile(path)
    assert daemon.lookup("", "anna") is None
    sid = tool.add("anna", "one").sid
    assert daemon.lookup("", "anna") == (nt_hash("one"), sid)
    tool.set_password("ANNA", "two")
    assert daemon.lookup("", "anna") == (nt_hash("two"), sid)
    tool.remove("anna")
    assert daemon.lookup("", "anna") is None


def test_impossible_changes_are_refused(path: Path) -> None:
    users = UsersFile(path)
    users.add("anna", "x")
    for name in ("", "a/b", "a\\b", "a\nb", "x" * 257, "ANNA"):
        with pytest.raises(UsersFileError):
            users.add(name, "x")
    with pytest.raises(UsersFileError):
        users.remove("bert")
    with pytest.raises(UsersFileError):
        users.set_password("bert", "x")
    assert [user.name for user in users.list()] == ["anna"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"users": [{}]}', json.dumps({"users": 3})])
def test_a_damaged_file_is_an_error_and_knows_nobody(path: Path, text: str) -> None:
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(UsersFileError):
        UsersFile(path).list()
    assert UsersFile(path).lookup("", "anna") is None


def test_hashes_do_not_show_when_a_user_is_printed(path: Path) -> None:
    user = UsersFile(path).add("anna", "x")
    assert user.nt_hash.hex() not in repr(user)
    assert repr(user.nt_hash) not in repr(user)


def test_administrators_stay_what_they_are_until_told_otherwise(path: Path) -> None:
    users, reader = UsersFile(path), UsersFile(path)
    assert not reader.is_administrator("S-1-5-21-1")
    anna, bert = users.add("anna", "x", administrator=True), users.add("bert", "y")
    assert (reader.is_administrator(anna.sid), reader.is_administrator(bert.sid)) == (True, False)
    users.set_password("anna", "z")
    assert reader.is_administrator(anna.sid)
    users.set_administrator("ANNA", False)
    users.set_administrator("bert", True)
    assert (reader.is_administrator(anna.sid), reader.is_administrator(bert.sid)) == (False, True)
    with pytest.raises(UsersFileError, match="carl"):
        users.set_administrator("carl", True)


def test_a_file_of_a_version_without_administrators_has_none(path: Path) -> None:
    user = UsersFile(path).add("anna", "x", administrator=True)
    content = json.loads(path.read_text())
    del content["users"][0]["administrator"]
    path.write_text(json.dumps(content))
    assert not UsersFile(path).is_administrator(user.sid)
    assert UsersFile(path).lookup("", "anna") is not None


def test_an_empty_password_is_refused(tmp_path):
    users = UsersFile(tmp_path / "users.json")
    users.add("anna", "secret")
    with pytest.raises(UsersFileError, match="password of bert is empty"):
        users.add("bert", "", administrator=True)
    with pytest.raises(UsersFileError, match="password of anna is empty"):
        users.set_password("anna", "")
    assert [user.name for user in users.list()] == ["anna"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_writes_belongs_to_the_owner_of_the_data_directory(tmp_path):
    directory = tmp_path / "data"
    directory.mkdir()
    os.chown(directory, 4711, 4712)
    users = UsersFile(directory / "users.json")
    users.add("anna", "secret")
    users.add("bert", "secret")
    status = (directory / "users.json").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (4711, 4712, 0o600)


def test_a_file_that_cannot_be_read_is_named_with_what_to_do_and_logged_once(tmp_path, monkeypatch, caplog):
    path = tmp_path / "users.json"
    users = UsersFile(path)
    users.add("anna", "secret")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UsersFileError, match=r"users.json can't be read by uid \d+: Permission denied; .*chown"):
        users.check()
    assert users.lookup("", "anna") is None
    assert users.lookup("", "anna") is None
    assert sum("chown" in record.getMessage() for record in caplog.records) == 1


CHANGES = 40
# When its standard input ends, each process adds its own users and puts them into a common group.
CHANGING = f"""
import sys
from pathlib import Path
from openmsmq.accounts.users import UsersFile

users, prefix = UsersFile(Path(sys.argv[1])), sys.argv[2]
print("ready", flush=True)
sys.stdin.read()
for number in range({CHANGES}):
    users.add(f"{{prefix}}{{number}}", "secret")
    users.change_members("all", join=[f"{{prefix}}{{number}}"])
"""


def test_changes_by_processes_at_the_same_time_are_all_kept(path: Path) -> None:
    UsersFile(path).add_group("all")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CHANGING, str(path), prefix], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for prefix in ("a", "b")
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait(60) for process in processes] == [0, 0]
    users = UsersFile(path)
    assert {user.name for user in users.list()} == {f"{prefix}{n}" for prefix in "ab" for n in range(CHANGES)}
    assert len({user.sid for user in users.list()}) == 2 * CHANGES
    (group,) = users.groups()
    assert group.members == {user.sid for user in users.list()}


def test_a_change_that_has_to_wait_too_long_says_for_what(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = UsersFile(path)
    users.add("anna", "x")
    monkeypatch.setattr(users_module, "_LOCK_TIMEOUT", 0.05)
    with (
        locked(path.with_suffix(".lock")),
        pytest.raises(UsersFileError, match=r"users\.lock: another process has kept the lock for 0\.05 seconds"),
    ):
        users.set_password("anna", "y")
    assert users.lookup("", "anna") == (nt_hash("x"), users.list()[0].sid)


def test_a_refused_change_leaves_the_file_unchanged(path: Path) -> None:
    def refuse(action: str, name: str) -> None:
        raise PermissionError(f"{action} {name} is not recorded")

    UsersFile(path).add("anna", "x")
    users = UsersFile(path, on_change=refuse)
    with pytest.raises(UsersFileError, match=r"user\.add bert is not recorded"):
        users.add("bert", "y")
    assert [user.name for user in users.list()] == ["anna"]


@pytest.mark.parametrize("hashed", [b"", b"x" * 15, b"x" * 17, nt_hash("")])
def test_an_invalid_password_hash_creates_no_user(path: Path, hashed: bytes) -> None:
    users = UsersFile(path)
    with pytest.raises(UsersFileError, match="anna: not an NT hash"):
        users.restore("anna", hashed)
    assert users.list() == []


@pytest.mark.parametrize("name", ["everyone", "Everyone", "anonymous", "authenticated users", "ADMINISTRATORS"])
def test_a_name_that_rights_give_to_others_is_refused(tmp_path, name):
    users = UsersFile(tmp_path / "users.json")
    with pytest.raises(UsersFileError, match="exists on every machine"):
        users.add(name, "secret")
    with pytest.raises(UsersFileError, match="exists on every machine"):
        users.add_group(name)
    assert not users.list()
