"""Child processes of the daemon."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from openmsmq.processes.child import ChildProcess, Program, _described

PATIENCE = 5.0  # seconds; the process ends at once
SERVING = """
import socket, sys
connection = socket.socket(fileno=int(sys.argv[1]))
sys.stdin.readline()
print(4711, flush=True)
connection.recv(1)
"""


async def _until_closed(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    with connection:
        await loop.sock_recv(connection, 1)


def test_a_daemon_that_stops_while_a_process_comes_up_again_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stand_in.py").write_text(SERVING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = ChildProcess(Program("stand-in", "stand_in", (), "none", "nobody is cut off"), _until_closed, "here", 0)

    async def main() -> None:
        await child.start()
        assert child.port == 4711
        readline = asyncio.StreamReader.readline
        came = asyncio.Event()

        async def observed(stream: asyncio.StreamReader) -> bytes:
            line = await readline(stream)
            came.set()  # the waiting test stops the daemon in the same loop iteration
            return line

        monkeypatch.setattr(asyncio.StreamReader, "readline", observed)
        assert child._process is not None
        child._process.kill()
        await came.wait()
        stopping = asyncio.create_task(child.stop())
        done, _ = await asyncio.wait([stopping], timeout=PATIENCE)
        assert done, "what watches over the process has missed that it was cancelled"

    asyncio.run(main())


ENDING = """
import signal, socket, sys
from pathlib import Path
connection = socket.socket(fileno=int(sys.argv[1]))
def terminate(number, frame):
    Path({terminated!r}).touch()
    if {obeys}:
        sys.exit()
signal.signal(signal.SIGTERM, terminate)
sys.stdin.readline()
print(4711, flush=True)
connection.recv(1)
"""


@pytest.mark.parametrize(("grace", "obeys"), [(0.0, True), (PATIENCE, True), (0.3, False)])
def test_a_process_that_stops_has_its_grace_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grace: float, obeys: bool
) -> None:
    """Without one, it gets no signal, only its channel is closed. So it is if the process ignores the signal."""
    terminated = tmp_path / "terminated"
    (tmp_path / "ending.py").write_text(ENDING.format(terminated=str(terminated), obeys=obeys))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = ChildProcess(Program("ending", "ending", (), "none", "nobody is cut off"), _until_closed, "here", 0)

    async def main() -> None:
        await child.start()
        process = child._process
        assert process is not None
        began = asyncio.get_running_loop().time()
        await child.stop(grace)
        took = asyncio.get_running_loop().time() - began
        assert terminated.exists() == (grace > 0)
        assert took >= grace if grace and not obeys else took < PATIENCE
        if grace and obeys:
            assert process.returncode == 0
        async with asyncio.timeout(PATIENCE):
            await process.wait()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("code", "said"),
    [(0, "ended with exit code 0"), (3, "ended with exit code 3"), (-9, "was ended by SIGKILL"),
     (-4711, "was ended by signal 4711")],
)  # fmt: skip
def test_the_log_says_how_a_process_ended(code: int, said: str) -> None:
    assert _described(code) == said


def test_an_interpreter_that_cannot_be_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    child = ChildProcess(Program("stand-in", "stand_in", (), "none", "nobody is cut off"), _until_closed, "here", 0)
    with pytest.raises(OSError, match="stand-in: /nonexistent/python cannot be run: No such file or directory"):
        asyncio.run(child.start())


class Unserved(ChildProcess):
    """Starts, but serving it fails."""

    starts = 0

    async def _launch(self) -> asyncio.Task[None]:
        async def serve() -> None:
            raise ValueError("a defect")

        self.starts += 1
        self._serving = asyncio.create_task(serve())
        return self._serving

    async def _end(self) -> int:
        return 1


def test_a_process_is_restarted_even_if_serving_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        child = Unserved(Program("unserved", "unserved", (), "none", "nobody is cut off"), _until_closed, "here", 0)
        again = asyncio.Event()
        sleep = asyncio.sleep

        async def pause(seconds: float) -> None:
            if child.starts == 2:
                again.set()
            await sleep(0)

        monkeypatch.setattr(asyncio, "sleep", pause)
        await child.start()
        await asyncio.wait_for(again.wait(), PATIENCE)
        await child.stop()

    asyncio.run(main())


class Unlucky(ChildProcess):
    """Starts successfully only if the number of the start is in `served`, with the seconds until the process ends."""

    served: dict[int, float]
    now = 0.0
    starts = 0

    async def _launch(self) -> asyncio.Task[None]:
        self.starts += 1
        if self.starts not in self.served:
            raise OSError("no luck")

        async def serve() -> None:
            self.now += self.served[self.starts]

        return asyncio.create_task(serve())

    async def _end(self) -> int:
        return 1


class Enough(BaseException):
    """Ends the watch."""


@pytest.mark.parametrize(
    ("served", "pauses"),
    [
        ({1: 0.0}, [0.5, 1, 2, 4, 8, 16, 30, 30]),
        ({1: 0.0, 4: 59.9, 5: 60.0}, [0.5, 1, 2, 4, 0.5, 1, 2]),
        ({1: 60.0, 2: 0.0, 3: 61.0}, [0.5, 1, 0.5, 1]),
    ],
)
def test_the_pause_before_a_restart_doubles_until_the_process_has_served_for_a_minute(
    monkeypatch: pytest.MonkeyPatch, served: dict[int, float], pauses: list[float]
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == len(pauses):
            raise Enough

    async def main() -> None:
        child = Unlucky(Program("unlucky", "unlucky", (), "none", "nobody is cut off"), _until_closed, "here", 0)
        child.served = served
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: child.now)
        monkeypatch.setattr(asyncio, "sleep", sleep)
        with pytest.raises(Enough):
            await child._keep(await child._launch())

    asyncio.run(main())
    assert slept == pauses
