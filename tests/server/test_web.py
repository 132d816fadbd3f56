"""Files that backups over HTTP do not contain."""

from __future__ import annotations

from pathlib import Path

from openmsmq.server.config import Configuration
from openmsmq.server.web import files_outside


def test_existing_files_outside_of_the_data_directory_are_named(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    users, directory = tmp_path / "users.json", tmp_path / "data-of-all.sqlite"
    configuration = Configuration(data_dir=data_dir, users_file=users, directory_path=directory)
    assert files_outside(configuration) == []
    users.touch()
    assert files_outside(configuration) == [str(users)]
    directory.touch()
    assert files_outside(configuration) == [str(users), str(directory)]


def test_files_in_the_data_directory_are_in_backups_also_by_a_link(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    inside, link = data_dir / "shared.json", tmp_path / "link"
    inside.touch()
    (data_dir / "users.json").touch()
    (data_dir / "directory.sqlite").touch()
    link.symlink_to(inside)
    assert files_outside(Configuration(data_dir=data_dir)) == []
    assert files_outside(Configuration(data_dir=data_dir, users_file=link)) == []
    (data_dir / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").touch()
    assert files_outside(Configuration(data_dir=data_dir, users_file=data_dir / "out")) == [str(data_dir / "out")]
