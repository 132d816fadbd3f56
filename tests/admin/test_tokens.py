"""The token file: its content, who may change it, and what it does not reveal."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from openmsmq.admin.tokens import (
    LONGEST_DAYS,
    MOST_OF_USER,
    PREFIX,
    TOKENS_FILE,
    ApiToken,
    TokensFile,
    TokensFileError,
    TokenUses,
    read_uses,
    write_uses,
)
from openmsmq.model.roles import Role

SID = "S-1-5-21-1-2-3-1000"
DAY = 86400


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_token_is_valid_until_it_is_revoked_or_expires(tmp_path: Path) -> None:
    clock = Clock()
    file, other = TokensFile(tmp_path, clock=clock), TokensFile(tmp_path, clock=clock)
    secret, token = file.create("backup", "alice", SID, Role.OPERATOR, 2)
    assert secret.startswith(PREFIX) and other.find(secret) == token == other.get(token.id)
    assert other.find(secret + "x") is None and other.find("") is None and other.find("\ud800") is None
    clock.now += 2 * DAY - 1
    assert other.find(secret) == token
    clock.now += 1
    assert other.find(secret) is None and other.get(token.id) is None and other.list() == [token]
    second, _ = file.create("again", "alice", SID, Role.MONITOR)
    found = other.find(second)
    assert found is not None
    file.revoke(found.id)
    assert other.find(second) is None


def test_the_file_is_private_and_holds_no_secret(tmp_path: Path) -> None:
    secret, token = TokensFile(tmp_path).create("backup", "alice", SID, Role.MONITOR)
    path = tmp_path / TOKENS_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert secret not in path.read_text() and secret.removeprefix(PREFIX) not in path.read_text()
    assert token.hash not in repr(token)
    path.chmod(0o640)
    with pytest.raises(TokensFileError, match="0600"):
        TokensFile(tmp_path).find(secret)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"tokens": [{}]}', '{"tokens": 5}', "\0"])
def test_a_damaged_file_is_an_error_and_no_login(tmp_path: Path, content: str) -> None:
    path = tmp_path / TOKENS_FILE
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(TokensFileError, match="can't be read"):
        TokensFile(tmp_path).find("x")


def test_names_days_and_numbers_have_limits(tmp_path: Path) -> None:
    file = TokensFile(tmp_path)
    for name, days in (("", 1), ("x" * 101, 1), ("a\nb", 1), ("a", 0), ("a", LONGEST_DAYS + 1)):
        with pytest.raises(TokensFileError):
            file.create(name, "alice", SID, Role.MONITOR, days)
    file.create("a", "alice", SID, Role.MONITOR)
    with pytest.raises(TokensFileError, match="already has a token named a"):
        file.create("a", "alice", SID, Role.MONITOR)
    for number in range(1, MOST_OF_USER):
        file.create(f"n{number}", "alice", SID, Role.MONITOR)
    with pytest.raises(TokensFileError, match="limit"):
        file.create("more", "alice", SID, Role.MONITOR)
    file.create("a", "bob", f"{SID}1", Role.MONITOR)


def test_a_failing_audit_log_prevents_changes(tmp_path: Path) -> None:
    def refuse(action: str, token: ApiToken) -> None:
        raise KeyError(action)

    _, token = TokensFile(tmp_path).create("a", "alice", SID, Role.MONITOR)
    file = TokensFile(tmp_path, on_change=refuse)
    with pytest.raises(KeyError):
        file.create("b", "alice", SID, Role.MONITOR)
    with pytest.raises(KeyError):
        file.revoke(token.id)
    assert TokensFile(tmp_path).list() == [token]


def test_a_process_that_keeps_the_lock_blocks_nobody_for_long(tmp_path: Path) -> None:
    file = TokensFile(tmp_path)
    file.create("a", "alice", SID, Role.MONITOR)
    handle = os.open(tmp_path / "tokens.lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(TokensFileError, match="lock"):
        file.create("b", "alice", SID, Role.MONITOR)
    os.close(handle)
    file.create("b", "alice", SID, Role.MONITOR)


def test_uses_are_recorded_for_existing_tokens(tmp_path: Path) -> None:
    uses = TokenUses(tmp_path)
    assert uses.to_write(["a"]) is None
    uses.note("a", 5.5)
    uses.note("gone", 6)
    assert uses.to_write(["a", "never"]) == {"a": 5} and uses.to_write(["a"]) is None
    write_uses(tmp_path, {"a": 5})
    assert read_uses(tmp_path) == {"a": 5} and TokenUses(tmp_path).of("a") == 5
    (tmp_path / "token-uses.json").write_text("[5]")
    assert read_uses(tmp_path) == {}
