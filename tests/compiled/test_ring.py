"""Syncs by the kernel off the event loop, on real files."""

from __future__ import annotations

import asyncio
import errno
import os
import platform
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from openmsmq.store import Store
from openmsmq.store.committer import Committer
from openmsmq.store.ring import Ring
from openmsmq.store.uring_sync import UringSync
from requirements import missing

PATIENCE = 60.0  # seconds for a sync on a shared disk
ENTRIES = 16
SETUP, ENTER = 425, 426  # io_uring_setup and io_uring_enter
MMAP = {"x86_64": 9, "aarch64": 222}
ENTRIES_PLACE = 0x10000000  # IORING_OFF_SQES


@pytest.fixture
def ring() -> Iterator[Ring]:
    try:
        made = Ring(ENTRIES, False)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EAGAIN):
            raise
        pytest.skip(f"this kernel or container has no io_uring for us: {error}")
    yield made
    made.close()


@pytest.fixture
def handles(tmp_path: Path) -> Iterator[list[int]]:
    opened = [os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT) for number in range(40)]
    yield opened
    for handle in opened:
        os.close(handle)


def mapped() -> int:
    """Return the number of ring mappings of this process."""
    return Path("/proc/self/maps").read_text().count("io_uring")


def in_use() -> tuple[int, int]:
    """Return the number of descriptors and of ring mappings."""
    return len(os.listdir("/proc/self/fd")), mapped()


# -- the ring ----------------------------------------------------------------------------------------------------


def test_a_ring_syncs_its_files_and_reports_the_number_in_flight(ring: Ring, handles: list[int]) -> None:
    assert ring.completed() == (0, 0)
    for _ in range(100):  # several wraps of both rings
        for count in (1, 5, ENTRIES):
            assert ring.submit(handles[:count]) == count
            ring.wait()
            assert ring.completed() == (0, 0)
    assert ring.submit([]) == 0
    ring.wait()


def test_an_error_among_others_is_named_and_the_next_syncs_have_none(ring: Ring, handles: list[int]) -> None:
    assert ring.submit([handles[0], 1 << 20, handles[1]]) == 3
    ring.wait()
    assert ring.completed() == (0, errno.EBADF)
    assert ring.submit(handles[:2]) == 2
    ring.wait()
    assert ring.completed() == (0, 0)


def test_invalid_descriptors_are_refused_and_nothing_is_submitted(ring: Ring, handles: list[int]) -> None:
    class ClosesRing:
        def __index__(self) -> int:
            ring.close()
            return handles[0]

    fine = handles[0]
    for wrong in (["a"], [fine, 1.0], [fine, None], [ClosesRing()], (fine,), fine, None):
        with pytest.raises(TypeError):
            ring.submit(wrong)  # type: ignore[arg-type]
    for wrong in ([fine, -1], [-(1 << 40)], [1 << 31], [fine] * (ENTRIES + 1)):
        with pytest.raises(ValueError):
            ring.submit(wrong)
    for wrong in ([fine, 1 << 70], [-(1 << 70)]):
        with pytest.raises(OverflowError):
            ring.submit(wrong)
    ring.wait()
    assert ring.completed() == (0, 0)
    assert ring.submit([fine] * ENTRIES) == ENTRIES
    with pytest.raises(ValueError, match="16 under way"):  # capacity of the completion ring
        ring.submit([fine])
    ring.wait()
    assert ring.completed() == (0, 0)


def test_a_ring_has_as_many_entries_as_the_kernel_allows(ring: Ring) -> None:
    before = in_use()
    for wrong in (-1, 1 << 70, -(1 << 70)):
        with pytest.raises(OverflowError):
            Ring(wrong, False)
    for wrong in (0, (1 << 15) + 1, 1 << 40):
        with pytest.raises(ValueError):
            Ring(wrong, False)
    for arguments in ((), (1,), ("1", False), (1.0, False), (None, False), (1, False, 0)):
        with pytest.raises(TypeError):
            Ring(*arguments)  # type: ignore[arg-type, call-arg]
    with pytest.raises(TypeError):
        Ring(entries=1, coop_taskrun=False)  # type: ignore[call-arg]
    assert in_use() == before


