"""`tools/ensure` on a machine where another process keeps apt locked, such as the automatic update of a new machine."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from requirements import program

ENSURE = Path(__file__).parents[1] / "tools" / "ensure"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which root's apt uses a test directory, knows no packages, and has no promtool."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("apt-get", "dpkg", "head", "sed", "sh", "sleep"):
        (programs / name).symlink_to(program(name, "only Debian and its kin have it"))
    (programs / "id").write_text("#!/bin/sh\necho 0\n")
    (programs / "id").chmod(0o755)
    for needed in (
        "etc/apt/apt.conf.d",
        "etc/apt/preferences.d",
        "var/lib/apt/lists/partial",
        "var/cache/apt/archives",
    ):
        (tmp_path / needed).mkdir(parents=True)
    configuration = tmp_path / "apt.conf"
    configuration.write_text(
        f'Dir "{tmp_path}";\nDir::State::status "{tmp_path}/status";\nAPT::Sandbox::User "root";\n'
    )
    (tmp_path / "status").touch()
    return {"PATH": str(programs), "APT_CONFIG": str(configuration)}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file as apt does."""
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def test_ensure_names_the_lock_and_continues_when_it_is_free(environment: dict[str, str], tmp_path: Path) -> None:
    lock = tmp_path / "var/lib/apt/lists/lock"
    with locked(lock):
        command = subprocess.Popen(
            [ENSURE, "prometheus"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert command.stdout is not None
        assert command.stdout.readline() == "setup: installing prometheus\n"
        waiting = f"setup: waiting up to 900 s for the lock {lock}. It is held by process {os.getpid()}"
        assert command.stdout.readline().startswith(waiting)
        assert command.poll() is None
    said, complained = command.communicate(timeout=60)
    assert said == ""
    assert "Unable to locate package prometheus" in complained, "it got beyond the lock"


def test_a_lock_that_stays_is_an_error_with_its_name(environment: dict[str, str], tmp_path: Path) -> None:
    lock = tmp_path / "var/lib/apt/lists/lock"
    with locked(lock):
        done = subprocess.run(
            [ENSURE, "prometheus"],
            env=environment | {"APT_LOCK_SECONDS": "1", "CI": "1"},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 1
    assert f"Could not get lock {lock}" in done.stderr
    assert done.stderr.endswith("the tests of metrics and alert rules need its promtool: install prometheus\n")
