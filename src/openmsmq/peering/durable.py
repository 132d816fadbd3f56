"""Definitions in the store for transfers between queue managers: names and values of each kind."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from openmsmq.conversion.packets import user_message_of
from openmsmq.model.message import Message
from openmsmq.packet import UserMessage
from openmsmq.packet.headers import NO_GUID, UserHeader
from openmsmq.packet.queue_names import NameType, pack_name, unpack_name
from openmsmq.packet.reader import Reader
from openmsmq.store import Drop, Put
from openmsmq.transport.sequence import SequenceId, SequencePosition

LAST_IDENTIFIER = b"last-sequence-identifier"  # highest assigned TxSequenceID
OUTGOING_PREFIX = b"outgoing-sequence/"  # the sequence of an outgoing queue
NUMBERS_PREFIX = b"outgoing-numbers/"  # sequence numbers of its messages
INCOMING_PREFIX = b"incoming-sequence/"  # the position of one source for one queue
HISTORY_PREFIX = b"history/"  # identifiers of received messages

_IDENTIFIER = struct.Struct("<II")
_SEQUENCE = struct.Struct("<III")
_ROUTE = struct.Struct("<B?IIII")
_NAMES = struct.Struct("<HH")  # types of administration and response queue, before their names
_INCOMING = struct.Struct("<IIIII")


class StoredSequence(NamedTuple):
    """The sequence of an outgoing queue; LastAck is the last acknowledged number."""

    identifier: SequenceId
    last_ack: int


def put_identifier(identifier: SequenceId) -> Put:
    return Put(LAST_IDENTIFIER, _IDENTIFIER.pack(*identifier))


def identifier_of(value: bytes | None) -> SequenceId:
    return SequenceId(*_IDENTIFIER.unpack(value)) if value is not None else SequenceId(0, 0)


def put_sequence(queue: int, sequence: StoredSequence) -> Put:
    return Put(OUTGOING_PREFIX + b"%d" % queue, _SEQUENCE.pack(*sequence.identifier, sequence.last_ack))


def drop_sequence(queue: int) -> Drop:
    return Drop(OUTGOING_PREFIX + b"%d" % queue)


def sequence_of(value: bytes) -> StoredSequence:
    timestamp, ordinal, last_ack = _SEQUENCE.unpack(value)
    return StoredSequence(SequenceId(timestamp, ordinal), last_ack)


def put_numbers(queue: int, first: int, lookup_identifiers: Sequence[int]) -> Put:
    """Store that these messages have the numbers from `first` on."""
    name = NUMBERS_PREFIX + b"%d/%d" % (queue, first)
    return Put(name, struct.pack(f"<{len(lookup_identifiers)}Q", *lookup_identifiers))


def drop_numbers(queue: int, first: int) -> Drop:
    return Drop(NUMBERS_PREFIX + b"%d/%d" % (queue, first))


def numbers_of(name: bytes, value: bytes) -> tuple[int, int, tuple[int, ...]]:
    """Return queue, first number, and messages."""
    queue, _, first = name.removeprefix(NUMBERS_PREFIX).partition(b"/")
    return int(queue), int(first), struct.unpack(f"<{len(value) // 8}Q", value)


def put_incoming(
    source: bytes, queue: int, called: str, position: SequencePosition, reject_count: int, seconds: int
) -> Put:  # fmt: skip
    """Store the position of a source (the GUID of a queue manager) for a queue, by the name that it uses. `seconds`
    since 1970 UTC is LastAccessTime."""
    name = _incoming(source, queue, called)
    return Put(name, _INCOMING.pack(*position.identifier, position.number, reject_count, seconds))


def drop_incoming(source: bytes, queue: int, called: str) -> Drop:
    return Drop(_incoming(source, queue, called))


def _incoming(source: bytes, queue: int, called: str) -> bytes:
    tail = f"/{called}" if called else ""
    return INCOMING_PREFIX + f"{source.hex()}/{queue}{tail}".encode("utf-8", "surrogatepass")


def incoming_of(name: bytes, value: bytes) -> tuple[bytes, int, str, SequencePosition, int, int]:
    """Return source, queue, the name that the source uses for it, position, RejectCount, LastAccessTime."""
    source, queue, *called = name.removeprefix(INCOMING_PREFIX).decode("utf-8", "surrogatepass").split("/", 2)
    timestamp, ordinal, number, reject_count, seconds = _INCOMING.unpack(value)
    position = SequencePosition(SequenceId(timestamp, ordinal), number)
    return bytes.fromhex(source), int(queue), "".join(called), position, reject_count, seconds


class Route(NamedTuple):
    """Routing state of a packet in transit: hops made, the sequence of its source, the DebugHeader's queue (16 bytes,
    or none), the queue manager that a public queue is on (16 bytes, or none), and its names (see `route_of`)."""

    hops: int
    final_ack: bool = False
    ordinal: int = 0
    timestamp: int = 0
    number: int = 0
    previous: int = 0
    report_queue: bytes = b""
    machine: bytes = b""
    names: bytes = b""

    def pack(self) -> bytes:
        machine = self.machine or (NO_GUID if self.names else b"")
        report_queue = self.report_queue or (NO_GUID if machine else b"")
        return _ROUTE.pack(*self[:-3]) + report_queue + machine + self.names

    @classmethod
    def unpack(cls, value: bytes) -> Route:
        """Decode. Records without names end with the machine; those of versions that did not route public queues end
        with the report queue."""
        report_queue, machine = value[_ROUTE.size : _ROUTE.size + 16], value[_ROUTE.size + 16 : _ROUTE.size + 32]
        return cls._make(
            (
                *_ROUTE.unpack_from(value), report_queue if any(report_queue) else b"",
                machine if any(machine) else b"", value[_ROUTE.size + 32 :],
            )
        )  # fmt: skip

    def restore_names(self, user: UserHeader) -> None:
        """Set the names in the header of a packet to those in which the packet arrived, if they are kept."""
        if not self.names:
            return
        reader = Reader(self.names, "route")
        administration, response = reader.u16(), reader.u16()
        user.administration = unpack_name(reader, administration, "AdminQueue", range(8))
        user.response = unpack_name(reader, response, "ResponseQueue", range(8))


def route_of(packet: UserMessage, message: Message, hops: int) -> Route:
    """Return the routing state of a packet that arrived as `message`. Administration and response queue are kept as
    they are in the packet if they would be written in another form: a signature covers that form ([MS-MQMQ] 2.5)."""
    user, names = packet.user, b""
    written = user_message_of(message).user
    if (written.administration, written.response) != (user.administration, user.response):
        (administration, first), (response, second) = pack_name(user.administration), pack_name(user.response)
        names = _NAMES.pack(administration, response) + first + second
    header, report_queue = packet.transaction, (packet.debug and packet.debug.queue) or b""
    is_public = user.destination is not None and user.destination.type is NameType.PUBLIC
    machine = user.queue_manager_address if is_public else b""
    if header is None:
        return Route(hops, report_queue=report_queue, machine=machine, names=names)
    return Route(
        hops, header.final_ack_required, header.sequence_ordinal, header.sequence_timestamp, header.sequence_number,
        header.previous_sequence_number, report_queue, machine, names,
    )  # fmt: skip


def put_history(number: int, identifiers: Sequence[bytes]) -> Put:
    """Store the identifiers of a batch of received messages: OBJECTIDs, with one more byte for routed messages."""
    parts = [bytes([len(identifier)]) + identifier for identifier in identifiers]
    return Put(HISTORY_PREFIX + b"%d" % number, b"".join(parts))


def drop_history(number: int) -> Drop:
    return Drop(HISTORY_PREFIX + b"%d" % number)


def history_of(value: bytes) -> list[bytes]:
    """Return the identifiers that `put_history` has stored."""
    found, at = [], 0
    while at < len(value):
        end = at + 1 + value[at]
        found.append(value[at + 1 : end])
        at = end
    return found
