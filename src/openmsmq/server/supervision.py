"""Notifications to systemd (sd_notify(3)): ready, stopping, and keep-alives of the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

logger = logging.getLogger(__name__)

#: Exit code of a daemon whose store another one has taken over: EX_TEMPFAIL of sysexits.h. To start it again would be
#: wrong while the other one runs.
FENCED: Final = 75


class Supervision:
    """Notifies the supervisor through the socket that `environment` names (NOTIFY_SOCKET); does nothing without one. A
    failure is logged: the supervisor decides what a missing notification means."""

    def __init__(self, loop: asyncio.AbstractEventLoop, environment: Mapping[str, str] = os.environ) -> None:
        self._loop = loop
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._period = _watchdog_period(environment)
        self._timer: asyncio.TimerHandle | None = None

    def started(self) -> None:
        """Report that the daemon is ready. From now on, the event loop sends keep-alives, so that systemd detects a
        hanging loop."""
        self._tell("READY=1\nSTATUS=serving")
        self._feed()

    def stopping(self) -> None:
        """Report that the daemon is stopping. Keep-alives end, because the shutdown has its own time limit."""
        if self._timer is not None:
            self._timer.cancel()
        self._tell("STOPPING=1\nSTATUS=letting calls end")

    def _feed(self) -> None:
        if self._address and self._period:
            self._tell("WATCHDOG=1")
            self._timer = self._loop.call_later(self._period, self._feed)

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
                notifier.sendto(state.encode(), address)
        except OSError as error:
            logger.warning("cannot notify the supervisor through %s: %s", self._address, error)


def _watchdog_period(environment: Mapping[str, str]) -> float:
    """Return the seconds between keep-alives, half of the watchdog timeout (sd_watchdog_enabled(3)); 0 without a
    watchdog."""
    meant = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    microseconds = environment.get("WATCHDOG_USEC", "")
    return int(microseconds) / 2e6 if meant and microseconds.isdecimal() else 0.0
