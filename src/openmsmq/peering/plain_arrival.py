"""Fast path for plain messages from other queue managers: those of one read become records in one step.

A message is plain if its packet is (`packet/plain_packets.c`), and its arrival has no consequences but its place in a
queue and in the history of duplicates. All others, and all that would be refused, are handled by `arrival`.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from openmsmq.packet import UserMessage
from openmsmq.packet.reader import Reader
from openmsmq.peering.arrival import Arrival, ArrivalBatch, ArrivalOrigin
from openmsmq.peering.memory import Duplicates
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.sending import MessageBatch
from openmsmq.record.compact_record import compact_rows
from openmsmq.record.layouts import WRITTEN
from openmsmq.record.message_record import encode_message
from openmsmq.store import MessageRows

try:
    from openmsmq.packet import plain_packets
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        plain_packets = None

logger = logging.getLogger(__name__)

LEAST = 3  # messages; fewer are not worth a form


class PlainForm(NamedTuple):
    """The common properties of packets with the same envelope.

    Attributes:
        queue: their destination.
        recoverable: whether they are recoverable.
        row: their record without body, extension and label, and the bytes that it counts for in quotas.
    """

    queue: Queue
    recoverable: bool
    row: tuple[bytes, int]


class PlainArrival:
    """Accepts plain messages for queues of this machine."""

    def __init__(
        self, arrival: Arrival, manager: QueueManager, duplicates: Duplicates, monotonic: Callable[[], float]
    ) -> None:
        """`monotonic` returns milliseconds of a monotonic clock."""
        self._arrival, self._manager, self._duplicates = arrival, manager, duplicates
        self._monotonic = monotonic

    def take(self, packets: list[bytes], origin: ArrivalOrigin) -> int:
        """Accept plain messages at the beginning of packets that arrived together, all of them express or all
        recoverable. Returns their number; 0 if one of them is a duplicate or cannot be stored, with nothing changed."""
        if plain_packets is None or len(packets) < LEAST:
            return 0
        try:
            forms = self._forms(packets, origin)
        except Exception:  # the ordinary path finds the message that causes it
            logger.warning(
                "%d messages from %s caused an internal error; each is checked alone",
                len(packets), origin.address, exc_info=True,
            )  # fmt: skip
            return 0
        return self._store(packets[: len(forms)], forms) if len(forms) >= LEAST else 0

    def _forms(self, packets: list[bytes], origin: ArrivalOrigin) -> list[PlainForm]:
        batch = self._arrival.begin(origin)
        known: dict[bytes, PlainForm | None] = {}
        forms: list[PlainForm] = []
        for packet, envelope in zip(packets, plain_packets.envelopes(packets), strict=False):
            if envelope not in known:
                known[envelope] = self._form(packet, batch)
            form = known[envelope]
            if form is None or form.recoverable != (forms[0] if forms else form).recoverable:
                break
            forms.append(form)
        return forms

    def _form(self, packet: bytes, batch: ArrivalBatch) -> PlainForm | None:
        target = self._arrival.plain_target(UserMessage.unpack(Reader(packet)), batch)
        if target is None:
            return None
        queue, message = target
        message.body, message.extension, message.label = b"", b"", ""
        return PlainForm(queue, message.recoverable, (encode_message(message), message.size))

    def _store(self, packets: list[bytes], forms: Sequence[PlainForm]) -> int:
        manager, duplicates, now = self._manager, self._duplicates, self._monotonic()
        records, bounds, keys, words, charged, identifiers = plain_packets.records(
            packets, [form.row for form in forms], WRITTEN, manager.changes.sequence + 1, manager.clock() // 1000
        )
        recoverable, count = forms[0].recoverable, len(keys)
        if not count or not duplicates.add_all(identifiers, now):
            return 0
        is_stored = False
        try:
            sizes = array("I")
            if recoverable:
                records, sizes, bounds = compact_rows(records, bounds)
            queues = [form.queue for form in forms[:count]]
            numbers = array("I", [queue.number for queue in queues])
            rows = MessageRows(numbers, records, sizes, bounds, keys, words)
            plan = duplicates.plan(identifiers if recoverable else [], now)
            is_stored = manager.sending.enqueue_batch(MessageBatch(queues, rows, charged, recoverable), plan.operations)
            if is_stored:
                duplicates.stored(plan)
        finally:
            if not is_stored:
                for identifier in identifiers:
                    duplicates.forget(identifier)
        return count if is_stored else 0
