"""One daemon for each test module, which must not have logged an unhandled exception when the module is done."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon import Daemon
from interop.impacket_client import PASSWORD, USER


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon") / "data") as running:
        add_user(running.directory, USER, PASSWORD)
        yield running
        assert running.alive
    assert "Traceback" not in running.log, running.log


def add_user(directory: Path, name: str, password: str, *options: str) -> str:
    """`openmsmq user add`; returns the SID it prints."""
    command = [sys.executable, "-m", "openmsmq.cli", "user", "--data-dir", str(directory), "add", name]
    done = subprocess.run(
        [*command, "--password-stdin", *options], input=password + "\n", capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
