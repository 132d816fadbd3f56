"""Files of the queue manager that backups do not contain."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmsmq.admin.backup import files_outside


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    return made


def test_existing_files_outside_of_the_data_directory_are_named(data_dir: Path, tmp_path: Path) -> None:
    files = users, directory = tmp_path / "users.json", tmp_path / "data-of-all.sqlite"
    assert files_outside(data_dir, files) == []
    users.touch()
    assert files_outside(data_dir, files) == [str(users)]
    directory.touch()
    assert files_outside(data_dir, files) == [str(users), str(directory)]


def test_files_in_the_data_directory_are_in_backups_also_by_a_link(data_dir: Path, tmp_path: Path) -> None:
    inside, users, link = data_dir / "shared.json", data_dir / "users.json", tmp_path / "link"
    inside.touch()
    users.touch()
    link.symlink_to(inside)
    assert files_outside(data_dir, [users]) == [] == files_outside(data_dir, [link])


def test_links_in_the_data_directory_that_lead_elsewhere_are_named(data_dir: Path, tmp_path: Path) -> None:
    """Except those of the store, which is copied, and of files that are in no backup."""
    for name in ("keys", "store", "audit.jsonl", "users.json"):
        (tmp_path / name).mkdir()
        (data_dir / name).symlink_to(tmp_path / name)
    (data_dir / "lost").symlink_to(tmp_path / "nothing")
    assert files_outside(data_dir, [data_dir / "users.json"]) == [str(data_dir / "users.json"), str(data_dir / "keys")]
