"""Reports of traced messages: their content ([MS-MQQB] 3.1.5.8.9, 3.1.7.1.7) and their delivery to the report queue.

A report is an express message for the public queue that the DebugHeader of the traced message names. The sender of a
packet can name any queue there, so the number of reports and of directory lookups is limited.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import UUID

from openmsmq.conversion.packets import message_of
from openmsmq.model import names
from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import MsmqError
from openmsmq.model.message import Message
from openmsmq.packet import UserMessage
from openmsmq.packet.headers import NO_GUID
from openmsmq.packet.message_packet import MessagePacket
from openmsmq.queueing.manager import QueueManager
from openmsmq.transport.rate import Rate

logger = logging.getLogger(__name__)

REPORTS_PER_SECOND = 1000
MOST_ASKED = 64  # concurrent directory lookups
MOST_WAITING = 100  # reports that wait for one lookup
UNKNOWN_FOR = 60_000  # milliseconds until an unknown queue is looked up again
MOST_UNKNOWN = 1000
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

#: Looks up a public queue in the directory and adds its location to the registry. Raises MsmqError.
Locate: TypeAlias = Callable[[names.PublicFormatName], Awaitable[object]]


def report_queue_of(packet: UserMessage) -> names.PublicFormatName | None:
    """Return the queue for reports of a packet; None if it is not traced. Reports and acknowledgments are never traced
    (deviation D-151)."""
    traced = packet.base.tracing and packet.debug is not None
    if not traced or packet.properties.message_class != MessageClass.NORMAL:
        return None
    assert packet.debug is not None
    return names.PublicFormatName(UUID(bytes_le=packet.debug.queue)) if packet.debug.queue else None


def label(packet: UserMessage, hops: int, seconds: int) -> str:
    """Return the label of both kinds of report. `seconds` is the time since 1970 UTC (deviation D-150)."""
    source = str(UUID(bytes_le=packet.user.source_queue_manager)).upper()
    at = datetime.fromtimestamp(seconds, UTC)
    hour, half = (at.hour + 11) % 12 + 1, "AM" if at.hour < 12 else "PM"
    date = f"{_DAYS[at.weekday()]},{_MONTHS[at.month - 1]} {at.day:02} {at.year % 100:02}"
    return (
        f"{source[:4]}:{packet.user.message_id:08X}:{hops:02X} received by {source}"
        f" at {hour:02}:{at.minute:02}:{at.second:02} {half} {date}"
    )


def received_body(packet: UserMessage) -> str:
    """Return the body of a report by the receiver of a packet."""
    destination = message_of(MessagePacket(packet), absolute=False).destination_queue_format_name
    return f"<MESSAGE ID>{packet.user.message_id:08X}</MESSAGE ID>\r\n<TARGET QUEUE>{destination}</TARGET QUEUE>\r\n"


def sent_body(packet: UserMessage, address: str) -> str:
    """Return the body of a report by the sender of a packet; `address` is the IP address to which it was sent. The
    specification has the blank in the last line."""
    hops = packet.user.routing_count
    return f"{received_body(packet)}<NEXT HOP>{address}</NEXT HOP>\r\n<HOP COUNT>{hops:02X} </HOP COUNT>\r\n"


class Reports:
    """Sends reports. Those for unknown queues are discarded."""

    def __init__(self, manager: QueueManager, locate: Locate | None, loop: asyncio.AbstractEventLoop) -> None:
        self._manager, self._locate, self._loop = manager, locate, loop
        self._rate = Rate(REPORTS_PER_SECOND)
        self._waiting: dict[names.PublicFormatName, list[Message]] = {}  # reports that wait for a directory lookup
        self._unknown: dict[names.PublicFormatName, float] = {}  # queue -> time until which it is not looked up again
        self._tasks: set[asyncio.Task[None]] = set()

    def received(self, packet: UserMessage) -> None:
        """Report a packet that was accepted for a queue here, or for routing; its hops are already counted."""
        queue = report_queue_of(packet)
        if queue is not None:
            passes = packet.user.queue_manager_address not in (NO_GUID, self._manager.machine.identifier)
            self._report(queue, packet, packet.user.routing_count + passes, received_body(packet))

    def sent(self, packet: UserMessage, address: str) -> None:
        """Report a packet that was sent to the queue manager at an IP address."""
        queue = report_queue_of(packet)
        if queue is not None:
            self._report(queue, packet, packet.user.routing_count, sent_body(packet, address))

    def stop(self) -> None:
        """Discard waiting reports."""
        for task in self._tasks:
            task.cancel()

    def _report(self, queue: names.PublicFormatName, packet: UserMessage, hops: int, body: str) -> None:
        now = self._now()
        if not self._rate.allows(now):
            logger.debug("discarding a report for %s: more than %d per second", queue, REPORTS_PER_SECOND)
            return
        report = Message(
            message_class=MessageClass.REPORT, label=label(packet, hops, self._manager.clock() // 1000),
            body=body.encode("utf-16-le"), destination_queue_format_name=str(queue),
        )  # fmt: skip
        registry = self._manager.registry
        if registry.local_queue(queue) is not None or registry.place_of(queue) is not None:
            self._send(queue, report)
        elif self._locate is not None and now >= self._unknown.get(queue, 0):
            self._ask(queue, report, self._locate)

    def _send(self, queue: names.PublicFormatName, report: Message) -> None:
        try:
            self._manager.arrivals.send_to(queue, report)
        except MsmqError as error:
            logger.warning("discarding a report for %s: %s", queue, error)

    def _ask(self, queue: names.PublicFormatName, report: Message, locate: Locate) -> None:
        waiting = self._waiting.get(queue)
        if waiting is not None:
            if len(waiting) < MOST_WAITING:
                waiting.append(report)
            else:
                logger.debug("discarding a report for %s: %d wait for the directory", queue, MOST_WAITING)
        elif len(self._waiting) < MOST_ASKED:
            self._waiting[queue] = [report]
            task = self._loop.create_task(self._find(queue, locate))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            logger.debug("discarding a report for %s: %d directory lookups are running", queue, MOST_ASKED)

    async def _find(self, queue: names.PublicFormatName, locate: Locate) -> None:
        failure = None
        try:
            await locate(queue)
        except MsmqError as error:
            failure = error
        finally:
            reports = self._waiting.pop(queue)
        if failure is None:
            for report in reports:
                self._send(queue, report)
            return
        logger.info("discarding %d reports for %s: %s", len(reports), queue, failure)
        if len(self._unknown) >= MOST_UNKNOWN:
            self._unknown.clear()
        self._unknown[queue] = self._now() + UNKNOWN_FOR

    def _now(self) -> float:
        return self._loop.time() * 1000
