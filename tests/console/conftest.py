"""A daemon with HTTP for a module, and users with names and passwords."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.browser import ADMINISTRATOR, PASSWORD, USER, Client, FreshDaemon
from daemon import Daemon
from openmsmq.accounts.users import UsersFile
from requirements import library, missing

_numbers = itertools.count(1)
# Only administrators may read the system queues, as by default.
OPTIONS = ("--web", "--web-port", "0", "--system-queue-readers", "S-1-5-18")


def users(directory: Path) -> UsersFile:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = UsersFile(directory / "users.json")
    found.add(ADMINISTRATOR, PASSWORD, administrator=True)
    found.add(USER, PASSWORD)
    return found


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("web") / "data"
    users(directory)
    with Daemon(directory, *OPTIONS) as daemon:
        yield daemon


@pytest.fixture
def client(daemon: Daemon) -> Client:
    """An administrator with name and password."""
    return Client(daemon)


@pytest.fixture
def bob(daemon: Daemon) -> Client:
    """A user who is not an administrator."""
    return Client(daemon, USER)


@pytest.fixture
def queue(client: Client) -> str:
    """The identifier of a new queue."""
    return str(client.post("/queues", name=f"q{next(_numbers)}")["id"])


@pytest.fixture
def own(tmp_path: Path) -> Iterator[FreshDaemon]:
    """A daemon that the test may stop or break."""
    directory = tmp_path / "data"
    accounts = users(directory)
    with Daemon(directory, *OPTIONS) as daemon:
        yield FreshDaemon(daemon, accounts)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    program = shutil.which("chromium") or missing("Chromium is not installed: make browser")
    with library("playwright.sync_api", "make browser").sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip test_schema.py unless slow tests run: generating its tests takes seconds in every worker."""
    return True if collection_path.name == "test_schema.py" and config.option.markexpr == "not slow" else None
