"""Where generated modules land."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import openmsmq
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


def test_where_nothing_can_be_written_modules_are_made_in_memory_and_nothing_is_left(tmp_path):
    package = tmp_path / "site" / "openmsmq"
    shutil.copytree(
        Path(openmsmq.__file__).parent, package, ignore=shutil.ignore_patterns("_compiled", "__pycache__", "ms_*.py")
    )
    (package / "interfaces" / "_stamp.txt").unlink(missing_ok=True)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    program = (
        "import tempfile, openmsmq.ndr.build as b, openmsmq\n"
        "def refuse(*_): raise PermissionError(13, 'read-only')\n"
        "b._write_all = refuse\n"
        "from openmsmq.interfaces import ms_mqmp\n"
        "print(ms_mqmp.qmcomm.operation('rpc_ACPurgeQueue').opnum)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "TMPDIR": str(temporary), "OPENMSMQ_PURE": "1"}
    result = subprocess.run(
        [sys.executable, "-B", "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "27"
    assert not list(temporary.iterdir())
    assert not list((package / "interfaces").glob("ms_*"))


def test_a_wheel_has_the_generated_modules(tmp_path):
    root = Path(openmsmq.__file__).parent.parent.parent
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(root)], check=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    packed = zipfile.ZipFile(wheel).namelist()
    for name in ("ms_mqmp.py", "ms_mqrr.py", "_stamp.txt"):
        assert f"openmsmq/interfaces/{name}" in packed
