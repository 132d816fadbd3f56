"""Access to fields of message records without decoding them, and encoding of queue definitions.

The store keeps the sequence number of a message as its key, together with this module's `deadline word`: the upper byte
is the upper byte of the lookup identifier (7 - priority), the rest the time of expiry in milliseconds.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable
from typing import Any

from openmsmq.model import names
from openmsmq.model.constants import INFINITE, Acknowledge, Journal
from openmsmq.model.lookup_id import LAST_SEQUENCE, lookup_id, priority_part
from openmsmq.queueing.properties import LOCAL_PROPERTIES, QueueProperties
from openmsmq.queueing.stamping import stamp_records
from openmsmq.record.message_record import OFFSET

# Offsets of what is read and filled in without decoding.
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
# Members of an IntFlag are slow.
_POS_ARRIVAL, _POS_RECEIVE = int(Acknowledge.POS_ARRIVAL), int(Acknowledge.POS_RECEIVE)
_JOURNAL = int(Journal.JOURNAL)
_IMMORTAL = bytes([0xFF] * 8)  # both times to live
DRAFT_HEAD = _SENT_AT  # bytes of a record that `is_eventful` needs
ABORT_PREFIX = b"aborts/"
FINAL_ACK_PREFIX = b"final-ack/"
ROUTE_PREFIX = b"route/"
FINAL_ACK_BODY = 36  # bytes, [MS-MQQB] 2.2.5.1
TIME_MASK = LAST_SEQUENCE  # a time takes the place of the sequence number


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
    """Fill in what is the queue manager's: identity, times (`now` in milliseconds), and for a message of a transaction,
    whose identifier is given, what that demands. `reach` is the time to reach the queue of a message that says nothing.
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
    """`stamp_draft` for many records end to end, whose sequences follow each other; none is of a transaction, or says
    how long it may travel. `bounds` is array('q'): where each begins, and where the last one ends.

    Returns:
        Their deadline words, array('Q'), and the indices of those that `is_eventful` or `is_asking` has to see.
    """
    seconds = now // 1000
    patches = [
        (_FLAGS_AT, b"\0"), (_SENT_MILLISECONDS_AT, _SHORT.pack(now % 1000)), (_SENT_AT, _TIMES.pack(seconds, seconds)),
        (_IDENTIFIER_AT, machine), (_MACHINE_AT, machine),
    ]  # fmt: skip
    heads = stamp_records(records, bounds, patches, _IDENTIFIER_AT + 16, first, DRAFT_HEAD)
    words = array("Q", [lookup_id(priority, 0) for priority in heads[_PRIORITY_AT::DRAFT_HEAD]])
    if _are_plain(heads):
        return words, []
    parts = [heads[at : at + DRAFT_HEAD] for at in range(0, len(heads), DRAFT_HEAD)]
    return words, [index for index, head in enumerate(parts) if is_eventful(head) or is_asking(head)]


def _are_plain(heads: bytes) -> bool:
    """Whether none of many heads is eventful or asking, found by columns."""
    asks, journals = set(heads[_ACKNOWLEDGEMENTS_AT::DRAFT_HEAD]), set(heads[_JOURNALING_AT::DRAFT_HEAD])
    if any(value & (_POS_ARRIVAL | _POS_RECEIVE) for value in asks) or any(value & _JOURNAL for value in journals):
        return False
    return all(set(heads[at::DRAFT_HEAD]) == {0xFF} for at in range(_TIMES_AT, _SENT_AT))


def deadline_word(lookup_identifier: int, deadline: int) -> int:
    """Value that the store keeps with the key: the priority byte of the lookup identifier and the time of expiry."""
    return priority_part(lookup_identifier) | deadline


def split_deadline_word(word: int, sequence: int) -> tuple[int, int]:
    """(lookup identifier, time of expiry in milliseconds or 0) from the word and the sequence number."""
    return priority_part(word) | sequence, word & TIME_MASK


def encode_properties(properties: QueueProperties) -> bytes:
    """The definition of a queue. Without the properties of `LOCAL_PROPERTIES` that have their default: an older version
    then still reads it."""
    values = properties._asdict()
    for name in LOCAL_PROPERTIES:
        if values[name] == QueueProperties._field_defaults[name]:
            del values[name]
    return json.dumps({k: v.hex() if isinstance(v, bytes) else v for k, v in values.items()}).encode()


def decode_properties(data: bytes) -> QueueProperties:
    return decode_all_properties([data])[0]


def decode_all_properties(definitions: Iterable[bytes]) -> list[QueueProperties]:
    """Decode many queue definitions; one JSON document saves the decoder's cost per text. Equal descriptors and types
    become one object, because most queues have the same."""
    text = b",".join(definitions).decode()  # of bytes, it would guess their encoding
    decoded: list[dict[str, Any]] = json.loads(f"[{text}]")
    known: dict[str, bytes] = {}
    for values in decoded:
        for name in ("type", "security"):
            text = values[name]
            values[name] = known.get(text) or known.setdefault(text, bytes.fromhex(text))
        values["instance"] = bytes.fromhex(values["instance"])
    return [QueueProperties(**values) for values in decoded]


def abort_definition(queue: int, lookup_identifier: int) -> bytes:
    """The name under which the store keeps how often receives and moves of a message were rolled back ([MS-MQRR]
    2.2.5.3, AbortCounter, D-66). It goes with the message: to write the message again would cost its size for each
    abort."""
    return ABORT_PREFIX + f"{queue}/{lookup_identifier}".encode()


def final_ack_definition(lookup_identifier: int) -> bytes:
    """The name under which the store keeps the final acknowledgment that is owed for a message of another queue manager
    ([MS-MQQB] 3.1.7.2.2): the body of the packet, and the format name of the queue that it goes to."""
    return FINAL_ACK_PREFIX + str(lookup_identifier).encode()


def route_definition(lookup_identifier: int) -> bytes:
    """Name under which the store keeps the routing headers of a message in transit."""
    return ROUTE_PREFIX + str(lookup_identifier).encode()


def split_final_ack(value: bytes) -> tuple[bytes, names.SingleFormatName]:
    """Split the value of a `final_ack_definition` into body and format name."""
    name = names.parse_format_name(value[FINAL_ACK_BODY:].decode())
    assert not isinstance(name, names.MultipleElementFormatName)
    return value[:FINAL_ACK_BODY], name


def parse_abort_definition(name: bytes) -> tuple[int, int]:
    """Queue number and lookup identifier."""
    queue, _, lookup_identifier = name.removeprefix(ABORT_PREFIX).partition(b"/")
    return int(queue), int(lookup_identifier)
