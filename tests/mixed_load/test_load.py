"""Two queue managers under mixed load of all entrances, for hours: nothing is lost or duplicated, and memory,
descriptors, threads and disk do not grow. `LOAD_SECONDS` in the environment says how long; in less than a minute,
caches have not filled."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import openmsmq
from console.browser import Client
from console.conftest import users
from daemon import Daemon, eventually, free_port
from mixed_load.clients import BULK, FAR, FULL, MOVED, QUEUES, SHORT, STREAM, VISITED, Addresses, MixedLoad
from mixed_load.figures import ALLOWED, Figures, family, figures_of, size_of
from seeds import SEED
from tallies import tally

SECONDS = float(os.environ.get("LOAD_SECONDS", "60"))
SAMPLES = 200
NEAR, FAR_HOST = "127.0.0.1", "127.0.98.2"
PROGRAMS = {"queue manager", "openmsmq.flight.server", "openmsmq.console.serving"}


def _operate(client: Client, number: int) -> int:
    """Make requests of a console, and create and delete a queue. Returns the number of messages in VISITED."""
    for path in ("/overview", "/connections", "/audit", "/jobs"):
        client.get(path)
    rows = client.get("/queues", limit=500)["queues"]
    created = client.post("/queues", name=f"passing{number}")["id"]
    client.send(created, "one", "two")
    assert len(client.messages(created)) == 2
    client.act("DELETE", f"/queues/{created}", count=2)
    return next(int(row["messages"]) for row in rows if row["name"].endswith(f"\\{VISITED}"))


def _left(daemon: Daemon, queue: str) -> int:
    with daemon.connect() as manager, manager.open(f".\\private$\\{queue}", "peek") as opened:
        return sum(1 for _ in opened)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Daemon, Daemon]]:
    """Two queue managers at one message port; the first one with all entrances, and with all queues."""
    users(tmp_path / "near")
    shared, flight = free_port(NEAR, FAR_HOST), free_port(NEAR)
    ports = ("--message-port", str(shared), "--peer-message-port", str(shared))
    entrances = ("--web", "--web-port", "0", "--flight", "--flight-port", str(flight))
    # With `prepare`, a daemon is a process of its own, whose children can be found.
    near = Daemon(tmp_path / "near", "--listen", NEAR, *ports, *entrances, prepare=lambda: None)
    far = Daemon(tmp_path / "far", "--listen", FAR_HOST, "--computer-name", "FAR", *ports, prepare=lambda: None)
    with near, far:
        with near.connect() as manager:
            for name, transactional in {**QUEUES, FAR: False}.items():
                manager.create_queue(f".\\private$\\{name}", transactional=transactional)
        with openmsmq.connect(FAR_HOST, far.port) as manager:
            manager.create_queue(f".\\private$\\{FAR}")
        eventually(lambda: family(near.pid).keys() == PROGRAMS)
        yield near, far


def _addresses(near: Daemon, far: Daemon) -> Addresses:
    ports = {name: endpoint["port"] for name, endpoint in near.ready["endpoints"].items()}
    return Addresses(near.port, ports["messages"], near.mapper_port, ports["flight"], ports["web"], FAR_HOST, far.port)


def _watch(load: MixedLoad, client: Client, processes: dict[str, int], directory: Path) -> Figures:
    """Operate the first queue manager and take samples until the time is over."""
    figures, began = Figures(), time.monotonic()
    for number in range(SAMPLES):
        ended = load.ended(max(0.0, began + SECONDS * number / SAMPLES - time.monotonic()))
        assert not ended, f"ended early, see standard error: {ended}"
        (load.full.set if _operate(client, number) > FULL else load.full.clear)()
        for whose, pid in processes.items():
            figures.add(whose, figures_of(pid))
        figures.add("both", {"bytes on disk": size_of(directory)})
    return figures


@pytest.mark.slow
def test_nothing_grows_and_nothing_is_lost_under_mixed_load(pair: tuple[Daemon, Daemon], tmp_path: Path) -> None:
    near, far = pair
    processes = {**family(near.pid), "other queue manager": far.pid}
    idle = {whose: figures_of(pid)["descriptors"] for whose, pid in processes.items()}
    with MixedLoad(_addresses(near, far), tmp_path, SEED) as load:
        figures = _watch(load, Client(near), processes, tmp_path)
    counts = load.counts()
    for queue in (VISITED, MOVED, STREAM, BULK, FAR):
        expected = counts[f"sent {queue}"] - counts[f"received {queue}"]
        assert _left(near, queue) == expected, f"{queue}: {expected} should be left"
        assert counts[f"received {queue}"] > 0
    assert counts[f"sent {SHORT}"] == counts[f"received {SHORT}"] > 0
    assert not figures.growth()
    assert processes == {**family(near.pid), "other queue manager": far.pid}, "a child process was replaced"
    for whose, pid in processes.items():  # connections of clients that ended are gone; thread pools stay
        most = idle[whose] + ALLOWED["descriptors"][1]
        eventually(lambda pid=pid, most=most: figures_of(pid)["descriptors"] <= most)
    for daemon in pair:
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log
        assert " ERROR " not in daemon.log
    tally("messages", sum(count for what, count in counts.items() if what.startswith("sent ")))
    tally("connections", counts["connections"] + counts["strangers"])
