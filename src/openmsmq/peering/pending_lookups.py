"""Messages that wait for a directory lookup: for the certificates of a sender, or for a queue that is not known here.

Later messages of the same connection wait, too, so that the order is kept. The window of the session limits their
number.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, NamedTuple

from openmsmq.packet import UserMessage
from openmsmq.peering.connection import PeerConnection
from openmsmq.transport import MessageReceived

logger = logging.getLogger(__name__)


class _Held(NamedTuple):
    messages: list[MessageReceived]
    task: asyncio.Task[None]  # referenced, so that the task is not garbage-collected


class MessagesWaiting(NamedTuple):
    """The messages from `first` on were not judged: that one waits for `look_up`."""

    first: int
    look_up: Awaitable[None]


Judge = Callable[[PeerConnection, Sequence[MessageReceived]], MessagesWaiting | None]


class PendingLookups:
    """Passes messages to `judge` in order; `look_up` returns an awaitable that must finish before, or None."""

    def __init__(
        self,
        look_up: Callable[[UserMessage], Awaitable[None] | None],
        judge: Judge,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._look_up: Final = look_up
        self._judge: Final = judge
        self._loop: Final = loop
        self._held: Final[dict[PeerConnection, _Held]] = {}

    def received(self, connection: PeerConnection, messages: list[MessageReceived]) -> None:
        """Process received messages."""
        held = self._held.get(connection)
        if held is not None:
            held.messages.extend(messages)
            return
        waiting = next(self._waiting_among(messages), None)
        look_ups = [] if waiting is None else [waiting.look_up]
        first = len(messages) if waiting is None else waiting.first
        waiting = self._judge(connection, messages[:first]) if first else None
        if waiting is not None:
            look_ups.append(waiting.look_up)
            first = waiting.first
        if look_ups:
            self._hold(connection, messages[first:], look_ups)

    def _waiting_among(self, messages: Sequence[MessageReceived]) -> Iterator[MessagesWaiting]:
        for index, received in enumerate(messages):
            look_up = None if received.is_plain else self._look_up(received.message)  # a plain one has no signature
            if look_up is not None:
                yield MessagesWaiting(index, look_up)

    def _hold(
        self, connection: PeerConnection, messages: list[MessageReceived], look_ups: Sequence[Awaitable[None]]
    ) -> None:  # fmt: skip
        self._held[connection] = _Held(messages, self._loop.create_task(self._wait(connection, look_ups)))

    async def _wait(self, connection: PeerConnection, look_ups: Sequence[Awaitable[None]]) -> None:
        try:
            for look_up in look_ups:
                await look_up
            self._resume(connection)
        except Exception:  # as in `arrival`: the connection is closed, and the peer resends its messages
            logger.exception("cannot check messages from %s; closing the connection", connection.address)
            self._held.pop(connection, None)
            connection.close()

    def _resume(self, connection: PeerConnection) -> None:
        messages = self._held.pop(connection).messages
        if connection.is_over:  # not acknowledged, so the peer resends them
            return
        waiting = self._judge(connection, messages[:1])
        if waiting is not None:
            self._hold(connection, messages, [waiting.look_up])
        elif messages[1:] and not connection.is_over:
            self.received(connection, messages[1:])
