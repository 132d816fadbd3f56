"""The address of the daemon, and queues with messages."""

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
