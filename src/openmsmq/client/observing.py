"""Observer of sends and receives of this process, for tracing; none unless `openmsmq.tracing` is enabled."""

from __future__ import annotations

from typing import Protocol

from openmsmq.model.message import Message


class SendObservation(Protocol):
    """Observation of one send, from its start to its end."""

    @property
    def message(self) -> Message:
        """The message to send."""

    def end(self, error: BaseException | None) -> None:
        """Record the end of the send, and its error if it failed."""


class Observer(Protocol):
    """Observes sends and receives. `queue` is the name with which the queue was opened."""

    def sending(self, queue: str, message: Message) -> SendObservation: ...

    def received(self, queue: str, message: Message) -> None: ...


class Watch:
    """The observer of this process."""

    observer: Observer | None = None
