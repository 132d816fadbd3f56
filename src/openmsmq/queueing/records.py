"""How messages and queue definitions are written to the store: compact binary and JSON.

The store keeps the sequence number of a message as its key and this module's `deadline word` beside it: the upper
byte is the upper byte of the lookup identifier (7 - priority), the rest the time of expiry in milliseconds.
"""

from __future__ import annotations

import json
import struct
from array import array
from dataclasses import asdict
from typing import Any

from openmsmq.model.constants import INFINITE, Acknowledge, Journal
from openmsmq.model.message import Message
from openmsmq.queueing.columns import stamp_records
from openmsmq.queueing.properties import QueueProperties

_VERSION = 1
_FIXED = struct.Struct("<BBBBBBBB HHHH 13I 20s20s16s16s20s 12I")
_ACKNOWLEDGEMENTS_AT = 3  # offset of acknowledgements_requested in a record
# Offsets of what is read and filled in without decoding, as `_FIXED` lays it out.
_TIMES_AT, _SENT_AT, _IDENTIFIER_AT, _MACHINE_AT, _TRANSACTION_AT = 24, 32, 68, 108, 140
_WORD, _TIMES, _IDENTITY = struct.Struct("<I"), struct.Struct("<II"), struct.Struct("<16sI")
_JOURNALING_AT = 4
# Members of an IntFlag are slow.
_POS_ARRIVAL, _POS_RECEIVE = int(Acknowledge.POS_ARRIVAL), int(Acknowledge.POS_RECEIVE)
_JOURNAL = int(Journal.JOURNAL)
_IMMORTAL = bytes([0xFF] * 8)  # both times to live
DRAFT_HEAD = _SENT_AT  # bytes of a record that `is_eventful` needs
_PRIORITY_SHIFT = 56
TIME_MASK = (1 << _PRIORITY_SHIFT) - 1
_TEXT = ("utf-8", "surrogatepass")


def _encoded(text: str) -> bytes:
    return text.encode(*_TEXT) if text else b""  # most are empty


def encode_message(m: Message) -> bytes:
    """The record of a message; everything but its lookup identifier, which the store keeps as key."""
    label = _encoded(m.label)
    destination = _encoded(m.destination_queue_format_name)
    administration = _encoded(m.administration_queue_format_name)
    response = _encoded(m.response_queue_format_name)
    status = _encoded(m.transaction_status_queue_format_name)
    provider = _encoded(m.authentication_provider_name)
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


def is_eventful(record: bytes | bytearray) -> bool:
    """Whether something follows from the arrival of a message, or it may expire; `DRAFT_HEAD` bytes are enough."""
    if record[_ACKNOWLEDGEMENTS_AT] & _POS_ARRIVAL or record[_JOURNALING_AT] & _JOURNAL:
        return True
    return record[_TIMES_AT:_SENT_AT] != _IMMORTAL


def is_asking(record: bytes | bytearray) -> bool:
    """Whether an acknowledgment is wanted when the message is received; `DRAFT_HEAD` bytes are enough."""
    return bool(record[_ACKNOWLEDGEMENTS_AT] & _POS_RECEIVE)


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


def stamp_drafts(
    records: bytearray, bounds: array[int], first: int, now: int, machine: bytes
) -> tuple[array[int], list[int]]:
    """`stamp_draft` for many records end to end, whose sequences follow each other; none is of a transaction, or says
    how long it may travel. `bounds` is array('q'): where each begins, and where the last one ends.

    Returns:
        Their deadline words, array('Q'), and the indices of those that `is_eventful` or `is_asking` has to see.
    """
    patches = [(7, b"\0"), (_SENT_AT, _TIMES.pack(now, now)), (_IDENTIFIER_AT, machine), (_MACHINE_AT, machine)]
    heads = stamp_records(records, bounds, patches, _IDENTIFIER_AT + 16, first, DRAFT_HEAD)
    words = array("Q", [(7 - priority) << _PRIORITY_SHIFT for priority in heads[1::DRAFT_HEAD]])
    if _are_plain(heads):
        return words, []
    parts = [heads[at : at + DRAFT_HEAD] for at in range(0, len(heads), DRAFT_HEAD)]
    return words, [index for index, head in enumerate(parts) if is_eventful(head) or is_asking(head)]


def _are_plain(heads: bytes) -> bool:
    """Whether none of many heads is eventful or asking, told by columns."""
    asks, journals = set(heads[_ACKNOWLEDGEMENTS_AT::DRAFT_HEAD]), set(heads[_JOURNALING_AT::DRAFT_HEAD])
    if any(value & (_POS_ARRIVAL | _POS_RECEIVE) for value in asks) or any(value & _JOURNAL for value in journals):
        return False
    return all(set(heads[at::DRAFT_HEAD]) == {0xFF} for at in range(_TIMES_AT, _SENT_AT))


def deadline_word(lookup_identifier: int, deadline: int) -> int:
    """What the store keeps beside the key: the priority byte of the lookup identifier and the time of expiry."""
    return (lookup_identifier & ~TIME_MASK) | deadline


def split_deadline_word(word: int, sequence: int) -> tuple[int, int]:
    """(lookup identifier, time of expiry in milliseconds or 0) from the word and the sequence number."""
    return (word & ~TIME_MASK) | sequence, word & TIME_MASK


def encode_properties(properties: QueueProperties) -> bytes:
    values = asdict(properties)
    return json.dumps({k: v.hex() if isinstance(v, bytes) else v for k, v in values.items()}).encode()


def decode_properties(data: bytes) -> QueueProperties:
    values: dict[str, Any] = json.loads(data)
    for name in ("instance", "type", "security"):
        values[name] = bytes.fromhex(values[name])
    return QueueProperties(**values)
