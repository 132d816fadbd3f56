"""Messages that arrive from other queue managers ([MS-MQQB] 3.1.5.8); those that arrive together are one atomic change.

Other state to be stored with it (which messages have arrived, the position of a sequence) joins the change as `also`.
"""

from __future__ import annotations

from collections.abc import Iterable
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


class Arriving:
    """Messages that one read from a connection delivered. Nothing changes before `commit`."""

    def __init__(self, changes: Changes, charged_to: str) -> None:
        self._changes: Final = changes
        self._change: Final = ChangeSet(changes, charged_to)
        self.charged_to: Final = charged_to

    def has_room(self, queue: Queue, size: int) -> bool:
        """Whether the queue's own quota allows a message of `size` bytes; see `may_store` for the machine's."""
        return queue.charged_bytes + self._change.added_to(queue) + size <= queue.quota_bytes

    def may_store(self, queue: Queue, size: int) -> bool:
        """Whether disk and machine quota allow a message of `size` bytes. If not, the peer must resend it ([MS-MQQB]
        3.1.5.8.8)."""
        return not self._changes.throttled and self._change.has_room(queue, size)

    def accept(self, queue: Queue, message: Message, size: int, final_ack: bytes = b"", route: bytes = b"") -> None:
        """Add a message of `size` bytes that arrived in a queue of this machine, or in an outgoing queue if it is in
        transit. `final_ack` describes the final acknowledgment to send when it leaves the queue, `route` the routing
        headers of the next packet; see `records.final_ack_definition` and `records.route_definition`.

        Raises what `admission.check_message` raises, and MessageStorageFailed.
        """
        check_message(message, size=size)
        change = self._change
        with storing():
            self._changes.number(message, self._changes.clock())
        change.insert(queue, message, size)
        change.arrive(queue, message)
        if final_ack:
            change.also([Put(final_ack_definition(message.lookup_identifier), final_ack)])
        if route:
            change.also([Put(route_definition(message.lookup_identifier), route)])

    def reject(self, message: Message, reason: MessageClass, final_ack: bytes, dead_letter: bool) -> None:
        """Refuse a message and send the negative acknowledgments that it requests; with `dead_letter`, keep a copy in
        the dead-letter queue here."""
        self._change.reject(message, reason, final_ack)
        if dead_letter:
            self._change.dead_letter(message, reason)

    def acknowledge_finally(self, reason: MessageClass, final_ack: bytes) -> None:
        """Send the final acknowledgment of a message that was refused before."""
        self._change.acknowledge_finally(reason, final_ack)

    def commit(self, also: Iterable[Operation]) -> None:
        """Write and apply the change. Raises MessageStorageFailed, with nothing changed."""
        with storing():
            self._change.also(also)
            self._change.commit()


class Arrivals:
    """Messages that the queue manager accepts from peers or sends on its own account. Every method raises
    MessageStorageFailed, with nothing changed."""

    def __init__(self, changes: Changes) -> None:
        self._changes: Final = changes

    def begin(self, charged_to: str = "") -> Arriving:
        """Begin a change for messages that arrived together. Outgoing queues for their acknowledgments count against
        the host `charged_to`."""
        return Arriving(self._changes, charged_to)

    def note(self, also: Iterable[Operation]) -> None:
        """Store operations that belong to no message."""
        with storing():
            change = ChangeSet(self._changes)
            change.also(also)
            change.commit()

    def send(self, queue: Queue, message: Message) -> None:
        """Number and stamp a message of the queue manager itself, and put it into a queue."""
        with storing():
            change = ChangeSet(self._changes)
            change.post(queue, message)
            change.commit()

    def send_to(self, name: SingleFormatName, message: Message) -> None:
        """Send to a queue by its name; discard the message if the name leads to no queue that accepts it."""
        with storing():
            change = ChangeSet(self._changes)
            change.post_to(name, message)
            change.commit()
