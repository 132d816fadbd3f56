"""A child process of the daemon: started, supervised, restarted after a crash, and stopped with the daemon."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds before a restart; doubles each time
_HEALTHY = 60.0  # seconds after which the next pause is the first one again
_START = 60.0  # maximum seconds for the start
_END = 5.0  # maximum seconds for the exit


@dataclass(frozen=True, slots=True)
class Program:
    """Program of a child process.

    Attributes:
        name: name for log and errors.
        module: module to run. Its argument is the file descriptor of its end of the channel; it reads its settings from
            standard input as a line of JSON, and prints its port.
        needed: required packages, which are in the extra `extra` of this package.
        cut_off: consequence of a crash for its clients, for the log.
    """

    name: str
    module: str
    needed: tuple[str, ...]
    extra: str
    cut_off: str


class ChildProcess:
    """Supervises a child process; restarts it on the same port when it ends."""

    def __init__(
        self,
        program: Program,
        serve: Callable[[socket.socket], Coroutine[Any, Any, None]],
        host: str,
        port: int,
        **settings: Any,
    ) -> None:
        """`serve` answers the requests of the process until the channel is closed."""
        self._program: Final = program
        self._serve: Final = serve
        self._host = host
        self.port = port
        self._settings = settings
        self._watch: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process. Raises OSError with the reason if that fails."""
        program = self._program
        missing = [name for name in program.needed if find_spec(name) is None]
        if missing:
            raise OSError(f"{program.name} needs {' and '.join(missing)}: pip install 'openmsmq[{program.extra}]'")
        serving = await self._launch()
        self._watch = asyncio.create_task(self._keep(serving))

    async def _launch(self) -> asyncio.Task[None]:
        ours, theirs = socket.socketpair()
        with theirs:
            settings = json.dumps({"host": self._host, "port": self.port, **self._settings})
            command = (sys.executable, "-m", self._program.module, str(theirs.fileno()))
            try:
                self._process = process = await asyncio.create_subprocess_exec(
                    *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                    pass_fds=[theirs.fileno()], start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                ours.close()
                reason = f"{self._program.name}: {sys.executable} cannot be run: {error.strerror}"
                raise OSError(error.errno, reason) from error
            # Settings are not passed as arguments, which every user of the machine could read.
            assert process.stdin is not None
            process.stdin.write(settings.encode() + b"\n")
            process.stdin.close()
        self._serving = serving = asyncio.create_task(self._serve(ours))
        assert process.stdout is not None
        try:
            # Not `wait_for`: in Python 3.11 it can lose a cancellation that arrives together with the line.
            async with asyncio.timeout(_START):
                line = await process.stdout.readline()
        except TimeoutError:
            process.kill()
            line = b""
        if not line:
            code = await process.wait()
            await serving
            where = f"{self._host}:{self.port}"
            raise OSError(f"{self._program.name} on {where} did not start; its process ended with {code}")
        self.port = int(line)
        return serving

    async def _keep(self, serving: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        while True:
            started = loop.time()
            await asyncio.wait([serving])  # unlike `await serving`, canceling the watch does not cancel `serving`
            code = await self._end()
            if loop.time() - started >= _HEALTHY:
                pause = _FIRST_PAUSE
            logger.error(
                "the %s process %s; %s; restarting it in %.1f s",
                self._program.name, _described(code), self._program.cut_off, pause,
            )  # fmt: skip
            while True:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                try:
                    serving = await self._launch()
                    break
                except OSError as error:
                    logger.error("%s; next attempt in %.1f s", error, pause)

    async def _end(self) -> int:
        """Wait for the process to end, after its connection was closed; kill it after `_END`. Returns the exit code."""
        assert self._process is not None
        try:
            async with asyncio.timeout(_END):
                return await self._process.wait()
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()

    async def stop(self, grace: float = 0.0) -> None:
        """Stop the process. With a grace time (seconds), it gets SIGTERM first and can finish its work; clients still
        connected afterwards are disconnected."""
        await _cancelled(self._watch)
        if grace and self._process is not None and self._process.returncode is None:
            self._process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._process.wait()
        await _cancelled(self._serving)
        if self._process is not None:
            await self._end()


async def _cancelled(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


def _described(code: int) -> str:
    """Return a text for an exit code."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
