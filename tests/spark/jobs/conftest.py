"""The address of the daemon, and queues with messages."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daemon import Daemon
from openmsmq.spark.jobs import Server, archive
from openmsmq.spark.jobs.archived import data_files
from openmsmq.spark.jobs.files import ArchiveFiles
from spark.jobs.sending import send

_numbers = itertools.count(1)


@pytest.fixture
def server(service: Daemon) -> Server:
    """The daemon, reached through Arrow Flight."""
    return Server(port=service.port, flight_port=service.ready["endpoints"]["flight"]["port"])


@pytest.fixture
def filled(qm: Any) -> Callable[..., str]:
    """A function that creates a queue with a given number of messages and returns its path name."""

    def make(count: int, **properties: Any) -> str:
        name = f".\\private$\\job {next(_numbers)}"
        qm.create_queue(name, **properties)
        send(qm, name, range(count))
        return name

    return make


@pytest.fixture(scope="session")
def built(spark: Any, service: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("archive") / "archive"
    with service.connect() as manager:
        manager.create_queue(".\\private$\\fragments")
        send(manager, ".\\private$\\fragments", range(40))
    archive(spark, Server(port=service.port, protocol="remoteread"), ["fragments"], str(directory), batch_rows=10)
    return directory


@pytest.fixture
def fragmented(spark: Any, built: Path, tmp_path: Path) -> Path:
    """An archive of 40 messages in 4 files."""
    shutil.copytree(built, tmp_path / "archive")
    assert len(data_files(ArchiveFiles(spark, str(tmp_path / "archive")))) == 4
    return tmp_path / "archive"
