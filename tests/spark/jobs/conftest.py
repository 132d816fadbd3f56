"""Where the daemon of these tests is, and queues with messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from daemon import Daemon
from openmsmq.spark.jobs import Server
from spark.jobs.sending import send

_numbers = itertools.count(1)


@pytest.fixture
def server(service: Daemon) -> Server:
    """By Arrow Flight."""
    return Server(port=service.port, flight_port=service.ready["endpoints"]["flight"]["port"])


@pytest.fixture
def filled(qm: Any) -> Callable[..., str]:
    """Makes a queue with so many messages and tells its path name."""

    def make(count: int, **properties: Any) -> str:
        name = f".\\private$\\job {next(_numbers)}"
        qm.create_queue(name, **properties)
        send(qm, name, range(count))
        return name

    return make
