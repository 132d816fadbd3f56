"""A queue that is read by two-phase receives: what RemoteRead ([MS-MQRR]) and qm2qm ([MS-MQQP]) have in common."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from openmsmq.client.calls import HARMLESS, RetryRule, Steps
from openmsmq.client.open_queue import OpenQueue, TakenMessage
from openmsmq.model.constants import Access, LookupAction, MessageSeekAction, ReceiveAction
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message

RR_NACK, RR_ACK = 1, 2
_RECEIVE_SEEK, _PEEK_SEEK = 0x40000020, 0x40000010  # LookupAction without its MessageSeekAction
# Possible outcomes of an RR_ACK whose response was lost.
_REMOVED = RetryRule(False, "the message may have been removed; otherwise the server puts it back")


def fate_of_end(acknowledgment: int) -> RetryRule:
    """Return the effect of a call that ends a receive if its response is lost."""
    return _REMOVED if acknowledgment == RR_ACK else HARMLESS


def demand_reader(interface: str, name: str, access: Access) -> None:
    """Raises MsmqError if an interface cannot open a queue for this access."""
    if access not in (Access.RECEIVE, Access.PEEK):
        raise MsmqError(
            HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE,
            f"{name}: {interface} opens queues for receive and peek, not for {access.name.lower()}",
        )


def locks(action: ReceiveAction | LookupAction) -> bool:
    """Whether a read is a receive, which locks its message."""
    return action is ReceiveAction.RECEIVE or (isinstance(action, LookupAction) and action.destructive)


@dataclass(slots=True)
class TwoPhaseQueue(OpenQueue):
    """An open queue: its pending requests, and the next request number, unique per queue ([MS-MQRR] 3.1.4.7)."""

    two_phases: ClassVar[bool] = True

    waiting: set[int] = field(default_factory=set, init=False)
    _requests: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False)

    def next_request(self) -> int:
        """Return a request number."""
        return next(self._requests) & 0xFFFFFFFF

    @abstractmethod
    def start(
        self, action: ReceiveAction | LookupAction, *, timeout: int = 0, cursor: int = 0, identifier: int = 0
    ) -> Steps[TakenMessage]:
        """Read a message. A received message is locked until `end`."""

    def peek(self, action: ReceiveAction, timeout: int, cursor: int = 0) -> Steps[Message]:
        return (yield from self.start(action, timeout=timeout, cursor=cursor)).message

    def take(self, timeout: int, cursor: int = 0) -> Steps[TakenMessage]:
        return self.start(ReceiveAction.RECEIVE, timeout=timeout, cursor=cursor)

    def peek_by_lookup_identifier(self, identifier: int, seek: MessageSeekAction) -> Steps[Message]:
        return (yield from self.start(LookupAction(_PEEK_SEEK | seek), identifier=identifier)).message

    def take_by_lookup_identifier(self, identifier: int, seek: MessageSeekAction) -> Steps[TakenMessage]:
        return self.start(LookupAction(_RECEIVE_SEEK | seek), identifier=identifier)
