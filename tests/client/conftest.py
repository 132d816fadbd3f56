"""A daemon and a connection per module, and a queue per test."""

from __future__ import annotations

import re

import pytest

from daemon import Daemon
from openmsmq.accounts.users import UsersFile


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("client") / "data") as running:
        UsersFile(running.directory / "users.json").add("tester", "Passw0rd!")
        yield running
    assert "Traceback" not in running.log


@pytest.fixture
def qm(service):
    with service.connect() as manager:
        yield manager


@pytest.fixture
def path(request):
    """Path name for a queue of the test."""
    return r".\private$\r-" + re.sub(r"\W", "_", request.node.name, flags=re.ASCII)[:100]


@pytest.fixture
def queue(qm, path):
    qm.create_queue(path)
    yield path
    qm.delete_queue(path)
