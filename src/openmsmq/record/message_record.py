"""The record of a message in the store: its declaration, and the encoder and decoder generated from it.

A record is little-endian. It consists of a fixed part (`FIELDS`, then the length of each part), the parts (`PARTS`) in
this order, and a tail. Few messages have a tail; it is for several destinations and contains their signature or, with a
flag, the length of the signature, the signature and their names. Everything but the lookup identifier is in the record:
the store keeps that as its key.

Encoder and decoder are generated as straight-line functions when this module is imported. The numpy type of the fixed
part (`flight.layout`), the fields that rows may set (`queueing.drafts`) and the offsets for native code
(`queueing.records`, `packing.c`) are derived from the declaration, too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from openmsmq.model.message import Message

VERSION: Final = 1


class RecordField(NamedTuple):
    """A field of the fixed part: attribute of `Message` or key of `_EXPRESSIONS`, and format code of `struct`."""

    name: str
    code: str


FIELDS: Final = tuple(RecordField(name, code) for name, code in (
    ("version", "B"), ("priority", "B"), ("delivery_guarantee", "B"),
    ("acknowledgements_requested", "B"), ("journaling_requested", "B"), ("tracing_requested", "B"),
    ("authentication_level", "B"), ("flags", "B"),  # see `_EXPRESSIONS`
    ("message_class", "H"), ("abort_count", "H"), ("move_count", "H"), ("sent_milliseconds", "H"),
    ("application_tag", "I"), ("body_type", "I"), ("time_to_reach_queue", "I"),
    ("time_to_be_received", "I"), ("sent_time", "I"), ("arrival_time", "I"),
    ("privacy_level", "I"), ("hash_algorithm", "I"), ("encryption_algorithm", "I"),
    ("sender_identifier_type", "I"), ("authentication_provider_type", "I"), ("last_move_time", "I"),
    ("tail_size", "I"),  # bytes after the parts; 0 in records without a tail
    ("identifier", "20s"), ("correlation_identifier", "20s"), ("source_machine_identifier", "16s"),
    ("connector_type_identifier", "16s"), ("transaction_identifier", "20s"),
))  # fmt: skip
#: Attributes whose bytes follow the fixed part; `True` for text.
PARTS: Final = (
    ("body", False), ("extension", False), ("sender_identifier", False), ("sender_certificate", False),
    ("symmetric_key", False), ("signature", False), ("label", True), ("destination_queue_format_name", True),
    ("administration_queue_format_name", True), ("response_queue_format_name", True),
    ("transaction_status_queue_format_name", True), ("authentication_provider_name", True),
)  # fmt: skip
# Expressions for fields that are not attributes; `m` is the message.
_EXPRESSIONS: Final = {
    "version": str(VERSION),
    # 1: first of its transaction; 2: last; 4: signed by the default provider; 8: the tail has names.
    "flags": "m.first_in_transaction | m.last_in_transaction << 1 | m.default_provider << 2 | names << 3",
    "tail_size": "len(tail)",
}  # fmt: skip

FIXED: Final = struct.Struct("<" + "".join(field.code for field in FIELDS) + f"{len(PARTS)}I")
#: Offset of each field.
OFFSET: Final = {
    field.name: struct.calcsize("<" + "".join(before.code for before in FIELDS[:index]))
    for index, field in enumerate(FIELDS)
}


def _encoder_source() -> str:
    lines = ["def encode_message(m):"]
    for name, is_text in PARTS:
        lines.append(f"    {name} = m.{name}")
        if is_text:  # most are empty
            lines.append(f"    {name} = {name}.encode('utf-8', 'surrogatepass') if {name} else b''")
    lines.append("    tail, names = m.multiple_destination_signature, False")
    lines.append("    if m.destination_multi_queue_format_name:")
    lines.append("        tail, names = pack_tail(m), True")
    values = [_EXPRESSIONS.get(field.name, f"m.{field.name}") for field in FIELDS]
    lengths = [f"len({name})" for name, _ in PARTS]
    lines.append(f"    fixed = pack({', '.join(values + lengths)})")
    parts = ", ".join(name for name, _ in PARTS)
    lines.append(f"    return b''.join((fixed, {parts}, tail))")
    return "\n".join(lines)


def _decoder_source() -> str:
    targets = [f"m.{field.name}" if field.name not in _EXPRESSIONS else f"_{field.name}" for field in FIELDS]
    lines = ["def decode_message(record, lookup_identifier):", "    m = Message.__new__(Message)"]
    lines.append(f"    ({', '.join(targets + [f'n_{name}' for name, _ in PARTS])}) = unpack_from(record)")
    lines.append(f"    if _version != {VERSION}:")
    lines.append(f"        raise ValueError(f'message record of version {{_version}}, this program reads {VERSION}')")
    lines.append("    m.first_in_transaction = m.last_in_transaction = m.default_provider = False")
    lines.append("    if _flags:")
    lines.append("        m.first_in_transaction, m.last_in_transaction = bool(_flags & 1), bool(_flags & 2)")
    lines.append("        m.default_provider = bool(_flags & 4)")
    lines.append("    m.lookup_identifier = lookup_identifier")
    lines.append(f"    at = {FIXED.size}")
    for name, is_text in PARTS:
        decoding = ".decode('utf-8', 'surrogatepass')" if is_text else ""
        lines.append(f"    m.{name} = record[at : (at := at + n_{name})]{decoding}")
    lines.append("    m.multiple_destination_signature, m.destination_multi_queue_format_name = b'', ''")
    lines.append("    if _tail_size:")
    lines.append("        read_tail(m, record[at : (at := at + _tail_size)], bool(_flags & 8))")
    lines.append("    if at != len(record):")
    lines.append("        raise ValueError(f'message record of {len(record)} bytes, its parts take {at}')")
    lines.append("    return m")
    return "\n".join(lines)


def _pack_tail(message: Message) -> bytes:
    signature = message.multiple_destination_signature
    names = message.destination_multi_queue_format_name.encode("utf-8", "surrogatepass")
    return len(signature).to_bytes(4, "little") + signature + names


def _read_tail(message: Message, tail: bytes, has_names: bool) -> None:
    if not has_names:
        message.multiple_destination_signature = tail
        return
    end = 4 + int.from_bytes(tail[:4], "little")
    if end > len(tail):
        raise ValueError(f"message record with a tail of {len(tail)} bytes, its signature ends at {end}")
    message.multiple_destination_signature = tail[4:end]
    message.destination_multi_queue_format_name = tail[end:].decode("utf-8", "surrogatepass")


_namespace: dict[str, Any] = {
    "Message": Message, "pack": FIXED.pack, "unpack_from": FIXED.unpack_from, "pack_tail": _pack_tail,
    "read_tail": _read_tail,
}  # fmt: skip
exec(_encoder_source(), _namespace)
exec(_decoder_source(), _namespace)

#: Returns the record of a message.
encode_message: Final[Callable[[Message], bytes]] = _namespace["encode_message"]
#: Returns the message in a record, with the given lookup identifier. Raises ValueError for another version or a wrong
#: length, struct.error if the record is shorter than the fixed part.
decode_message: Final[Callable[[bytes, int], Message]] = _namespace["decode_message"]
