"""Two daemons on one data directory: one is stopped in the middle of its work and resumes after the other has taken
over. It changes nothing and sends no replies any more, and the results that clients got stay valid."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import pytest

import openmsmq
import seeds
from daemon import Daemon, eventually
from interop.cutting_proxy import CuttingProxy
from interop.test_restart import check, drain
from interop.workload import KEPT, QUEUES, History, Load
from openmsmq.server.supervision import FENCED
from tallies import tally

QUEUE = ".\\private$\\orders"


def freeze(daemon: Daemon) -> None:
    """Stop the process; returns when all its threads have stopped."""
    tally("SIGSTOPs of daemons")
    os.kill(daemon.pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{daemon.pid}/task")
    eventually(
        lambda: all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks.iterdir())
    )


def wake(daemon: Daemon) -> None:
    os.kill(daemon.pid, signal.SIGCONT)


class Nodes:
    """A data directory, and the daemon that owns it."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory, self.options = directory, options
        self.data = directory / "data"
        self.data.mkdir()
        self.count = 0
        self.active = self._start()

    def _start(self) -> Daemon:
        """Start a daemon on another node: with another path, and its own ports and log."""
        self.count += 1
        mounted = self.directory / f"node{self.count}"
        mounted.symlink_to(self.data)
        return Daemon(mounted, "--take-over", "--log-level", "warning", *self.options).start()

    def take_over(self) -> Daemon:
        """Start another daemon on the directory; returns the previous one."""
        earlier, self.active = self.active, self._start()
        return earlier

    @property
    def epoch(self) -> int:
        (directory,) = (path for path in self.data.iterdir() if path.name.startswith("store"))
        return int(directory.name.removeprefix("store.epoch-"))

    def contents(self) -> dict[str, bytes]:
        """Return the contents of all files, but for the shared memory of SQLite, in which readers leave marks, too."""
        files = [path for path in self.data.rglob("*") if path.is_file() and not path.name.endswith(".sqlite-shm")]
        return {str(path.relative_to(self.data)): path.read_bytes() for path in files}

    def wake_alone(self, earlier: Daemon) -> int:
        """Resume the earlier daemon while the other one is stopped; returns its exit code."""
        freeze(self.active)
        before = self.contents()
        wake(earlier)
        code = earlier.wait()
        assert self.contents() == before, "the daemon that was fenced has written"
        wake(self.active)
        return code


class Address:
    """The address that clients connect to, whichever daemon is behind it: a proxy in a separate thread."""

    def __init__(self, target: int) -> None:
        self._proxy = CuttingProxy(target, lambda: None)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Address:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._proxy.__aenter__(), self._loop).result()
        self.port = self._proxy.port
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.__aexit__(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def move(self, target: int) -> None:
        """Direct new connections to another daemon; existing ones stay."""
        self._proxy.target = target

    def cut(self) -> None:
        """Break all open connections."""
        self._loop.call_soon_threadsafe(self._proxy.cut)


def freeze_under_load(directory: Path, freezes: int, longest: float) -> History:
    """Run clients while the daemon is stopped `freezes` times, each time after up to `longest` seconds, replaced by
    another one, and resumed."""
    moments = seeds.chance(f"{freezes} freezes")
    nodes = Nodes(directory, "--checkpoint-megabytes", "1")
    with nodes.active.connect() as manager:
        for name, transactional in QUEUES.items():
            manager.create_queue(name, transactional=transactional)
    with Address(nodes.active.port) as address:
        with Load(address.port, directory, seeds.several(1000)[freezes]) as running:
            eventually(lambda: running.begun)
            for _ in range(freezes):
                time.sleep(moments.uniform(0.05, longest))
                freeze(nodes.active)
                earlier = nodes.take_over()
                if moments.random() < 0.5:
                    # Clients' calls wait at the earlier daemon, which reads them when it resumes.
                    code = nodes.wake_alone(earlier)
                    address.move(nodes.active.port)
                else:
                    address.move(nodes.active.port)
                    address.cut()
                    time.sleep(moments.uniform(0, 0.3))
                    wake(earlier)
                    code = earlier.wait()
                assert (code, earlier.log.count("fenced: ")) == (FENCED, 1), earlier.log
                assert "Traceback" not in earlier.log, earlier.log
            with nodes.active.connect() as manager:
                kept = manager.counts(KEPT)["message_count"]
                eventually(lambda: manager.counts(KEPT)["message_count"] > kept, 60)
        with nodes.active.connect() as manager:
            left = {name: drain(manager, name) for name in QUEUES}
    assert nodes.active.stop() == 0
    assert "Traceback" not in nodes.active.log, nodes.active.log
    assert nodes.epoch == freezes + 1
    return History(running.paths, left)


def test_nothing_is_lost_or_duplicated_when_a_replaced_daemon_resumes(tmp_path: Path) -> None:
    check(freeze_under_load(tmp_path, freezes=5, longest=0.8))


@pytest.mark.slow
def test_nothing_is_lost_or_duplicated_in_sixty_freezes(tmp_path: Path) -> None:
    check(freeze_under_load(tmp_path, freezes=60, longest=1.5))


def test_a_daemon_that_is_idle_notices_that_it_was_replaced(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    earlier = nodes.take_over()
    assert earlier.wait() == FENCED
    assert "fenced: " in earlier.log
    assert "epoch here was 1" in earlier.log
    assert nodes.active.stop() == 0


def test_express_messages_are_not_acknowledged_by_a_daemon_that_was_replaced(tmp_path: Path) -> None:
    """Express messages never reach the disk, but their senders must get no acknowledgment either."""
    nodes = Nodes(tmp_path)
    with nodes.active.connect() as manager:
        manager.create_queue(QUEUE)
        with manager.open(QUEUE, "send") as queue:
            queue.send("before")
            freeze(nodes.active)
            earlier = nodes.take_over()
            threading.Timer(0.3, wake, [earlier]).start()
            with pytest.raises((ConnectionError, OSError, openmsmq.MsmqError)):
                queue.send("express")
    assert earlier.wait() == FENCED
    assert nodes.active.stop() == 0


def test_without_take_over_the_second_daemon_does_not_start(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        (tmp_path / "other").symlink_to(tmp_path / "data")
        with pytest.raises(RuntimeError, match="ended with 1") as raised:
            Daemon(tmp_path / "other").start()
        assert "another process uses this store" in str(raised.value)
        assert daemon.alive
