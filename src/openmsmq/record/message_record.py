"""The record of a message: the encoder and decoder generated from its declaration (`fields`).

This is its plain form; the store keeps it in the compact form (`compact_record`), which the decoder reads, too. A
record is little-endian. It consists of a fixed part (`FIELDS`, then the length of each part), the parts (`PARTS`) in
this order, and a tail. Few messages have a tail; it is for several destinations and contains their signature or, with a
flag, the length of the signature, the signature and their names. Everything but the lookup identifier is in the record:
the store keeps that as its key.

Encoder and decoder are generated as straight-line functions when this module is imported. The numpy type of the fixed
part (`flight.layout`), the fields that rows may set (`queueing.drafts`) and the offsets for native code
(`queueing.records`, `packing.c`) are derived from the declaration, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from openmsmq.model.message import Message
from openmsmq.record.compact_record import COMPACT, expand
from openmsmq.record.fields import FIELDS, FIXED, PARTS, VERSION

# Expressions for fields that are not attributes; `m` is the message.
_EXPRESSIONS: Final = {
    "version": str(VERSION),
    # 1: first of its transaction; 2: last; 4: signed by the default provider; 8: the tail has names.
    "flags": "m.first_in_transaction | m.last_in_transaction << 1 | m.default_provider << 2 | names << 3",
    "tail_size": "len(tail)",
}  # fmt: skip


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
    """The source of the decoder, which reads both forms."""
    targets = [f"m.{field.name}" if field.name not in _EXPRESSIONS else f"_{field.name}" for field in FIELDS]
    lines = ["def decode_message(record, lookup_identifier):", "    m = Message.__new__(Message)"]
    lines.append(f"    if record and record[0] == {COMPACT}:")
    lines.append("        record = expand(record)")
    lines.append(f"    ({', '.join(targets + [f'n_{name}' for name, _ in PARTS])}) = unpack_from(record)")
    lines.append(f"    if _version != {VERSION}:")
    error = f"message record of version {{_version}}, this program reads {VERSION} and {COMPACT}"
    lines.append(f"        raise ValueError(f'{error}')")
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
    "read_tail": _read_tail, "expand": expand,
}  # fmt: skip
exec(_encoder_source(), _namespace)
exec(_decoder_source(), _namespace)

#: Returns the record of a message.
encode_message: Final[Callable[[Message], bytes]] = _namespace["encode_message"]
#: Returns the message in a record, with the given lookup identifier. Raises ValueError for another version or a wrong
#: length, struct.error if the record is shorter than the fixed part.
decode_message: Final[Callable[[bytes, int], Message]] = _namespace["decode_message"]
