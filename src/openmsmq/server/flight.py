"""The Flight process of the daemon, and the removal of stages whose writers have disconnected."""

from __future__ import annotations

import asyncio
from typing import Final

from openmsmq.gateways.flight import Control
from openmsmq.processes.child import ChildProcess, Program
from openmsmq.server.background import start_background_task
from openmsmq.server.calls import Calls
from openmsmq.server.context import DaemonContext

_PROGRAM: Final = Program(
    "Arrow Flight", "openmsmq.flight.server", ("pyarrow", "numpy"), "flight",
    "its streams and uploads were cut off and can be repeated",
)  # fmt: skip


class FlightProcess:
    """Serves Arrow Flight in a child process; see `DaemonPart`."""

    def __init__(self, context: DaemonContext, calls: Calls) -> None:
        self._configuration: Final = context.configuration
        self._ports: Final = context.ports
        self._control: Final = Control(
            context.manager, context.store, calls.committer.when_durable, calls.users,
            accepts_anonymous=context.configuration.accepts_anonymous,
            is_administrator=calls.environment.is_administrator,
            stage_time_limit=context.configuration.stage_time_limit, logins=calls.logins,
        )  # fmt: skip
        self._process: ChildProcess | None = None
        self._dropping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process. Raises OSError."""
        configuration = self._configuration
        certificate, key = (str(path or "") for path in (configuration.flight_certificate, configuration.flight_key))
        host = f"[{configuration.listen}]" if ":" in configuration.listen else configuration.listen
        self._process = ChildProcess(
            _PROGRAM, self._control.serve, host, self._ports.number("flight_port"), certificate=certificate, key=key,
            log_level=configuration.log_level, log_format=configuration.log_format,
            arrow_port=self._arrow_port(), arrow_port_is_given=configuration.arrow_port is not None,
        )  # fmt: skip
        await self._process.start()
        self._dropping = start_background_task("dropping abandoned stages", self._control.drop_abandoned())
        self._ports.endpoints["flight"] = configuration.listen, self._process.port

    def _arrow_port(self) -> int:
        configuration = self._configuration
        if configuration.arrow_port is None and configuration.flight_port == 0:
            return 0
        return self._ports.number("arrow_port")

    async def stop(self, grace: float) -> None:
        if self._dropping is not None:
            self._dropping.cancel()
        if self._process is not None:
            await self._process.stop()
