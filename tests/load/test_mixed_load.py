"""Two queue managers under mixed load of all entrances, for hours: nothing is lost or duplicated, and memory,
descriptors, threads and disk do not grow. `LOAD_SECONDS` in the environment says how long."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import openmsmq
from console.browser import Client
from console.conftest import users
from daemon import Daemon, eventually, free_port
from load.clients import BULK, FAR, FULL, MOVED, QUEUES, SHORT, STREAM, VISITED, Addresses, MixedLoad
from load.figures import ALLOWED, Figures, family, figures_of, size_of
from seeds import SEED
from tallies import tally

SECONDS = float(os.environ.get("LOAD_SECONDS", "60"))
SAMPLES = 200
NEAR, FAR_HOST = "127.0.0.1", "127.0.98.2"
PROGRAMS = {"queue manager", "openmsmq.flight.server", "openmsmq.console.serving"}


def _operate(client: Client, number: int) -> int:
    """What a console and a monitoring system ask for, and a queue that comes and goes. Returns the number of messages
    in VISITED."""
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


@pytest.mark.slow
def test_nothing_grows_and_nothing_is_lost_under_mixed_load(tmp_path: Path) -> None:
    shared, flight = free_port(NEAR, FAR_HOST), free_port(NEAR)
    users(tmp_path / "near")
    ports = ("--message-port", str(shared), "--peer-message-port", str(shared))
    web = ("--web", "--web-port", "0", "--flight", "--flight-port", str(flight))
    # With `prepare`, a daemon is a process of its own, whose children can be found.
    near = Daemon(tmp_path / "near", "--listen", NEAR, *ports, *web, prepare=lambda: None)
    far = Daemon(tmp_path / "far", "--listen", FAR_HOST, "--computer-name", "FAR", *ports, prepare=lambda: None)
    with near, far:
        with near.connect() as manager:
            for name, transactional in {**QUEUES, FAR: False}.items():
                manager.create_queue(f".\\private$\\{name}", transactional=transactional)
        with openmsmq.connect(FAR_HOST, far.port) as manager:
            manager.create_queue(f".\\private$\\{FAR}")
        endpoints = near.ready["endpoints"]
        addresses = Addresses(
            near.port, endpoints["messages"]["port"], near.mapper_port, flight, endpoints["web"]["port"], FAR_HOST,
            far.port,
        )  # fmt: skip
        eventually(lambda: family(near.pid).keys() == PROGRAMS)
        processes = {**family(near.pid), "other queue manager": far.pid}
        before = {whose: figures_of(pid) for whose, pid in processes.items()}
        figures, client = Figures(), Client(near)
        began, number = time.monotonic(), 0
        with MixedLoad(addresses, tmp_path, SEED) as load:
            while time.monotonic() < began + SECONDS:
                due = began + SECONDS * number / SAMPLES
                time.sleep(max(0.0, due - time.monotonic()))
                assert not load.ended(), f"ended early, see standard error: {load.ended()}"
                (load.full.set if _operate(client, number) > FULL else load.full.clear)()
                for whose, pid in processes.items():
                    figures.add(whose, figures_of(pid))
                figures.add("both", {"bytes on disk": size_of(tmp_path)})
                number += 1
        counts = load.counts()
        for queue in (VISITED, MOVED, STREAM, BULK, FAR):
            expected = counts[f"sent {queue}"] - counts[f"received {queue}"]
            assert _left(near, queue) == expected, f"{queue}: {expected} are missing or too many"
            assert counts[f"received {queue}"] > 0
        assert counts[f"sent {SHORT}"] == counts[f"received {SHORT}"] > 0
        assert not figures.growth()
        assert processes == {**family(near.pid), "other queue manager": far.pid}, "a child process was replaced"
        for whose, pid in processes.items():
            eventually(lambda whose=whose, pid=pid: _is_as_before(before[whose], figures_of(pid)))
        assert near.stop() == 0
        assert far.stop() == 0
        for daemon in (near, far):
            assert "Traceback" not in daemon.log
            assert " ERROR " not in daemon.log
    tally("messages", sum(count for what, count in counts.items() if what.startswith("sent ")))
    tally("connections", counts["connections"] + counts["strangers"])
    tally("samples", number)


def _is_as_before(before: dict[str, int], now: dict[str, int]) -> bool:
    """Whether the clients that have left keep nothing open."""
    return all(now[what] <= before[what] + ALLOWED[what][1] for what in ("descriptors", "threads"))
