"""Observers of sends and receives of this process, for traces: none, unless `openmsmq.tracing` was switched on."""

from __future__ import annotations

from typing import Protocol

from openmsmq.model.message import Message


class SendObservation(Protocol):
    """A send that is under way."""

    @property
    def message(self) -> Message:
        """The message to send."""

    def end(self, error: BaseException | None) -> None:
        """It has ended, with an error or without one."""


class Observer(Protocol):
    """Both get the name by which the queue was opened."""

    def sending(self, queue: str, message: Message) -> SendObservation: ...

    def received(self, queue: str, message: Message) -> None: ...


class Watch:
    """The observer of this process."""

    observer: Observer | None = None