def test_resources_of_a_ring_are_released_exactly_once(ring: Ring, handles: list[int]) -> None:
    before = in_use()
    for number in range(60):
        one = Ring(ENTRIES, False)
        assert in_use() == (before[0] + 1, before[1] + 2)
        assert not os.get_inheritable(one.descriptor)
        one.submit(handles[: number % ENTRIES])
        if number % 3:
            one.close()
            assert in_use() == before
            same = os.open(os.devnull, os.O_RDONLY)  # reuses the number of the closed descriptor
            one.close()
            del one
            os.close(same)  # fails if the ring closed it again
        else:
            del one
        assert in_use() == before


def test_a_closed_ring_does_nothing(ring: Ring, handles: list[int]) -> None:
    ring.close()
    uses: list[Callable[[], object]] = [
        lambda: ring.descriptor, lambda: ring.submit(handles[:1]), lambda: ring.submit([]), ring.completed, ring.wait,
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(ValueError, match="closed"):
            use()
    ring.close()


# -- kernels that refuse -----------------------------------------------------------------------------------------

# Prefix of a child program: `forbid` makes a system call fail with a permanent seccomp(2) filter.
FORBID = """
import asyncio, ctypes, errno, os, struct, sys
from pathlib import Path
from openmsmq.store.ring import Ring
from openmsmq.store.uring_sync import UringSync

NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2  # of prctl(2)
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # of classic BPF, on a struct seccomp_data
ALLOW, FAIL = 0x7FFF0000, 0x00050000

def forbid(call, error, argument=None, value=0):
    '''Have a call fail with an errno; if an argument is named, only where it has this value.'''
    only = [] if argument is None else [(LOAD, 0, 0, 16 + 8 * argument), (JUMP_IF_EQUAL, 0, 1, value)]
    steps = [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, len(only) + 1, call), *only, (RETURN, 0, 0, FAIL | error),
             (RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(code))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for option, second, third in ((NO_NEW_PRIVILEGES, 1, None), (SET_SECCOMP, FILTER, program)):
        if prctl(option, ctypes.c_ulong(second), third, 0, 0):
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")

def in_use():
    return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("io_uring")
"""


def child(program: str) -> None:
    """Run a program that can `forbid` calls."""
    done = subprocess.run([sys.executable, "-c", FORBID + program], capture_output=True, text=True, timeout=60)
    if done.stderr.startswith("prctl:"):
        missing(f"this kernel does not filter system calls, as QEMU's emulation of one does not: {done.stderr}")
    assert done.returncode == 0, done.stderr


def test_if_a_container_forbids_io_uring_the_error_says_so() -> None:
    child(f"""
forbid({SETUP}, errno.EPERM)

async def main():
    before = in_use()
    try:
        UringSync(asyncio.get_running_loop())
    except PermissionError as error:
        assert error.errno == errno.EPERM and os.strerror(errno.EPERM) in str(error)
    else:
        sys.exit("a ring was made")
    assert in_use() == before

asyncio.run(main())
""")


def test_a_ring_that_cannot_be_mapped_is_given_back(ring: Ring) -> None:
    if platform.machine() not in MMAP:
        pytest.skip("the number of mmap is not known here")
    child(f"""
before = in_use()
forbid({MMAP[platform.machine()]}, errno.ENOMEM, 5, {ENTRIES_PLACE})
try:
    Ring({ENTRIES}, False)
except OSError as error:
    assert error.errno == errno.ENOMEM
else:
    sys.exit("a ring was made")
assert in_use() == before
""")


def test_after_an_error_of_the_kernel_nothing_is_left_submitted(ring: Ring, tmp_path: Path) -> None:
    child(f"""
forbid({ENTER}, errno.EAGAIN, 1, 3)  # a submission of three files
ring, fine = Ring({ENTRIES}, False), os.open({str(tmp_path / "file")!r}, os.O_RDWR | os.O_CREAT)
try:
    ring.submit([1 << 20] * 3)
except BlockingIOError:
    pass
else:
    sys.exit("three files were submitted")
assert ring.submit([fine] * 2) == 2
ring.wait()
assert ring.completed() == (0, 0)  # no entry of the objects that are not files
""")


def test_a_wait_continues_after_signals_unless_their_handler_raises_or_closes_the_ring(
    ring: Ring, tmp_path: Path
) -> None:
    child(f"""
import signal

class Enough(Exception):
    pass

def handler(number, frame):
    signals.append(number)
    if len(signals) == 2:
        raise Enough
    elif len(signals) == 3:
        ring.close()
    else:
        signal.setitimer(signal.ITIMER_REAL, 0.05)

forbid({ENTER}, errno.EINTR, 2, 1)  # a wait for one completion
ring, fine = Ring({ENTRIES}, False), os.open({str(tmp_path / "file")!r}, os.O_RDWR | os.O_CREAT)
signals = []
signal.signal(signal.SIGALRM, handler)
assert ring.submit([fine]) == 1
for expected, count in ((Enough, 2), (ValueError, 3)):
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        ring.wait()
    except expected:
        assert len(signals) == count
    else:
        sys.exit("it did not wait")
""")


# -- with an event loop ------------------------------------------------------------------------------------------


Run = Callable[[Callable[[UringSync], Awaitable[None]]], None]


@pytest.fixture
def run(ring: Ring) -> Run:
    """Run code that uses a syncer in its own event loop."""

    def run(use: Callable[[UringSync], Awaitable[None]]) -> None:
        async def main() -> None:
            syncer = UringSync(asyncio.get_running_loop())
            try:
                await use(syncer)
            finally:
                syncer.close()

        before = mapped()
        asyncio.run(main())
        assert mapped() == before

    return run


async def synced(syncer: UringSync, handles: list[int]) -> OSError | None:
    done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    syncer.submit(handles, done.set_result)
    return await asyncio.wait_for(done, PATIENCE)


def test_files_are_synced_one_or_many_again_and_again(run: Run, handles: list[int]) -> None:
    async def use(syncer: UringSync) -> None:
        for _ in range(300):  # a torn write of a shared word stalls the ring within some hundred rounds
            for handle in handles:
                os.pwrite(handle, b"content", 0)
            assert await synced(syncer, handles) is None
            assert await synced(syncer, handles[:1]) is None

    run(use)


def test_the_event_loop_runs_during_a_sync(run: Run, handles: list[int]) -> None:
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


def test_what_cannot_be_synced_is_an_error_and_the_next_sync_is_not(run: Run, handles: list[int]) -> None:
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


def test_an_error_of_the_first_syncs_fails_all(run: Run, handles: list[int]) -> None:
    """Syncs that do not fit into the ring follow when the first ones are done, unless one of those failed."""

    async def use(syncer: UringSync) -> None:
        assert isinstance(await synced(syncer, [1 << 20, *handles]), OSError)
        assert isinstance(await synced(syncer, [*handles, 1 << 20]), OSError)
        assert await synced(syncer, handles) is None

    run(use)


def test_a_close_waits_silently_for_running_syncs(run: Run, handles: list[int]) -> None:
    said: list[OSError | None] = []

    async def use(syncer: UringSync) -> None:
        os.pwrite(handles[0], bytes(1 << 22), 0)
        syncer.submit(handles, said.append)

    run(use)
    assert not said


def test_a_store_commits_with_it_and_has_everything_afterwards(run: Run, tmp_path: Path) -> None:
    count = 300

    async def use(syncer: UringSync) -> None:
        failures: list[BaseException] = []
        store = Store.open(str(tmp_path), segment_size=1 << 16)  # small, so that some batches touch two files
        committer = Committer(store, asyncio.get_running_loop(), on_failure=failures.append, syncer=syncer)
        late: list[bool] = []
        for key in range(1, count + 1):
            store.insert(1, key, 0, bytes(1000))
            position = store.end
            committer.when_durable(lambda position=position: late.append(store.durable_end < position))  # type: ignore[misc]
            if key % 9 == 0:
                await asyncio.sleep(0)  # let the loop flush a batch
        await committer.drain()
        assert late == [False] * count
        assert not failures
        store.close()

    run(use)
    store = Store.open(str(tmp_path), segment_size=1 << 16)
    assert list(store.recovered.queues[1].keys) == list(range(1, count + 1))
    store.close()
