"""One daemon for each test module, which must not have logged an unhandled exception when the module is done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from command_line import add_user
from daemon import Daemon
from interop.impacket_client import PASSWORD, USER


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon") / "data") as running:
        add_user(running.directory, USER, PASSWORD)
        yield running
        assert running.alive
    assert "Traceback" not in running.log, running.log
