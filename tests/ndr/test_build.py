"""Where generated modules land."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmsmq.ndr.build import interfaces_directory


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_they_land_in_the_package_for_everybody_to_read(tmp_path: Path, cache: Path) -> None:
    package = tmp_path / "package"
    assert interfaces_directory(package) == package
    made = list(package.iterdir())
    assert package / "ms_mqmp.py" in made
    assert {path.stat().st_mode & 0o777 for path in made} == {0o644}
    times = {path: path.stat().st_mtime_ns for path in made}
    assert interfaces_directory(package) == package
    assert {path: path.stat().st_mtime_ns for path in made} == times


def test_a_package_that_this_user_can_neither_read_nor_write_is_passed_over(tmp_path: Path, cache: Path) -> None:
    package = tmp_path / "package"
    package.write_text("no directory: what the system says to a user without rights, and to root as well")
    assert interfaces_directory(package).parent == cache / "openmsmq"
