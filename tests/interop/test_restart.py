"""Durability across restarts: the daemon is killed under load, stopped, started twice, and runs out of disk space."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import openmsmq
import openmsmq.aio
import seeds
from daemon import Daemon, eventually
from interop.workload import KEPT, QUEUES, History, Load
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.server import daemon as server
from openmsmq.server.loading import load
from openmsmq.store.vfs import OsVfs

QUEUE = ".\\private$\\orders"
MOVED = ".\\private$\\to"
SEQUENCE = (1 << 56) - 1


def drain(manager: openmsmq.QueueManager, name: str) -> list[str]:
    texts = []
    with manager.open(name) as queue:
        try:
            while True:
                texts.append(str(queue.receive(0).decode()))
        except openmsmq.ReceiveTimeout:
            return texts


def kill_under_load(directory: Path, kills: int, longest: float) -> History:
    """Run clients while the daemon is killed `kills` times, each time after up to `longest` seconds."""
    moments = seeds.chance(f"{kills} kills")
    with Daemon(directory / "data", "--checkpoint-megabytes", "1", "--log-level", "warning") as daemon:
        with daemon.connect() as manager:
            for name, transactional in QUEUES.items():
                manager.create_queue(name, transactional=transactional)
        with Load(daemon.port, directory, seeds.several(1000)[kills]) as running:
            eventually(lambda: running.begun)
            for _ in range(kills):
                time.sleep(moments.uniform(0.05, longest))
                daemon.kill()
                daemon.start()
            # Wait until clients work with the restarted daemon.
            with daemon.connect() as manager:
                kept = manager.counts(KEPT)["message_count"]
                eventually(lambda: manager.counts(KEPT)["message_count"] > kept, 60)
                with manager.open(MOVED, "peek") as moved:
                    moved.peek(60)  # committed; a count includes messages of open transactions
        with daemon.connect() as manager:
            left = {name: drain(manager, name) for name in QUEUES}
    assert "Traceback" not in daemon.log, daemon.log
    return History(running.paths, left)


def check(history: History) -> None:
    for queue in QUEUES:
        if queue != MOVED:  # clients send to the others directly
            assert history.texts("sent", queue), f"nothing was sent to {queue}"
    assert history.left[MOVED], "nothing was moved"
    print(history.summary())
    assert history.contradictions() == []


def test_nothing_is_lost_or_duplicated_when_the_daemon_is_killed_under_load(tmp_path: Path) -> None:
    check(kill_under_load(tmp_path, kills=6, longest=0.8))


@pytest.mark.slow
def test_nothing_is_lost_or_duplicated_in_a_hundred_kills(tmp_path: Path) -> None:
    check(kill_under_load(tmp_path, kills=110, longest=1.5))


def test_the_history_checker_detects_violations(tmp_path: Path) -> None:
    left: dict[str, list[str]] = {queue: [] for queue in QUEUES}
    kept, moved = ".\\private$\\kept", ".\\private$\\from"
    (tmp_path / "notes").write_text(
        f'{{"what": "sent", "queue": "{kept}", "group": ["a"], "identifiers": ["1"]}}\n'
        f'{{"what": "send open", "queue": "{kept}", "group": ["b"]}}\n'
        f'{{"what": "sent", "queue": "{moved}", "group": ["c", "d"]}}\n'.replace("\\", "\\\\")
    )
    well = left | {kept: ["a"], moved: ["c"], ".\\private$\\to": ["d"]}
    assert History([tmp_path / "notes"], well).contradictions() == []
    for wrong in ({kept: []}, {kept: ["a", "a"]}, {kept: ["a", "z"]}, {moved: []}, {moved: ["c", "d"]}):
        assert History([tmp_path / "notes"], well | wrong).contradictions() != []


# -- regular stops ---------------------------------------------------------------------------------------------------


def test_sigterm_ends_the_daemon_with_0_and_leaves_a_checkpoint(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "data").start()
    with daemon.connect() as manager:
        manager.create_queue(QUEUE)
        with manager.open(QUEUE, "send") as queue:
            for number in range(10):
                queue.send(str(number), recoverable=True)
        assert daemon.stop() == 0
    assert list((tmp_path / "data" / "store").glob("checkpoint*"))
    with daemon:
        assert "1 queues with 10 messages recovered from a checkpoint" in daemon.log
        with daemon.connect() as manager:
            assert drain(manager, QUEUE) == [str(number) for number in range(10)]


def test_sigterm_ends_waiting_readers_and_the_daemon_at_once(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon, daemon.connect() as manager:
        manager.create_queue(QUEUE)

        async def wait() -> None:
            async with await openmsmq.aio.connect("127.0.0.1", daemon.port) as waiting:
                queue = await waiting.open(QUEUE)
                reading = asyncio.create_task(queue.receive(60))
                await asyncio.sleep(0.2)
                begun = time.monotonic()
                assert await asyncio.to_thread(daemon.stop) == 0
                assert time.monotonic() - begun < 5
                with pytest.raises((ConnectionError, MsmqError)):
                    await reading
                queue._closed = True

        asyncio.run(wait())


def test_a_second_daemon_on_the_directory_is_refused_with_a_clear_message(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        second = Daemon(tmp_path / "data")
        process = second._launch()
        assert process.wait(20) not in (0, None)
        assert process.stdout is not None
        assert process.stdout.read() == b""
        process.stdout.close()
        last = second.log.strip().splitlines()[-1]
        assert str(tmp_path / "data") in last and "another process uses this store" in last, last
        assert "Traceback" not in second.log
        with daemon.connect() as manager:
            assert manager.machine_id


def test_express_messages_vanish_while_queues_and_properties_stay(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "data").start()
    with daemon.connect() as manager:
        manager.create_queue(QUEUE, label="Aufträge", quota=4321, journal=True)
        before = manager.properties(QUEUE)
        security = manager.security(QUEUE)
        identity = manager.machine_id
        with manager.open(QUEUE, "send") as queue:
            queue.send("express")
            queue.send("recoverable", recoverable=True)
        daemon.kill()
    with daemon.start(), daemon.connect() as manager:
        assert manager.properties(QUEUE) == before
        assert manager.security(QUEUE) == security
        assert manager.machine_id == identity
        assert drain(manager, QUEUE) == ["recoverable"]


def test_identifiers_are_never_reused_after_a_kill(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "data").start()
    given: list[str] = []
    for run in range(3):
        with daemon.connect() as manager:
            if not run:
                manager.create_queue(QUEUE)
            with manager.open(QUEUE, "send") as queue:
                given += [queue.send("x", recoverable=number % 3 == 0) for number in range(30)]
            daemon.kill()
        daemon.start()
    daemon.kill()
    assert len(set(given)) == len(given)
    # This protocol does not transfer lookup identifiers, so they are checked at the server.
    reopened = server.Daemon(load(options={"data_dir": tmp_path / "data"}, environment={}))
    try:
        assert reopened.manager.changes.next_sequence() & SEQUENCE > len(given)
        (queue_object,) = reopened.manager.registry.by_name.values()
        assert len(queue_object.entries) == 30
    finally:
        reopened.store.close()
        reopened._background.shutdown()


# -- full and failing disks ------------------------------------------------------------------------------------------


TO_THE_LAST = ("--minimum-free-megabytes", "0")


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Mount a file system of a given size in MiB; a segment has 16."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={request.param}m", "tmpfs", str(directory)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def fill_and_drain(daemon: Daemon, body: bytes, most: int) -> None:
    with daemon.connect() as manager:
        manager.create_queue(QUEUE)
        with manager.open(QUEUE, "send") as sender, manager.open(QUEUE) as receiver:
            sent = 0
            while attempt(sender, body) == HResult.MQ_OK:
                sent += 1
                assert sent < most
            assert sent > 3
            for _ in range(3):
                assert attempt(sender, body) == HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED
            assert daemon.alive
            sender.send("express needs no disk", priority=0)
            for _ in range(sent):
                assert receiver.receive(0).body == body
            assert receiver.receive(0).decode() == "express needs no disk"
            with pytest.raises(openmsmq.ReceiveTimeout):
                receiver.receive(0)
            eventually(lambda: attempt(sender, body) == HResult.MQ_OK)


def attempt(queue: openmsmq.MessageQueue, body: bytes) -> int:
    """Return the HRESULT of a recoverable send."""
    try:
        queue.send(body, recoverable=True)
    except MsmqError as error:
        return error.hresult
    return HResult.MQ_OK


@pytest.mark.parametrize("small_disk", [80], indirect=True)
def test_a_full_disk_fails_sends_and_nothing_else(small_disk: Path) -> None:
    body = bytes(500_000)
    with Daemon(small_disk / "data", *TO_THE_LAST) as daemon:
        fill_and_drain(daemon, body, most=300)
        daemon.kill()
        daemon.start()
        with daemon.connect() as manager:
            assert drain_bodies(manager) == [body]
    assert "Traceback" not in daemon.log, daemon.log


@pytest.mark.parametrize("small_disk", [40], indirect=True)
def test_a_daemon_exits_cleanly_on_a_full_disk(small_disk: Path) -> None:
    with Daemon(small_disk / "data", *TO_THE_LAST) as daemon:
        with daemon.connect() as manager:
            manager.create_queue(QUEUE)
            with manager.open(QUEUE, "send") as sender:
                sent = 0
                for size in (100_000, 1000, 10):
                    while attempt(sender, bytes(size)) == HResult.MQ_OK:
                        sent += 1
        filler = small_disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        assert daemon.stop() == 0, daemon.log
        assert "no checkpoint was written at shutdown" in daemon.log
        assert "Traceback" not in daemon.log, daemon.log
        filler.unlink()
        daemon.start()
        with daemon.connect() as manager:
            assert manager.counts(QUEUE)["message_count"] == sent


@pytest.mark.parametrize("small_disk", [40, 56], indirect=True)
def test_sends_never_use_the_space_reserved_for_receives(small_disk: Path) -> None:
    body = bytes(100_000)
    with Daemon(small_disk / "data", *TO_THE_LAST) as daemon, daemon.connect() as manager:
        manager.create_queue(QUEUE)
        with manager.open(QUEUE, "send") as sender, manager.open(QUEUE) as receiver:
            sent = 0
            for turn in range(5):  # the first receives start to use the reserve, which sends must not touch
                while attempt(sender, body) == HResult.MQ_OK:
                    sent += 1
                while attempt(sender, b"small") == HResult.MQ_OK:
                    sent += 1
                assert turn or sent > 3
                for _ in range(min(sent, 20)):
                    receiver.receive(0)
                    sent -= 1
            for _ in range(sent):
                receiver.receive(0)


@pytest.mark.parametrize("small_disk", [200], indirect=True)
def test_a_nearly_full_disk_accepts_no_messages_until_space_is_free(small_disk: Path) -> None:
    with Daemon(small_disk / "data") as daemon, daemon.connect() as manager:
        manager.create_queue(QUEUE)
        (small_disk / "other").write_bytes(bytes(130 << 20))
        with manager.open(QUEUE, "send") as sender:
            eventually(lambda: attempt(sender, b"x") != HResult.MQ_OK)
            with pytest.raises(MsmqError):
                sender.send("express too")
            (small_disk / "other").unlink()
            eventually(lambda: attempt(sender, b"x") == HResult.MQ_OK)


@pytest.mark.parametrize("small_disk", [24], indirect=True)
def test_a_disk_without_room_for_a_reserve_is_refused_at_the_first_start(small_disk: Path) -> None:
    with pytest.raises(RuntimeError, match=r"ended with 1:(.|\n)*No space left on device"):
        Daemon(small_disk / "data").start()


@pytest.mark.parametrize("off_the_loop", [True, False])
def test_a_failing_sync_ends_the_daemon_with_1_and_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, off_the_loop: bool
) -> None:
    failure = OSError(5, "Input/output error")

    def fail(vfs: OsVfs, handle: int) -> None:
        raise failure

    class DelayedSync:
        """Completes a started sync in the next event-loop iteration. `UringSync` itself needs native code, which
        cannot call test doubles."""

        failure: OSError | None = None

        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            if not off_the_loop:
                raise PermissionError("forbidden")

        def submit(self, handles: list[int], done: Callable[[OSError | None], None]) -> None:
            for handle in handles:
                os.fdatasync(handle)
            asyncio.get_running_loop().call_soon(done, self.failure)

        def close(self) -> None:
            pass

    monkeypatch.setattr(server, "UringSync", DelayedSync)

    async def scenario() -> int:
        started: asyncio.Future[server.Daemon] = asyncio.get_running_loop().create_future()
        ports = {"rpc_port": 0, "endpoint_mapper_port": 0, "message_port": 0}
        configuration = load(options={"data_dir": tmp_path / "data", **ports}, environment={})
        serving = asyncio.create_task(server.serve(configuration, started.set_result))
        await asyncio.wait([serving, started], return_when=asyncio.FIRST_COMPLETED)
        assert started.done(), serving.result()
        _, port = started.result().endpoints["qmcomm"]
        manager = await openmsmq.aio.connect("127.0.0.1", port)
        await manager.create_queue(QUEUE)
        queue = await manager.open(QUEUE, "send")
        await queue.send("before", recoverable=True)
        monkeypatch.setattr(OsVfs, "fdatasync", fail)
        monkeypatch.setattr(DelayedSync, "failure", failure)
        sending = asyncio.create_task(queue.send("after", recoverable=True))
        code = await asyncio.wait_for(serving, 10)
        with pytest.raises((ConnectionError, MsmqError)):
            await sending
        await manager.close()
        return code

    assert asyncio.run(scenario()) == 1
    assert any(r.levelname == "CRITICAL" and "Input/output error" in r.getMessage() for r in caplog.records)
    # The failed store stays locked by this process; a separate daemon's process would have exited.
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with Daemon(tmp_path / "copy") as daemon, daemon.connect() as manager:
        assert drain(manager, QUEUE)[:1] == ["before"]


def drain_bodies(manager: openmsmq.QueueManager) -> list[bytes]:
    bodies = []
    with manager.open(QUEUE) as queue:
        try:
            while True:
                bodies.append(queue.receive(0).body)
        except openmsmq.ReceiveTimeout:
            return bodies
