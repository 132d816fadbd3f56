"""Drivers are killed with `kill -9` at random moments: every message, by its identifier, arrives exactly once.

Each driver runs two jobs, one to a lake and one to a queue, so that each kill interrupts both kinds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import fork_server
import seeds
from daemon import Daemon, eventually
from openmsmq.bulk.client import BulkClient
from openmsmq.model.message import identifier_text
from spark import lake
from tallies import tally

# Number of kills in every test run, and in the nightly ones.
KILLS, KILLS_AT_NIGHT = 2, int(os.environ.get("PIPELINE_KILLS", "100"))
BATCH = 600
KINDS = ("lake", "copy")

pytestmark = pytest.mark.xdist_group("kills")


class Job:
    """A driver in a separate process group, with its Java virtual machine and its Python workers."""

    def __init__(self, service: Daemon, queue: str, directory: Path) -> None:
        self.service, self.queue, self.directory = service, queue, directory
        program = Path(__file__).with_name("driver.py")
        self.endings = directory / "endings"
        port = str(lake.flight_port(service))
        self.command = [sys.executable, str(program), port, queue, str(directory), str(self.endings)]
        self.environment = os.environ | {"PYSPARK_PYTHON": fork_server.python()}

    def start(self) -> subprocess.Popen[bytes]:
        """Start a driver, which waits for `go` when it is ready."""
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                env=self.environment,
            )  # fmt: skip

    def go(self, driver: subprocess.Popen[bytes]) -> None:
        assert driver.stdin is not None and driver.stdout is not None
        # The output may also contain warnings of the Java virtual machine.
        assert any(line == b"ready\n" for line in driver.stdout), (self.directory / "log").read_text()[-2000:]
        driver.stdin.write(b"\n")
        driver.stdin.flush()

    def finish(self, driver: subprocess.Popen[bytes]) -> dict[str, Counter[str]]:
        """Let a driver run to its end. Returns the count of each arrived identifier by kind of job."""
        eventually(lambda: not any(self._is_left(process, driver) for process in psutil.process_iter()))
        self.go(driver)
        output, _ = driver.communicate(timeout=300)
        assert b"done" in output.splitlines(), (self.directory / "log").read_text()[-2000:]
        with self.service.connect() as manager:
            with manager.open(f".\\private$\\{self.queue}-copied", "peek", protocol="qmcomm") as reader:
                copied = Counter(identifier_text(message.correlation_identifier) for message in reader)
        return {"lake": Counter(self.endings.read_text().split()), "copy": copied}

    def _is_left(self, process: psutil.Process, driver: subprocess.Popen[bytes]) -> bool:
        """Whether a process belongs to a killed driver, not to `driver`."""
        with contextlib.suppress(ProcessLookupError):
            return str(self.directory) in _command(process) and os.getpgid(process.pid) != driver.pid
        return False


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("kills") / "data", "--flight", "--flight-port", "0") as running:
        yield running
    assert "Traceback" not in running.log


def put(service: Daemon, queue: str, count: int) -> list[str]:
    """Send identical messages. Returns their identifiers."""
    with service.connect() as manager, manager.open(f".\\private$\\{queue}", "send") as sender:
        return [sender.send("the same", label="the same", recoverable=True) for _ in range(count)]


@pytest.mark.parametrize("kills", [pytest.param(KILLS_AT_NIGHT, marks=pytest.mark.slow), KILLS])
def test_a_killed_driver_loses_nothing(service: Daemon, tmp_path: Path, kills: int) -> None:
    name, chance = f"killed-{kills}", seeds.chance(f"killed {kills}")
    queues = {kind: f"{name}-{kind}" for kind in KINDS}
    lake.create(service, *queues.values(), f"{name}-copied")
    job, sent = Job(service, name, tmp_path), {kind: list[str]() for kind in KINDS}
    following = job.start()
    for _ in range(kills):
        for kind, queue in queues.items():
            if lake.count(service, queue) < BATCH:  # most kills must interrupt batches, not find an empty queue
                sent[kind] += put(service, queue, BATCH)
        driver = following
        job.go(driver)
        following = job.start()  # becomes ready while `driver` works
        queue = chance.choice(list(queues.values()))
        left = chance.randrange(lake.count(service, queue) + 1)  # 0: kill at the end
        eventually(lambda: lake.count(service, queue) <= left or driver.poll() is not None, 120)  # noqa: B023
        os.killpg(driver.pid, signal.SIGKILL)
        tally("kills of Spark drivers")
        driver.wait()
    arrived = job.finish(following)
    with BulkClient(port=lake.flight_port(service)) as client:
        for kind, queue in queues.items():
            assert not [(identifier, times) for identifier, times in arrived[kind].items() if times > 1], "duplicates"
            assert set(arrived[kind]) == set(sent[kind]), "lost, or never sent"
            assert lake.count(service, queue) == 0 and client.position(queue).count == 0
        assert client.forget(name) == 0, "no stage is left over"
