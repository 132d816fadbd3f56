"""How messages and queue definitions are written to the store: compact binary and JSON.

The store keeps the sequence number of a message as its key and this module's `deadline word` beside it: the upper
byte is the upper byte of the lookup identifier (7 - priority), the rest the time of expiry in milliseconds.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict
from typing import Any, NamedTuple

from openmsmq.model.constants import INFINITE
from openmsmq.model.message import Message
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.transactions import Dequeued, Moved, Transaction

_VERSION = 1
_FIXED = struct.Struct("<BBBBBBBB HHHH 13I 20s20s16s16s20s 12I")
ACKNOWLEDGEMENTS_AT = 3  # offset of acknowledgements_requested in a record
# Offsets of what is read and filled in without decoding, as `_FIXED` lays it out.
_TIMES_AT, _SENT_AT, _IDENTIFIER_AT, _MACHINE_AT, _TRANSACTION_AT = 24, 32, 68, 108, 140
_WORD, _TIMES, _IDENTITY = struct.Struct("<I"), struct.Struct("<II"), struct.Struct("<16sI")
ARRIVAL_HEAD = _SENT_AT  # bytes of a record that `read_draft` needs
_PRIORITY_SHIFT = 56
TIME_MASK = (1 << _PRIORITY_SHIFT) - 1
_TEXT = ("utf-8", "surrogatepass")


def encode_message(m: Message) -> bytes:
    """The record of a message; everything but its lookup identifier, which the store keeps as key."""
    label = m.label.encode(*_TEXT)
    destination = m.destination_queue_format_name.encode(*_TEXT)
    administration = m.administration_queue_format_name.encode(*_TEXT)
    response = m.response_queue_format_name.encode(*_TEXT)
    status = m.transaction_status_queue_format_name.encode(*_TEXT)
    provider = m.authentication_provider_name.encode(*_TEXT)
    fixed = _FIXED.pack(
        _VERSION, m.priority, m.delivery_guarantee, m.acknowledgements_requested, m.journaling_requested,
        m.tracing_requested, m.authentication_level, m.first_in_transaction | m.last_in_transaction << 1,
        m.message_class, m.abort_count, m.move_count, 0,
        m.application_tag, m.body_type, m.time_to_reach_queue, m.time_to_be_received, m.sent_time, m.arrival_time,
        m.privacy_level, m.hash_algorithm, m.encryption_algorithm, m.sender_identifier_type,
        m.authentication_provider_type, m.last_move_time, 0,
        m.identifier, m.correlation_identifier, m.source_machine_identifier, m.connector_type_identifier,
        m.transaction_identifier,
        len(m.body), len(m.extension), len(m.sender_identifier), len(m.sender_certificate), len(m.symmetric_key),
        len(m.signature), len(label), len(destination), len(administration), len(response), len(status),
        len(provider),
    )  # fmt: skip
    return b"".join(
        (fixed, m.body, m.extension, m.sender_identifier, m.sender_certificate, m.symmetric_key, m.signature, label,
         destination, administration, response, status, provider)
    )  # fmt: skip


def decode_message(record: bytes, lookup_identifier: int) -> Message:
    """The inverse of `encode_message`. Raises ValueError for a record of another version or length."""
    m = Message.__new__(Message)
    (
        version, m.priority, m.delivery_guarantee, m.acknowledgements_requested, m.journaling_requested,
        m.tracing_requested, m.authentication_level, flags, m.message_class, m.abort_count, m.move_count, _,
        m.application_tag, m.body_type, m.time_to_reach_queue, m.time_to_be_received, m.sent_time, m.arrival_time,
        m.privacy_level, m.hash_algorithm, m.encryption_algorithm, m.sender_identifier_type,
        m.authentication_provider_type, m.last_move_time, _,
        m.identifier, m.correlation_identifier, m.source_machine_identifier, m.connector_type_identifier,
        m.transaction_identifier, body, extension, sender, certificate, key, signature, label, destination,
        administration, response, status, provider,
    ) = _FIXED.unpack_from(record)  # fmt: skip
    if version != _VERSION:
        raise ValueError(f"message record of version {version}, this program reads {_VERSION}")
    m.first_in_transaction, m.last_in_transaction = bool(flags & 1), bool(flags & 2)
    m.lookup_identifier = lookup_identifier
    at = _FIXED.size
    m.body = record[at : (at := at + body)]
    m.extension = record[at : (at := at + extension)]
    m.sender_identifier = record[at : (at := at + sender)]
    m.sender_certificate = record[at : (at := at + certificate)]
    m.symmetric_key = record[at : (at := at + key)]
    m.signature = record[at : (at := at + signature)]
    m.label = record[at : (at := at + label)].decode(*_TEXT)
    m.destination_queue_format_name = record[at : (at := at + destination)].decode(*_TEXT)
    m.administration_queue_format_name = record[at : (at := at + administration)].decode(*_TEXT)
    m.response_queue_format_name = record[at : (at := at + response)].decode(*_TEXT)
    m.transaction_status_queue_format_name = record[at : (at := at + status)].decode(*_TEXT)
    m.authentication_provider_name = record[at : (at := at + provider)].decode(*_TEXT)
    if at != len(record):
        raise ValueError(f"message record of {len(record)} bytes, its parts take {at}")
    return m


class DraftHead(NamedTuple):
    """What has to be known of a record without decoding it. `is_mortal`: it has a time to live."""

    priority: int
    acknowledgements: int
    journaling: int
    is_mortal: bool


def read_draft(record: bytes | bytearray) -> DraftHead:
    """The head of a record, of which the first `ARRIVAL_HEAD` bytes are enough."""
    reach, received = _TIMES.unpack_from(record, _TIMES_AT)
    return DraftHead(record[1], record[ACKNOWLEDGEMENTS_AT], record[4], reach != INFINITE or received != INFINITE)


def stamp_draft(
    record: bytearray, sequence: int, now: int, machine: bytes, transaction: bytes | None, flags: int, reach: int
) -> int:
    """Fill in what is the queue manager's: identity, times (seconds), and for a message of a transaction, whose
    identifier is given, what that demands. `reach` is the time to reach the queue of a message that says nothing.
    Returns the priority."""
    if transaction is not None:
        record[1], record[2] = 0, 1
        record[_TRANSACTION_AT : _TRANSACTION_AT + 20] = transaction
    record[7] = flags
    _TIMES.pack_into(record, _SENT_AT, now, now)
    if reach != INFINITE and _TIMES.unpack_from(record, _TIMES_AT)[0] == INFINITE:
        _WORD.pack_into(record, _TIMES_AT, reach)
    _IDENTITY.pack_into(record, _IDENTIFIER_AT, machine, sequence & 0xFFFFFFFF)
    record[_MACHINE_AT : _MACHINE_AT + 16] = machine
    return record[1]


def deadline_word(lookup_identifier: int, deadline: int) -> int:
    """What the store keeps beside the key: the priority byte of the lookup identifier and the time of expiry."""
    return (lookup_identifier & ~TIME_MASK) | deadline


def split_deadline_word(word: int, sequence: int) -> tuple[int, int]:
    """(lookup identifier, time of expiry in milliseconds or 0) from the word and the sequence number."""
    return (word & ~TIME_MASK) | sequence, word & TIME_MASK


class Work(NamedTuple):
    """What a prepared transaction takes from a queue: received, or moved to `subqueue` of `target`, or to it."""

    queue: int
    lookup_identifier: int
    reason: int = 0
    target: int = 0
    subqueue: str = ""


def encode_note(transaction: Transaction) -> bytes:
    """What has to be remembered of a transaction that is prepared, besides its sends, which are in the store."""
    work = []
    for operation in transaction.operations:
        if isinstance(operation, Dequeued):
            work.append(Work(operation.queue.number, operation.lookup_identifier, int(operation.reason)))
        elif isinstance(operation, Moved):
            head = operation.target.parent or operation.target
            name = operation.target.name if operation.target.parent else ""
            work.append(Work(operation.queue.number, operation.lookup_identifier, 0, head.number, name))
    values = [transaction.identifier.hex(), transaction.coordinator.hex(), work]
    return json.dumps(values).encode()


def decode_note(note: bytes) -> tuple[bytes, bytes, list[Work]]:
    """Identifier, coordinator and work of a prepared transaction."""
    identifier, coordinator, work = json.loads(note)
    return bytes.fromhex(identifier), bytes.fromhex(coordinator), [Work(*item) for item in work]


def encode_properties(properties: QueueProperties) -> bytes:
    values = asdict(properties)
    return json.dumps({k: v.hex() if isinstance(v, bytes) else v for k, v in values.items()}).encode()


def decode_properties(data: bytes) -> QueueProperties:
    values: dict[str, Any] = json.loads(data)
    for name in ("instance", "type", "security"):
        values[name] = bytes.fromhex(values[name])
    return QueueProperties(**values)
