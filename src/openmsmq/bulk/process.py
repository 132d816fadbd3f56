"""The daemon's Flight process: started, watched, and ended with the daemon."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from openmsmq.bulk.control import Control

logger = logging.getLogger(__name__)

_NEEDED = ("pyarrow", "numpy")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds before a process that died is started again; they double
_HEALTHY = 60.0  # seconds that a process has to run, for the next pause to be the first again
_START = 60.0  # seconds that it may take to start
_END = 5.0  # seconds that it may take to end


@dataclass(frozen=True, slots=True)
class FlightAddress:
    """Where to serve, and with which certificate (PEM files, empty for plain text)."""

    host: str
    port: int
    certificate: str = ""
    key: str = ""


class FlightProcess:
    """Serves Arrow Flight beside the event loop; it is restarted when it ends on the same port."""

    def __init__(self, control: Control, endpoint: FlightAddress) -> None:
        self._control = control
        self._endpoint = endpoint
        self._watch: asyncio.Task[None] | None = None
        self._tidying: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._serving: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Raises OSError when it does not come up; the message says why."""
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise OSError(f"Arrow Flight needs {' and '.join(missing)}: pip install 'openmsmq[flight]'")
        serving = await self._launch()
        self._watch = asyncio.create_task(self._keep(serving))
        self._tidying = asyncio.create_task(self._control.drop_abandoned())

    async def _launch(self) -> asyncio.Task[None]:
        ours, theirs = socket.socketpair()
        with theirs:
            command = (sys.executable, "-m", "openmsmq.bulk.flight_server", str(theirs.fileno()))
            self._process = process = await asyncio.create_subprocess_exec(
                *command, json.dumps(asdict(self._endpoint)),
                stdout=asyncio.subprocess.PIPE, pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        self._serving = serving = asyncio.create_task(self._control.serve(ours))
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), _START)
        except TimeoutError:
            process.kill()
            line = b""
        if not line:
            code = await process.wait()
            await serving
            where = f"{self._endpoint.host}:{self._endpoint.port}"
            raise OSError(f"Arrow Flight on {where} did not start; its process ended with {code}")
        self.port = int(line)
        self._endpoint = FlightAddress(self._endpoint.host, self.port, self._endpoint.certificate, self._endpoint.key)
        return serving

    async def _keep(self, serving: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        while True:
            started = loop.time()
            await serving
            code = await self._end()
            if loop.time() - started >= _HEALTHY:
                pause = _FIRST_PAUSE
            logger.error(
                "the Arrow Flight process %s; its streams and uploads were cut off and can be repeated; "
                "it is started again in %.1f s", _described(code), pause,
            )  # fmt: skip
            while True:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                try:
                    serving = await self._launch()
                    break
                except OSError as error:
                    logger.error("%s; next try in %.1f s", error, pause)

    async def _end(self) -> int:
        """The exit code of the process, whose connection has ended."""
        assert self._process is not None
        try:
            return await asyncio.wait_for(self._process.wait(), _END)
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()

    async def stop(self) -> None:
        """Its streams end; a claim stands, and a stage that is not complete is dropped."""
        for task in (self._watch, self._tidying, self._serving):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        if self._process is not None:
            await self._end()


def _described(code: int) -> str:
    """How a process ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
