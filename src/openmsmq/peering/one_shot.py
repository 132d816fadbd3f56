"""A session without a queue manager: to deliver one message, or to check whether a session can be opened.

A client without a queue manager cannot store a message until it is delivered, and cannot receive acknowledgments later.
It only learns what the other side reports in this session.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from uuid import UUID

from openmsmq.conversion.packets import user_message_of
from openmsmq.model import names
from openmsmq.model.constants import Delivery, MessageClass
from openmsmq.model.message import Message
from openmsmq.model.text import reason_of
from openmsmq.packet import BadPacket
from openmsmq.packet.internal import FinalAckBody, OrderAckBody
from openmsmq.peering.pinging import PORT as PING_PORT
from openmsmq.peering.pinging import ask
from openmsmq.peering.resolving import NOT_REACHED
from openmsmq.transport import (
    Acknowledged,
    Closed,
    Established,
    MessageReceived,
    MqqbSession,
    PeerIdentified,
    SessionSettings,
)

PORT = 1801
PING_TIMEOUT = 1.0  # seconds, 3.1.2.9
SAVED, ACCEPTED = "saved", "accepted"


class SendProgress(Enum):
    """Steps of a session, in order."""

    RESOLVE = "resolve"
    CONNECT = "connect"
    ESTABLISH = "establish"
    SEND = "send"
    DONE = "done"


@dataclass(slots=True)
class SendReport:
    """Outcome of a send. `failure` is empty for success; otherwise it describes the failure, which happened at `step`.

    Attributes:
        address: address that answered.
        peer: identifier of the queue manager at the address, 16 bytes.
        identifier: identifier of the message, as text.
        fate: `saved` (stored on the disk of the other queue manager) or `accepted` (by the transactional queue).
    """

    step: SendProgress = SendProgress.RESOLVE
    failure: str = ""
    address: str = ""
    peer: bytes = b""
    identifier: str = ""
    fate: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def peer_text(self) -> str:
        return str(UUID(bytes_le=self.peer)) if self.peer else ""


async def deliver(
    name: names.DirectFormatName,
    message: Message | None,
    *,
    port: int = PORT,
    timeout: float = 30,
    transactional: bool = False,
) -> SendReport:
    """Open a session with the host of a direct format name and deliver a message; with None, only try to open the
    session.

    Messages that are not transactional are sent as recoverable, because only those are acknowledged individually.
    """
    report = SendReport()
    try:
        async with asyncio.timeout(timeout):
            await _deliver(name, message, port, transactional, report)
    except TimeoutError:
        report.failure = {
            SendProgress.RESOLVE: f"the name {name.host} was not resolved",
            SendProgress.CONNECT: f"no answer from {report.address} port {port}: a firewall, or no machine "
            "of this address",
            SendProgress.ESTABLISH: f"{report.address} port {port} accepts connections and does not answer as a "
            "queue manager",
            SendProgress.SEND: "the other queue manager has not acknowledged the message: it may have it, or not",
        }.get(report.step, "it took too long") + f" (within {timeout:g} s)"
    return report


async def _deliver(
    name: names.DirectFormatName, message: Message | None, port: int, transactional: bool, report: SendReport
) -> None:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name.host, port, type=1)
    except NOT_REACHED as error:
        report.failure = f"the name {name.host} does not resolve: {reason_of(error)}"
        return
    failures = []
    for *_, address in found:
        report.step, report.address = SendProgress.CONNECT, str(address[0])
        try:
            reader, writer = await asyncio.open_connection(*address[:2])
        except OSError as error:
            failures.append(f"{address[0]} port {port}: {reason_of(error)}")
            continue
        try:
            report.step = SendProgress.ESTABLISH
            await _converse(reader, writer, name, message, transactional, report)
        except OSError as error:
            report.failure = f"the connection with {address[0]} port {port} broke: {reason_of(error)}"
            if report.step is SendProgress.SEND:
                report.failure += "; the other queue manager may have the message, or not"
        finally:
            writer.close()
        return
    report.failure = "; ".join(dict.fromkeys(failures)) + ". Is Message Queuing running there, and the port open?"


async def _converse(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    name: names.DirectFormatName,
    message: Message | None,
    transactional: bool,
    report: SendReport,
) -> None:
    loop = asyncio.get_running_loop()
    session: MqqbSession[int] = MqqbSession.initiator(SessionSettings(os.urandom(16)), _now(loop))
    own = session._settings.identifier
    pending: asyncio.Task[bytes] | None = None
    while not report.failure and report.step is not SendProgress.DONE:
        writer.write(session.data_to_send())
        await writer.drain()
        deadline = session.next_deadline
        pending = pending or asyncio.ensure_future(reader.read(65536))
        wait = None if deadline is None else max(deadline - _now(loop), 0) / 1000 + 0.001
        await asyncio.wait([pending], timeout=wait)
        now = _now(loop)
        if pending.done():
            data, pending = pending.result(), None
            events = session.receive(data, now) if data else session.disconnected()
        else:
            events = session.tick(now)
        for event in events:
            _note(event, report, message, transactional)
            if isinstance(event, Established):
                if message is None:
                    report.step = SendProgress.DONE
                else:
                    report.step = SendProgress.SEND
                    _send(session, own, name, message, transactional, report, now)
            elif isinstance(event, MessageReceived) and event.receipt is not None:
                session.durable([event.receipt], now)
    writer.write(session.data_to_send())
    if pending is not None:
        pending.cancel()


def _now(loop: asyncio.AbstractEventLoop) -> float:
    """Return the time in milliseconds of the session clock."""
    return loop.time() * 1000


def _send(
    session: MqqbSession[int],
    own: bytes,
    name: names.DirectFormatName,
    message: Message,
    transactional: bool,
    report: SendReport,
    now: float,
) -> None:
    message.identifier = own + (1).to_bytes(4, "little")
    message.source_machine_identifier = own
    message.sent_time = int(time.time())
    message.destination_queue_format_name = str(name)
    message.delivery_guarantee = Delivery.RECOVERABLE
    if transactional:
        message.transaction_identifier, message.priority = message.identifier, 0
        message.first_in_transaction = message.last_in_transaction = True
    packet = user_message_of(message)
    if packet.transaction is not None:
        packet.transaction.sequence_timestamp, packet.transaction.sequence_ordinal = message.sent_time, 1
        packet.transaction.sequence_number = 1
    report.identifier = message.id
    session.send(packet, 1, now)


def _note(event: Any, report: SendReport, message: Message | None, transactional: bool) -> None:
    match event:
        case PeerIdentified(peer):
            report.peer = peer
        case Acknowledged() if not transactional:
            report.fate, report.step = SAVED, SendProgress.DONE
        case MessageReceived(message=received):
            _read_acknowledgment(received.properties.message_class, received.properties.body, report, message)
        case Closed(reason, detail, _):
            if report.step is not SendProgress.DONE:
                report.failure = f"the session ended: {reason.value}" + (f" ({detail})" if detail else "")


def _read_acknowledgment(message_class: int, body: bytes, report: SendReport, message: Message | None) -> None:
    """Process an acknowledgment: an OrderAck means that the queue has the message, a FinalAck may refuse it."""
    if message is None:
        return
    try:
        if message_class == MessageClass.ORDER_ACK:
            if OrderAckBody.parse(body).sequence_timestamp == message.sent_time and not report.failure:
                report.fate, report.step = ACCEPTED, SendProgress.DONE
        elif message_class >= MessageClass.NACK_BAD_DST_Q and FinalAckBody.parse(body).message_id == 1:
            known = {int(one): one.name for one in MessageClass}
            reason = known.get(message_class, f"class {message_class:#06x}")
            report.failure = f"the queue did not take the message: {reason}"
    except BadPacket:
        return


async def ping(host: str, timeout: float = PING_TIMEOUT) -> str:
    """Ask by UDP whether a session would be accepted (3.1.5.2.2). Returns `accepted`, `refused` or the failure."""
    try:
        return "accepted" if await ask(host, PING_PORT, os.urandom(16), timeout) else "refused"
    except TimeoutError:
        return "no answer"
    except NOT_REACHED as error:
        return reason_of(error)


async def port_is_open(host: str, port: int, timeout: float) -> str:
    """Return `open`, or the reason why the port is not."""
    try:
        async with asyncio.timeout(timeout):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"no answer within {timeout:g} s: a firewall drops what is sent there, or the machine is off"
    except NOT_REACHED as error:
        return reason_of(error)
    writer.close()
    return "open"
