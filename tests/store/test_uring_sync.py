"""How a syncer handles the results of a ring. `tests/compiled/test_ring.py` uses real rings."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from types import SimpleNamespace

import pytest

from openmsmq.store.uring_sync import UringSync

RING = "openmsmq.store.ring"  # a C module, which a double can replace


class Ring:
    """Accepts at most `most` files at once and syncs them in the next event-loop iteration."""

    most = 16
    failing: int | None = None  # a file

    def __init__(self, entries: int, coop_taskrun: bool) -> None:
        self.entries = entries
        self.submitted: list[list[int]] = []
        self.error = 0
        self.descriptor = os.eventfd(0)

    def submit(self, handles: list[int]) -> int:
        assert 0 < len(handles) <= self.entries
        taken = handles[: self.most]
        self.submitted.append(taken)
        self.error = errno.EIO if self.failing in taken else 0
        os.eventfd_write(self.descriptor, 1)
        return len(taken)

    def completed(self) -> tuple[int, int]:
        os.eventfd_read(self.descriptor)
        return 0, self.error

    def wait(self) -> None:
        pass

    def close(self) -> None:
        os.close(self.descriptor)


def submissions(monkeypatch: pytest.MonkeyPatch, handles: list[int]) -> tuple[list[list[int]], OSError | None]:
    """Sync these handles; return the submissions to the ring, and the result."""
    made: list[Ring] = []

    def make(entries: int, coop_taskrun: bool) -> Ring:
        made.append(Ring(entries, coop_taskrun))
        return made[-1]

    async def main() -> OSError | None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[OSError | None] = loop.create_future()
        syncer = UringSync(loop)
        syncer.submit(handles, done.set_result)
        error = await asyncio.wait_for(done, 10)
        syncer.close()
        return error

    monkeypatch.setitem(sys.modules, RING, SimpleNamespace(Ring=make))
    error = asyncio.run(main())
    (ring,) = made
    return ring.submitted, error


def asked_for(
    monkeypatch: pytest.MonkeyPatch, answers: dict[bool, OSError | None]
) -> tuple[list[bool], OSError | None]:
    """Return the values of `coop_taskrun` with which a syncer creates rings, and the exception."""
    asked: list[bool] = []

    def make(entries: int, coop_taskrun: bool) -> Ring:
        asked.append(coop_taskrun)
        error = answers[coop_taskrun]
        if error is not None:
            raise error
        return Ring(entries, coop_taskrun)

    async def main() -> None:
        UringSync(asyncio.get_running_loop()).close()

    monkeypatch.setitem(sys.modules, RING, SimpleNamespace(Ring=make))
    try:
        asyncio.run(main())
    except OSError as error:
        return asked, error
    return asked, None


def test_a_flag_unknown_to_the_kernel_is_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such kernels are older than Linux 5.19."""
    unknown, no_memory = OSError(errno.EINVAL, "unknown flag"), OSError(errno.ENOMEM, "no memory")
    assert asked_for(monkeypatch, {True: None}) == ([True], None)
    assert asked_for(monkeypatch, {True: unknown, False: None}) == ([True, False], None)
    assert asked_for(monkeypatch, {True: unknown, False: no_memory}) == ([True, False], no_memory)


def test_io_uring_is_not_retried_after_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    for code in (errno.EPERM, errno.ENOSYS, errno.ENOMEM):
        refused = OSError(code, os.strerror(code))
        assert asked_for(monkeypatch, {True: refused}) == ([True], refused)


def test_without_the_compiled_ring_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="not compiled"):
            UringSync(asyncio.get_running_loop())

    monkeypatch.setitem(sys.modules, RING, None)
    asyncio.run(main())


def test_syncs_beyond_the_size_of_the_ring_follow_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted, error = submissions(monkeypatch, list(range(40)))
    assert submitted == [list(range(16)), list(range(16, 32)), list(range(32, 40))] and error is None


def test_entries_not_accepted_at_once_are_submitted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ring, "most", 3)
    submitted, error = submissions(monkeypatch, list(range(20)))
    assert [handle for some in submitted for handle in some] == list(range(20)) and len(submitted) == 7
    assert error is None


def test_after_an_error_nothing_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ring, "failing", 20)
    submitted, error = submissions(monkeypatch, list(range(40)))
    assert len(submitted) == 2 and error is not None and error.errno == errno.EIO


def test_a_kernel_that_takes_nothing_and_reports_no_error_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise no completion would arrive, and no acknowledgment."""
    monkeypatch.setattr(Ring, "most", 0)
    with pytest.raises(OSError, match="took no entry"):
        submissions(monkeypatch, [1, 2])
