"""Pool of connections to the daemon: a client of the queue manager per ticket and peer."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from msrpc.rpc.tickets import Ticket
from openmsmq.client.pool import Pool
from openmsmq.client.sync import QueueManager

_MOST: Final = 64
_IDLE_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Kept:
    manager: QueueManager
    users: int = 0
    left: float = 0.0


class Managers:
    """Clients of the queue manager by ticket and peer. Thread-safe; several threads may use one client."""

    def __init__(self, socket_path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path: Final = socket_path
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._kept: Final[OrderedDict[Ticket, _Kept]] = OrderedDict()

    @contextmanager
    def of(self, ticket: str, peer: str) -> Iterator[QueueManager]:
        """Yield a client of the queue manager for the user of a ticket. It connects with the first call."""
        key = Ticket(ticket, peer)
        with self._lock:
            kept = self._kept.pop(key, None) or _Kept(self._connected(key))
            self._kept[key] = kept
            kept.users += 1
            over = self._too_many()
        for manager in over:
            manager.close()
        try:
            yield kept.manager
        finally:
            with self._lock:
                kept.users -= 1
                kept.left = self._clock()

    def _connected(self, ticket: Ticket) -> QueueManager:
        pool = Pool(self._path, 0, {"credentials": ticket})
        return QueueManager(pool, pool)

    def _too_many(self) -> list[QueueManager]:
        """Remove and return idle clients and the oldest ones beyond the limit."""
        now = self._clock()
        unused = [key for key, kept in self._kept.items() if not kept.users]
        stale = [key for key in unused if now - self._kept[key].left > _IDLE_SECONDS]
        surplus = [key for key in unused if key not in stale][: max(0, len(self._kept) - len(stale) - _MOST)]
        return [self._kept.pop(key).manager for key in (*stale, *surplus)]
