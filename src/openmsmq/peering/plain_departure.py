"""Fast path for plain messages to other queue managers: those that fit into the window become packets in one step.

A message is plain if its packet is (`packet/plain_packets.c`), and its removal after the transfer has no consequences.
All others are handled by `sender`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from openmsmq.model.constants import Journal
from openmsmq.model.message import Message
from openmsmq.packet import UserMessage
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import OutgoingQueue
from openmsmq.queueing.storage import UNREADABLE
from openmsmq.record.layouts import READ
from openmsmq.record.message_record import decode_message

try:
    from openmsmq.packet import outgoing_packets, plain_packets
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        outgoing_packets = plain_packets = None

LARGEST = 1 << 18  # bytes of the messages that are read at once
MOST_OTHERS = 4096  # shapes of other messages that are remembered
_JOURNAL = int(Journal.JOURNAL)


class PlainPackets(NamedTuple):
    """Packets that can be sent. The messages are not locked yet.

    Attributes:
        keys: lookup identifiers of the messages.
        packets: their packets.
        recoverable: whether all messages are recoverable; otherwise all are express.
    """

    keys: list[int]
    packets: list[bytes]
    recoverable: bool


class _Template(NamedTuple):
    recoverable: bool
    packet: tuple[bytes, int]  # and the offset of its MessagePropertiesHeader


class PlainDeparture:
    """Makes packets of plain messages in outgoing queues. `pack` returns the packet of a message."""

    def __init__(self, manager: QueueManager, pack: Callable[[OutgoingQueue, Message], UserMessage]) -> None:
        self._manager, self._pack = manager, pack
        self._others: set[int] = set()  # hashes of shapes of messages that are not plain

    def packets(self, queue: OutgoingQueue, most: int) -> PlainPackets | None:
        """Return packets of the next messages of a queue, at most `most`; None if the first one is not plain, or none
        may be sent now."""
        if outgoing_packets is None:
            return None
        keys, records = self._manager.outgoing.heads(queue, 1, LARGEST)
        shapes = outgoing_packets.shapes(records, READ)
        if not shapes or hash(shapes[0]) in self._others:
            return None
        known = {shapes[0]: self._template(queue, keys[0], records[0])}
        first = known[shapes[0]]
        if first is None:
            if len(self._others) >= MOST_OTHERS:
                self._others.clear()
            self._others.add(hash(shapes[0]))
            return None
        several, read = self._manager.outgoing.heads(queue, most, LARGEST) if most > 1 else ([], [])
        if read:  # otherwise a later message cannot be read: the first one is sent alone
            keys, records, shapes = several, read, outgoing_packets.shapes(read, READ)
        templates: list[tuple[bytes, int]] = []
        for key, record, shape in zip(keys, records, shapes, strict=False):
            if shape not in known:
                known[shape] = self._template(queue, key, record)
            template = known[shape]
            if template is None or template.recoverable != first.recoverable:
                break
            templates.append(template.packet)
        packets = outgoing_packets.packets(records[: len(templates)], templates, READ)
        return PlainPackets(keys[: len(packets)], packets, first.recoverable)

    def _template(self, queue: OutgoingQueue, key: int, record: bytes) -> _Template | None:
        try:
            message = decode_message(record, key)
        except UNREADABLE:  # the ordinary path reports it
            return None
        if not self._manager.machine.has_identifier(message.source_machine_identifier):  # it is in transit
            return None
        if message.journaling_requested & _JOURNAL or message.privacy_level:
            return None
        packet = self._pack(queue, message)
        destination = packet.user.destination
        if destination is None or destination.is_order_queue:  # no SessionHeader may follow
            return None
        packed = packet.pack()
        properties = plain_packets.properties(packed)
        return None if properties < 0 else _Template(message.recoverable, (packed, properties))
