"""Console pages stay small with any number of objects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from console.browser import ADMINISTRATOR, PASSWORD, Browser, Client
from console.conftest import OPTIONS, users
from daemon import Daemon, eventually
from openmsmq.admin.alarms import MOST_OF_CONDITION

LARGEST = 250_000  # bytes
QUEUES, OUTGOING = 520, 150
PAGES = (
    "/", "/queues", "/queues?limit=500", "/outgoing", "/alarms", "/handles", "/clients", "/deadletters", "/jobs",
    "/audit", "/audit?limit=500", "/transactions", "/sequences", "/moves", "/users", "/tokens", "/settings",
    "/queues/QUEUE", "/queues/QUEUE?limit=500",
)  # fmt: skip


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, str]]:
    """A daemon with many queues that have long names, each with an alarm, and many messages, destinations and dead
    letters; and the identifier of the longest queue."""
    directory = tmp_path_factory.mktemp("crowded") / "data"
    users(directory)
    with Daemon(directory, *OPTIONS, "--alarm-oldest-seconds", "1") as daemon:
        client = Client(daemon)
        with daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager:
            for number in range(QUEUES):
                name = f".\\private$\\{number}-{'n' * 80}"
                manager.create_queue(name)
                with manager.open(name, "send") as opened:
                    opened.send("x" * 500, label="l" * 200)
            for number in range(OUTGOING):
                with manager.open(f"DIRECT=TCP:10.9.{number}.1\\private$\\{'f' * 80}", "send") as opened:
                    opened.send("x")
            with manager.open(f".\\private$\\0-{'n' * 80}", "send") as opened:
                for _ in range(600):
                    opened.send("y" * 2000, label="m" * 200)
            eventually(lambda: len(client.get("/alarms")["active"]) >= MOST_OF_CONDITION, 120)
            queue = client.get("/queues", sort="-messages")["queues"][0]["id"]
            yield daemon, queue


@pytest.mark.parametrize("path", PAGES)
def test_a_page_with_long_lists_is_small(crowded: tuple[Daemon, str], path: str) -> None:
    daemon, queue = crowded
    browser = Browser(daemon)
    browser.login()
    answer = browser.ask("GET", path.replace("QUEUE", queue))
    print(path, len(answer.body))
    assert answer.status == 200 and len(answer.body) <= LARGEST
