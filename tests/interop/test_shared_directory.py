"""Two queue managers on one directory, and failures of its file: killed writers, locks, an invalid file."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from command_line import checked, machines_in
from daemon import Daemon, eventually
from openmsmq.com import Dispatch, close_all
from openmsmq.directory.embedded import EmbeddedDirectory
from openmsmq.model.errors import HResult, MsmqError

RECEIVE = 1


@pytest.fixture(autouse=True)
def no_objects_left() -> Iterator[None]:
    yield
    close_all()


def daemon(path: Path, name: str, *options: str) -> Daemon:
    """A queue manager whose directory is `path`/directory.sqlite."""
    shared = ("--directory-path", str(path / "directory.sqlite"), "--computer-name", name)
    return Daemon(path / name.lower(), *shared, *options)


def new(running: Daemon, name: str) -> Any:
    return Dispatch(f"MSMQ.MSMQ{name}", "127.0.0.1", running.mapper_port)


def created(running: Daemon, path_name: str, label: str = "") -> Any:
    info = new(running, "QueueInfo")
    info.PathName = path_name
    if label:
        info.Label = label
    info.Create()
    return info


def paths(running: Daemon, **criteria: Any) -> list[str]:
    infos, found = new(running, "Query").LookupQueue(**criteria), []
    while (info := infos.Next()) is not None:
        found.append(info.PathName)
    return found


def hresult(work: Any, *arguments: Any) -> int:
    with pytest.raises(MsmqError) as caught:
        work(*arguments)
    return caught.value.hresult


def test_two_queue_managers_know_each_others_queues_and_names(tmp_path: Path) -> None:
    with daemon(tmp_path, "ONE") as one, daemon(tmp_path, "TWO") as two:
        eventually(lambda: "TWO" in machines_in("--data-dir", str(tmp_path)))
        created(one, "ONE\\a", "shared")
        created(two, ".\\b", "shared")
        assert paths(one, Label="shared") == paths(two, Label="SHARED") == ["ONE\\a", "TWO\\b"]
        first, second = new(one, "Application"), new(two, "Application")
        identifier = second.MachineIdOfMachineName("")
        assert first.MachineIdOfMachineName("two") == identifier
        assert first.MachineNameOfMachineId(f"{{{identifier}}}") == "TWO"
        assert hresult(first.MachineNameOfMachineId, str(uuid4())) == HResult.MQ_ERROR_MACHINE_NOT_FOUND


def test_a_queue_made_for_another_machine_is_there_when_it_is_opened(tmp_path: Path) -> None:
    with daemon(tmp_path, "ONE") as one, daemon(tmp_path, "TWO") as two:
        eventually(lambda: "TWO" in machines_in("--data-dir", str(tmp_path)))
        name = created(one, "TWO\\made").FormatName
        with two.connect() as manager:
            for protocol in ("remoteread", "qmcomm"):
                manager.open(name, "receive", protocol=protocol).close()
            with manager.open(name, "send") as queue:
                queue.send(b"here")
            with manager.open(name, "receive") as queue:
                assert queue.receive(timeout=5).body == b"here"
        with one.connect() as manager:
            with manager.open(name, "send") as queue:
                queue.send(b"on its way")
            assert manager.counts(name)["message_count"] == 1
            assert manager.management(name)["location"] == "REMOTE"
        # It can be changed and deleted from there, too; the other one notices at its next start at the latest.
        info = new(one, "QueueInfo")
        info.PathName = "TWO\\made"
        info.Label = "changed"
        info.Update()
        other = new(two, "QueueInfo")
        other.PathName = "TWO\\made"
        assert other.Label == "changed"
        info.Delete()
        two.stop()
        two.start()

        def is_gone() -> bool:
            with two.connect() as manager:
                try:
                    manager.open("DIRECT=OS:TWO\\made", "receive").close()
                except MsmqError as error:
                    return error.hresult == HResult.MQ_ERROR_QUEUE_NOT_FOUND
                return False

        eventually(is_gone)


def test_created_queues_survive_a_kill_during_a_write_while_others_continue(tmp_path: Path) -> None:
    with daemon(tmp_path, "ONE") as one, daemon(tmp_path, "TWO") as two:
        made: list[str] = []

        def create_until_it_fails() -> None:
            for n in range(1_000_000):
                made.append(created(one, f"ONE\\k{n}").FormatName)

        running = created(two, "TWO\\k", "alive")
        with ThreadPoolExecutor(1) as pool:
            creating = pool.submit(create_until_it_fails)
            eventually(lambda: len(made) > 20)
            one.kill()
            assert creating.exception(20) is not None
        assert paths(two, Label="alive") == ["TWO\\k"]
        assert len(paths(two)) in (len(made) + 1, len(made) + 2)  # one may have been created but not reported
        created(two, "TWO\\k2", "alive")
        one.start()
        with one.connect() as manager:
            for name in made:
                with manager.open(name, "send") as queue:
                    queue.send(b"x")
        assert running.Label == "alive"
        assert "Traceback" not in one.log + two.log


def test_a_directory_record_without_its_queue_is_repaired_at_the_next_start(tmp_path: Path) -> None:
    """A crash between the writes to the directory and to the log leaves such a record."""
    with daemon(tmp_path, "ONE") as one:
        created(one, "ONE\\whole")

    async def half() -> str:
        directory = EmbeddedDirectory(tmp_path / "directory.sqlite")
        try:
            record = replace(await directory.queue_at("ONE\\whole"), identifier=uuid4(), path_name="ONE\\half")
            return f"PUBLIC={(await directory.create_queue(record)).identifier}"
        finally:
            await directory.close()

    name = asyncio.run(half())
    one.start()
    try:
        with one.connect() as manager, manager.open(name, "send") as queue:
            queue.send(b"x")
    finally:
        one.stop()


def test_a_queue_whose_record_was_lost_keeps_its_messages(tmp_path: Path) -> None:
    with daemon(tmp_path, "ONE") as one:
        name = created(one, "ONE\\kept").FormatName
        with one.connect() as manager, manager.open(name, "send") as queue:
            queue.send(b"precious", recoverable=True)
        one.stop()
        for file in tmp_path.glob("directory.sqlite*"):
            file.unlink()
        one.start()
        eventually(lambda: "the directory does not have the public queue" in one.log)
        with one.connect() as manager, manager.open(name, "receive") as queue:
            assert queue.receive(timeout=5).body == b"precious"


def test_an_invalid_directory_blocks_nothing_and_is_logged(tmp_path: Path) -> None:
    (tmp_path / "directory.sqlite").write_bytes(b"not a database file" * 1000)
    with daemon(tmp_path, "ONE") as one:
        eventually(lambda: "directory unavailable" in one.log)
        with one.connect() as manager:
            manager.create_queue(".\\private$\\p")
            with manager.open(".\\private$\\p", "send") as queue:
                queue.send(b"x")
            assert hresult(manager.open, f"PUBLIC={uuid4()}", "send") == HResult.MQ_ERROR_NO_DS
            assert hresult(manager.open, f"DL={uuid4()}", "send") == HResult.MQ_ERROR_NO_DS
        assert hresult(paths, one) == HResult.MQ_ERROR_NO_DS
        assert hresult(created, one, "ONE\\q") == HResult.MQ_ERROR_NO_DS
        assert (tmp_path / "directory.sqlite").read_bytes() == b"not a database file" * 1000


def test_a_locked_directory_delays_only_calls_that_need_it(tmp_path: Path) -> None:
    with daemon(tmp_path, "ONE") as one:
        name = created(one, "ONE\\q").FormatName
        holder = sqlite3.connect(tmp_path / "directory.sqlite", isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        with ThreadPoolExecutor(1) as pool, one.connect() as manager:
            creating = pool.submit(hresult, created, one, "ONE\\later")
            time.sleep(0.3)
            started = time.monotonic()
            manager.create_queue(".\\private$\\p")
            for _ in range(50):
                with manager.open(name, "send") as queue:
                    queue.send(b"x")
            elapsed = time.monotonic() - started
            assert not creating.done()
            assert elapsed < 3, elapsed
            assert creating.result(30) == HResult.MQ_ERROR_NO_DS
        holder.execute("ROLLBACK")
        holder.close()


def test_two_machines_of_one_name_are_told_apart(tmp_path: Path) -> None:
    with daemon(tmp_path, "ONE") as one:
        created(one, "ONE\\q")
        shared = ("--directory-path", str(tmp_path / "directory.sqlite"), "--computer-name", "one")
        with Daemon(tmp_path / "other", *shared) as other:
            eventually(lambda: "belongs to another queue manager" in other.log)
            assert hresult(created, other, ".\\r") != HResult.MQ_OK
        given = ("directory", "--directory-path", str(tmp_path / "directory.sqlite"))
        assert "ONE\\q" in checked(*given, "queues")
        checked(*given, "machines", "remove", "one", "--yes")
        assert "ONE" not in checked(*given, "queues") + checked(*given, "machines")
