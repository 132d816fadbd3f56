"""Private files: no other user can read them, writes are atomic, and changes are noticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openmsmq.files.private import CachedFile, PrivateFileError, write_private
from openmsmq.protection.directories import DirectoryUnavailable
from openmsmq.protection.keyring import KeyringError


def numbers(path: Path) -> CachedFile[int]:
    return CachedFile(path, int, 0, kind="numbers")


def test_a_file_that_is_there_already_is_not_replaced_by_a_second_process(tmp_path: Path) -> None:
    write_private(tmp_path / "key", b"first", replace=False)
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "key", b"second", replace=False)
    assert (tmp_path / "key").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["key"]


def test_changes_and_deletion_of_a_file_are_noticed(tmp_path: Path) -> None:
    file = numbers(tmp_path / "n")
    assert file.read() == 0
    write_private(tmp_path / "n", b"1")
    assert file.read() == 1
    write_private(tmp_path / "n", b"2")
    assert file.read() == 2
    (tmp_path / "n").unlink()
    assert file.read() == 0


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"x", 0o600, "n is not a valid file of numbers"),
        (b"1", 0o640, "n can be accessed by other users; set its mode to 0600"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_to_do(
    tmp_path: Path, content: bytes, mode: int, said: str
) -> None:
    write_private(tmp_path / "n", content)
    (tmp_path / "n").chmod(mode)
    with pytest.raises(PrivateFileError, match=said):
        numbers(tmp_path / "n").read()


def test_an_invalid_key_file_is_not_reported_as_a_directory_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PrivateFileError) as caught:
        write_private(tmp_path / "file" / "below" / "settings.json", b"{}")
    assert not isinstance(caught.value, DirectoryUnavailable)
    with pytest.raises(KeyringError):
        write_private(tmp_path / "file" / "below" / "key.pem", b"", error=KeyringError)
    assert issubclass(KeyringError, DirectoryUnavailable)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")
def test_what_root_writes_for_another_user_belongs_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    os.chown(tmp_path, 1234, 1234)
    write_private(tmp_path / "n", b"1")
    assert (tmp_path / "n").stat().st_uid == 1234
