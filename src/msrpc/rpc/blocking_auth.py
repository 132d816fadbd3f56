"""Blocking queries of logins to other servers, run in a few threads, each with a time limit."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msrpc.rpc.security import Question

log = logging.getLogger(__name__)

AT_A_TIME: Final = 8
SECONDS: Final = 10.0


class _Asked:
    """One query, and the callback for its result."""

    def __init__(self, question: Question, then: Callable[[], object]) -> None:
        self.question = question
        self.then = then
        self.over = False
        self.timer: asyncio.TimerHandle | None = None


class AuthExecutor:
    """Runs queries for one event loop. Its threads do not delay the end of the process: a query may block for
    minutes."""

    def __init__(self, at_a_time: int = AT_A_TIME, seconds: float = SECONDS) -> None:
        self._at_a_time: Final = at_a_time
        self._seconds: Final = seconds
        self._waiting: deque[_Asked] = deque()
        self._running = 0

    def ask(self, question: Question, then: Callable[[], object]) -> None:
        """Call `question` in a thread, then `then` in the event loop: when the query has ended, or after the time
        limit, even if the query has not started."""
        asked = _Asked(question, then)
        asked.timer = asyncio.get_running_loop().call_later(self._seconds, self._go_on, asked)
        self._waiting.append(asked)
        self._start()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._running < self._at_a_time:
            asked = self._waiting.popleft()
            if not asked.over:
                self._running += 1
                threading.Thread(target=self._run, args=(loop, asked), name="login", daemon=True).start()

    def _run(self, loop: asyncio.AbstractEventLoop, asked: _Asked) -> None:
        try:
            asked.question()
        except Exception:  # an error in the library: the login continues without an answer, and is refused
            log.exception("a query for a login failed")
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(self._ended, asked)

    def _ended(self, asked: _Asked) -> None:
        self._running -= 1
        self._go_on(asked)
        self._start()

    def _go_on(self, asked: _Asked) -> None:
        if not asked.over:
            asked.over = True
            if asked.timer is not None:
                asked.timer.cancel()
            asked.then()
