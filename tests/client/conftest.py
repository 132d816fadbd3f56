"""A daemon and a connection per module, and a queue per test."""

from __future__ import annotations

import re

import pytest

from daemon import Daemon


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("remote") / "data") as running:
        yield running
    assert "Traceback" not in running.log


@pytest.fixture
def qm(service):
    with service.connect() as manager:
        yield manager


@pytest.fixture
def queue(qm, request):
    name = r".\private$\r-" + re.sub(r"\W", "_", request.node.name, flags=re.ASCII)[:100]
    qm.create_queue(name)
    yield name
    qm.delete_queue(name)
