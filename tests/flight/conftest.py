"""A daemon with Arrow Flight per module, and an empty queue with a new name per test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon import Daemon
from flight.plane import Plane

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory: Path = tmp_path_factory.mktemp("bulk") / "data"
    with Daemon(directory, "--flight", "--flight-port", "0") as daemon:
        yield daemon


@pytest.fixture
def plane(daemon: Daemon) -> Iterator[Plane]:
    """A new queue with its clients."""
    with Plane(daemon, f"q{next(_numbers)}") as plane:
        yield plane


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Plane]:
    """Like `plane`, with a daemon that the test may kill."""
    daemon = Daemon(tmp_path / "data", "--flight", "--flight-port", "0", "--anonymous-is-administrator")
    with daemon, Plane(daemon, "q") as plane:
        yield plane
