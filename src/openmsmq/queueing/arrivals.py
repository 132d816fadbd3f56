"""Messages that other queue managers bring ([MS-MQQB] 3.1.5.8): each fate is one atomic change.

What else has to be remembered with a fate (that a message has come, how far a sequence is) joins the change as
`also`. Every method raises MessageStorageFailed, with nothing changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from openmsmq.model.admission import check_message
from openmsmq.model.constants import MessageClass
from openmsmq.model.message import Message
from openmsmq.model.names import SingleFormatName
from openmsmq.queueing.change_set import ChangeSet
from openmsmq.queueing.changes import Changes
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.records import final_ack_definition, route_definition
from openmsmq.queueing.storage import storing
from openmsmq.store import Operation, Put


class Arrivals:
    """Puts messages of other queue managers into queues, and answers for those that are refused."""

    def __init__(self, changes: Changes) -> None:
        self._changes: Final = changes

    def has_room(self, queue: Queue, message: Message) -> bool:
        """Whether the queue's own quota allows the message; see `may_store` for the machine's."""
        return queue.charged_bytes + message.size <= queue.quota_bytes

    def may_store(self, queue: Queue, message: Message) -> bool:
        """Whether disk and machine quota allow the message. If not, it is to come again ([MS-MQQB] 3.1.5.8.8)."""
        return not self._changes.throttled and self._changes.has_room(queue, message.size)

    def accept(
        self,
        queue: Queue,
        message: Message,
        also: Sequence[Operation] = (),
        final_ack: bytes = b"",
        route: bytes = b"",
    ) -> None:
        """The message has arrived in a queue of this machine, or in an outgoing one on its way. `final_ack` is owed
        when it leaves the queue, `route` is what the next packet has to say; see `records.final_ack_definition` and
        `records.route_definition`.

        Raises what `admission.check_message` raises, too.
        """
        check_message(message)
        with storing():
            change = ChangeSet(self._changes)
            self._changes.number(message, self._changes.clock())
            change.insert(queue, message, message.size)
            change.arrive(queue, message)
            change.also(also)
            if final_ack:
                change.also([Put(final_ack_definition(message.lookup_identifier), final_ack)])
            if route:
                change.also([Put(route_definition(message.lookup_identifier), route)])
            change.commit()

    def reject(
        self,
        message: Message,
        reason: MessageClass,
        also: Iterable[Operation] = (),
        final_ack: bytes = b"",
        dead_letter: bool = False,
    ) -> None:
        """The message is refused, and whoever asked for it is told why; `dead_letter` keeps a copy here."""
        with storing():
            change = ChangeSet(self._changes)
            change.reject(message, reason, final_ack)
            if dead_letter:
                change.dead_letter(message, reason)
            change.also(also)
            change.commit()

    def note(self, also: Iterable[Operation]) -> None:
        """Remember something without a message."""
        with storing():
            change = ChangeSet(self._changes)
            change.also(also)
            change.commit()

    def send(self, queue: Queue, message: Message) -> None:
        """The queue manager itself sends a message, to be numbered and stamped here."""
        with storing():
            change = ChangeSet(self._changes)
            change.post(queue, message)
            change.commit()

    def send_to(self, name: SingleFormatName, message: Message) -> None:
        """As `send`, to a queue by its name; discarded where the name leads to no queue that takes it."""
        with storing():
            change = ChangeSet(self._changes)
            change.post_to(name, message)
            change.commit()
