"""Locked files that several processes write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openmsmq.files.locks import open_own


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")
def test_a_new_file_belongs_to_the_owner_of_its_directory_and_one_that_is_there_keeps_its_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, 1234, 1235)
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_bytes(b"x")
    for path in (new, old):
        os.close(open_own(path))
    assert (new.stat().st_uid, new.stat().st_gid) == (1234, 1235)
    assert (old.stat().st_uid, old.stat().st_gid) == (0, os.getegid())


def test_a_process_that_is_not_root_gives_no_file_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(os, "fchown", lambda handle, *_: given.append(handle))
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    os.close(open_own(tmp_path / "new"))
    assert given == []
