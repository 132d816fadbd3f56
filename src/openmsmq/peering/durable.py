"""Definitions in the store for transfers between queue managers: names and values of each kind."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

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
    or none), and the queue manager that a public queue is on (16 bytes, or none)."""

    hops: int
    final_ack: bool = False
    ordinal: int = 0
    timestamp: int = 0
    number: int = 0
    previous: int = 0
    report_queue: bytes = b""
    machine: bytes = b""

    def pack(self) -> bytes:
        report_queue = self.report_queue or (bytes(16) if self.machine else b"")
        return _ROUTE.pack(*self[:-2]) + report_queue + self.machine

    @classmethod
    def unpack(cls, value: bytes) -> Route:
        """Decode. Records of versions that did not route public queues end with the report queue."""
        report_queue, machine = value[_ROUTE.size : _ROUTE.size + 16], value[_ROUTE.size + 16 :]
        return cls._make((*_ROUTE.unpack_from(value), report_queue if any(report_queue) else b"", machine))


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
