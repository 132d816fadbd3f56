"""Hundreds of clients of the automation objects, half of them killed: their objects are released, and the others
continue."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from daemon import Daemon
from interop.automation_crowd import new
from openmsmq.com import ComError
from openmsmq.com.apartment import Apartment
from openmsmq.model.errors import SharingViolation

PROGRAM = Path(__file__).parent / "automation_crowd.py"
PING_SECONDS, PATIENCE = 2.0, 60.0


def crowd(daemon: Daemon, clients: int, first: int) -> subprocess.Popen[str]:
    arguments = [str(value) for value in (PROGRAM, daemon.mapper_port, PING_SECONDS / 2, clients, first)]
    return subprocess.Popen([sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def whole(process: subprocess.Popen[str]) -> int:
    """Return the number of clients of a process that still have all their objects."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("?\n")
    process.stdin.flush()
    return int(process.stdout.readline())


@pytest.mark.parametrize("clients", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_objects_of_killed_clients_are_released_and_other_clients_continue(tmp_path: Path, clients: int) -> None:
    most = 2 * clients * 10 + 1
    limits = ("--max-com-objects", str(most), "--max-com-objects-per-peer", str(most))
    with Daemon(tmp_path / "data", "--com-ping-seconds", str(PING_SECONDS), *limits) as daemon:
        with daemon.connect() as manager:
            for queue in range(2 * clients):
                manager.create_queue(f".\\private$\\crowd{queue}")
        with crowd(daemon, clients, 0) as dying, crowd(daemon, clients, clients) as living:
            for process in (dying, living):
                assert process.stdout is not None and process.stdout.readline() == "ready\n"
            apartment = Apartment("127.0.0.1", daemon.mapper_port, ping_seconds=PING_SECONDS / 2)
            held = [new(apartment, "Message")]
            with pytest.raises(ComError, match="E_OUTOFMEMORY"):  # the limit is reached
                new(apartment, "Message")
            dying.kill()
            deadline = time.monotonic() + PATIENCE
            while len(held) <= clients * 10:  # one for each object of the killed clients
                assert time.monotonic() < deadline, f"{len(held) - 1} objects have ended"
                try:
                    held.append(new(apartment, "Message"))
                except ComError:
                    assert whole(living) == clients
                    time.sleep(0.1)
            with daemon.connect() as manager:
                for queue in range(clients):
                    manager.open(f".\\private$\\crowd{queue}", "receive").close()
                for queue in range(clients, 2 * clients):
                    with pytest.raises(SharingViolation):
                        manager.open(f".\\private$\\crowd{queue}", "receive")
            assert whole(living) == clients
            with pytest.raises(ComError, match="E_OUTOFMEMORY"):
                new(apartment, "Message")
            living.kill()
            apartment.close()
        assert "Traceback" not in daemon.log, daemon.log
