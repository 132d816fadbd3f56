"""Access to fields of message records without decoding them, and encoding of queue definitions.

The store keeps the sequence number of a message as its key, together with this module's `deadline word`: the upper byte
is the upper byte of the lookup identifier (7 - priority), the rest the time of expiry in milliseconds.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable
from typing import Any, Final

from openmsmq.model import names
from openmsmq.model.constants import INFINITE, Acknowledge, Journal
from openmsmq.model.lookup_id import LAST_SEQUENCE, lookup_id, priority_part
from openmsmq.queueing.properties import LOCAL_PROPERTIES, QueueProperties
from openmsmq.queueing.stamping import stamp_records
from openmsmq.record.fields import OFFSET

# Offsets of fields that are read and set without decoding.
_ACKNOWLEDGEMENTS_AT, _JOURNALING_AT = OFFSET["acknowledgements_requested"], OFFSET["journaling_requested"]
_PRIORITY_AT, _DELIVERY_AT, _FLAGS_AT = OFFSET["priority"], OFFSET["delivery_guarantee"], OFFSET["flags"]
_SENT_MILLISECONDS_AT, _TIMES_AT, _SENT_AT = (
    OFFSET["sent_milliseconds"], OFFSET["time_to_reach_queue"], OFFSET["sent_time"],
)  # fmt: skip
_IDENTIFIER_AT, _MACHINE_AT = OFFSET["identifier"], OFFSET["source_machine_identifier"]
_TRANSACTION_AT = OFFSET["transaction_identifier"]
_SHORT, _WORD, _TIMES, _IDENTITY = (
    struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<II"), struct.Struct("<16sI"),
)  # fmt: skip
# Operations on IntFlag members are slow.
_POS_ARRIVAL, _POS_RECEIVE = int(Acknowledge.POS_ARRIVAL), int(Acknowledge.POS_RECEIVE)
_JOURNAL = int(Journal.JOURNAL)
_IMMORTAL = bytes([0xFF] * 8)  # both lifetimes infinite
DRAFT_HEAD = _SENT_AT  # bytes of a record needed by `is_eventful` and `is_asking`
ABORT_PREFIX = b"aborts/"
FINAL_ACK_PREFIX = b"final-ack/"
ROUTE_PREFIX = b"route/"
FINAL_ACK_BODY = 36  # bytes, [MS-MQQB] 2.2.5.1
TIME_MASK: Final = LAST_SEQUENCE  # a time takes as many bits as a sequence number


def is_eventful(record: bytes | bytearray) -> bool:
    """Whether the arrival of a message has consequences, or it may expire; `DRAFT_HEAD` bytes are enough."""
    if record[_ACKNOWLEDGEMENTS_AT] & _POS_ARRIVAL or record[_JOURNALING_AT] & _JOURNAL:
        return True
    return record[_TIMES_AT:_SENT_AT] != _IMMORTAL


def is_asking(record: bytes | bytearray) -> bool:
    """Whether receiving the message must be acknowledged; `DRAFT_HEAD` bytes are enough."""
    return bool(record[_ACKNOWLEDGEMENTS_AT] & _POS_RECEIVE)


def stamp_draft(
    record: bytearray, sequence: int, now: int, machine: bytes, transaction: bytes | None, flags: int, reach: int
) -> int:
    """Set the fields that the queue manager determines: identity, times (`now` in milliseconds since 1970 UTC) and, if
    a transaction identifier is given, those of transactional messages. `reach` is the default of time-to-reach-queue.
    Returns the priority."""
    if transaction is not None:
        record[_PRIORITY_AT], record[_DELIVERY_AT] = 0, 1
        record[_TRANSACTION_AT : _TRANSACTION_AT + 20] = transaction
    record[_FLAGS_AT] = flags
    _SHORT.pack_into(record, _SENT_MILLISECONDS_AT, now % 1000)
    _TIMES.pack_into(record, _SENT_AT, now // 1000, now // 1000)
    if reach != INFINITE and _TIMES.unpack_from(record, _TIMES_AT)[0] == INFINITE:
        _WORD.pack_into(record, _TIMES_AT, reach)
    _IDENTITY.pack_into(record, _IDENTIFIER_AT, machine, sequence & 0xFFFFFFFF)
    record[_MACHINE_AT : _MACHINE_AT + 16] = machine
    return record[_PRIORITY_AT]


def stamp_drafts(
    records: bytearray, bounds: array[int], first: int, now: int, machine: bytes
) -> tuple[array[int], list[int]]:
    """`stamp_draft` for many concatenated records with consecutive sequence numbers; none is transactional or needs a
    default of time-to-reach-queue. `bounds` is array('q') with the start of each record and the end of the last one.

    Returns:
        Their deadline words, array('Q'), and the indices of those that are eventful or asking.
    """
    seconds = now // 1000
    patches = [
        (_FLAGS_AT, b"\0"), (_SENT_MILLISECONDS_AT, _SHORT.pack(now % 1000)), (_SENT_AT, _TIMES.pack(seconds, seconds)),
        (_IDENTIFIER_AT, machine), (_MACHINE_AT, machine),
    ]  # fmt: skip
    heads = stamp_records(records, bounds, patches, _IDENTIFIER_AT + 16, first, DRAFT_HEAD)
    words = array("Q", [lookup_id(priority, 0) for priority in heads[_PRIORITY_AT::DRAFT_HEAD]])
    if _have_no_effects(heads):
        return words, []
    parts = [heads[at : at + DRAFT_HEAD] for at in range(0, len(heads), DRAFT_HEAD)]
    return words, [index for index, head in enumerate(parts) if is_eventful(head) or is_asking(head)]


def _have_no_effects(heads: bytes) -> bool:
    """Whether none of many heads is eventful or asking; checked column by column."""
    asks, journals = set(heads[_ACKNOWLEDGEMENTS_AT::DRAFT_HEAD]), set(heads[_JOURNALING_AT::DRAFT_HEAD])
    if any(value & (_POS_ARRIVAL | _POS_RECEIVE) for value in asks) or any(value & _JOURNAL for value in journals):
        return False
    return all(set(heads[at::DRAFT_HEAD]) == {0xFF} for at in range(_TIMES_AT, _SENT_AT))


def deadline_word(lookup_identifier: int, deadline: int) -> int:
    """Return the word that the store keeps with the key: the priority byte of the lookup identifier and the expiry
    time."""
    return priority_part(lookup_identifier) | deadline


def split_deadline_word(word: int, sequence: int) -> tuple[int, int]:
    """Return (lookup identifier, expiry time in milliseconds or 0) for a word and a sequence number."""
    return priority_part(word) | sequence, word & TIME_MASK


def encode_properties(properties: QueueProperties) -> bytes:
    """Return the definition of a queue. It omits `LOCAL_PROPERTIES` with default values, so that older versions can
    read it."""
    values = properties._asdict()
    for name in LOCAL_PROPERTIES:
        if values[name] == QueueProperties._field_defaults[name]:
            del values[name]
    return json.dumps({k: v.hex() if isinstance(v, bytes) else v for k, v in values.items()}).encode()


def decode_properties(data: bytes) -> QueueProperties:
    return decode_all_properties([data])[0]


def decode_all_properties(definitions: Iterable[bytes]) -> list[QueueProperties]:
    """Decode many queue definitions as one JSON document, which saves the decoder's cost per text. Equal descriptors
    and types share one object, because most queues have the same."""
    text = b",".join(definitions).decode()  # from bytes, json would have to guess the encoding
    decoded: list[dict[str, Any]] = json.loads(f"[{text}]")
    known: dict[str, bytes] = {}
    for values in decoded:
        for name in ("type", "security"):
            text = values[name]
            values[name] = known.get(text) or known.setdefault(text, bytes.fromhex(text))
        values["instance"] = bytes.fromhex(values["instance"])
    return [QueueProperties(**values) for values in decoded]


def abort_definition(queue: int, lookup_identifier: int) -> bytes:
    """Return the name of the definition that stores the number of rolled-back receives and moves of a message
    ([MS-MQRR] 2.2.5.3, AbortCounter, D-66). It is dropped with the message. Separate, because rewriting the message
    would cost its size per abort."""
    return ABORT_PREFIX + f"{queue}/{lookup_identifier}".encode()


def final_ack_definition(lookup_identifier: int) -> bytes:
    """Return the name of the definition that stores the pending final acknowledgment for a message of another queue
    manager ([MS-MQQB] 3.1.7.2.2): the body of the packet and the format name of its destination queue."""
    return FINAL_ACK_PREFIX + str(lookup_identifier).encode()


def route_definition(lookup_identifier: int) -> bytes:
    """Return the name of the definition that stores the routing headers of a message in transit."""
    return ROUTE_PREFIX + str(lookup_identifier).encode()


def split_final_ack(value: bytes) -> tuple[bytes, names.SingleFormatName]:
    """Split the value of a `final_ack_definition` into body and format name."""
    name = names.parse_format_name(value[FINAL_ACK_BODY:].decode())
    assert not isinstance(name, names.MultipleElementFormatName)
    return value[:FINAL_ACK_BODY], name


def parse_abort_definition(name: bytes) -> tuple[int, int]:
    """Return queue number and lookup identifier from the name of an `abort_definition`."""
    queue, _, lookup_identifier = name.removeprefix(ABORT_PREFIX).partition(b"/")
    return int(queue), int(lookup_identifier)
