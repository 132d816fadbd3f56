"""An event loop in its own thread, for the proxies of a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

_SECONDS = 10


class LoopThread:
    """Runs coroutines; each must end in time."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_SECONDS)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
