"""Syncs that the kernel does beside the event loop, on real files."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openmsmq.store import Store
from openmsmq.store.committer import Committer
from openmsmq.store.uring_sync import UringSync

SETUP = 425  # io_uring_setup
PATIENCE = 60.0  # seconds for a sync, on a disk that others use as well


def run(use: Callable[[UringSync], Awaitable[None]]) -> None:
    async def main() -> None:
        try:
            syncer = UringSync(asyncio.get_running_loop())
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EAGAIN):
                raise
            pytest.skip(f"this kernel or container has no io_uring for us: {error}")
        try:
            await use(syncer)
        finally:
            syncer.close()

    asyncio.run(main())


async def synced(syncer: UringSync, handles: list[int]) -> OSError | None:
    done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    syncer.submit(handles, done.set_result)
    return await asyncio.wait_for(done, PATIENCE)


@pytest.fixture
def handles(tmp_path: Path) -> Iterator[list[int]]:
    opened = [os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT) for number in range(40)]
    yield opened
    for handle in opened:
        os.close(handle)


def test_files_are_synced_one_or_many_again_and_again(handles: list[int]) -> None:
    async def use(syncer: UringSync) -> None:
        for _ in range(300):  # a word that the kernel saw half written stopped the ring once in some hundred rounds
            for handle in handles:
                os.pwrite(handle, b"content", 0)
            assert await synced(syncer, handles) is None
            assert await synced(syncer, handles[:1]) is None

    run(use)


def test_the_loop_goes_on_meanwhile(handles: list[int]) -> None:
    async def use(syncer: UringSync) -> None:
        order: list[str] = []
        done = asyncio.Event()

        def finished(error: OSError | None) -> None:
            order.append("synced")
            done.set()

        os.pwrite(handles[0], bytes(1 << 22), 0)
        syncer.submit(handles[:1], finished)
        asyncio.get_running_loop().call_soon(order.append, "went on")
        await asyncio.wait_for(done.wait(), PATIENCE)
        assert order == ["went on", "synced"]

    run(use)


def test_what_cannot_be_synced_is_an_error_and_the_next_sync_is_not(handles: list[int]) -> None:
    async def use(syncer: UringSync) -> None:
        reader, writer = os.pipe()
        try:
            with pytest.raises(OSError) as unsynced:
                raise (await synced(syncer, [writer])) or AssertionError("a pipe was synced")
            assert unsynced.value.errno in (errno.EINVAL, errno.EBADF)
        finally:
            os.close(reader)
            os.close(writer)
        assert await synced(syncer, handles) is None

    run(use)


def test_where_the_kernel_forbids_it_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1

    async def main() -> None:
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syscall=refuse))
        with pytest.raises(PermissionError):
            UringSync(asyncio.get_running_loop())

    asyncio.run(main())


def test_a_kernel_that_does_not_know_a_flag_is_asked_without_it(
    handles: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        """As before Linux 5.19."""

        def __init__(self, *arguments: object, **options: object) -> None:
            real = load(None, use_errno=True).syscall

            def syscall(number: ctypes.c_long, *arguments: Any) -> int:
                if number.value == SETUP and any(arguments[1].raw[8:12]):
                    ctypes.set_errno(errno.EINVAL)
                    return -1
                return int(real(number, *arguments))

            self.syscall = syscall

    async def use(syncer: UringSync) -> None:
        assert await synced(syncer, handles) is None

    load = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", Library)
    run(use)


def test_a_store_commits_with_it_and_has_everything_afterwards(tmp_path: Path) -> None:
    count = 300

    async def use(syncer: UringSync) -> None:
        failures: list[BaseException] = []
        store = Store.open(str(tmp_path), segment_size=1 << 16)  # small: batches that touch two files are among them
        committer = Committer(store, asyncio.get_running_loop(), on_failure=failures.append, syncer=syncer)
        late: list[bool] = []
        for key in range(1, count + 1):
            store.insert(1, key, 0, bytes(1000))
            position = store.end
            committer.when_durable(lambda position=position: late.append(store.durable_end < position))  # type: ignore[misc]
            if key % 9 == 0:
                await asyncio.sleep(0)
        await committer.drain()
        assert late == [False] * count
        assert not failures
        store.close()

    run(use)
    store = Store.open(str(tmp_path), segment_size=1 << 16)
    assert list(store.recovered.queues[1].keys) == list(range(1, count + 1))
    store.close()


def test_an_error_of_the_first_ones_is_the_answer_for_all(handles: list[int]) -> None:
    """More than the kernel takes at once follow when the first ones are done, unless one of those failed."""

    async def use(syncer: UringSync) -> None:
        assert isinstance(await synced(syncer, [1 << 20, *handles]), OSError)
        assert isinstance(await synced(syncer, [*handles, 1 << 20]), OSError)
        assert await synced(syncer, handles) is None

    run(use)
