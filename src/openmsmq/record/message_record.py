"""The record of a message: the encoder and decoder generated from its declaration (`fields`).

This is its plain form; the store keeps it in the compact form (`compact_record`), which the decoder reads, too. A
record is little-endian. It consists of a fixed part (`FIELDS`, then the length of each part), the parts (`PARTS`) in
this order, and a tail. Few messages have a tail; it is for several destinations and contains their signature or, with a
flag, the length of the signature, the signature and their names. Everything but the lookup identifier is in the record:
the store keeps that as its key.

Encoder and decoder are generated as straight-line functions when this module is imported; `message_codec.c` has the
same functions. The numpy type of the fixed part (`flight.layout`), the fields that rows may set (`queueing.drafts`) and
the offsets for native code (`queueing.records`, `packing.c`) are derived from the declaration, too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from openmsmq.model.message import Message
from openmsmq.record.compact_record import COMPACT, DESCRIPTION, expand
from openmsmq.record.fields import FIELDS, FIXED, OFFSET, PARTS, VERSION

try:
    from openmsmq.record import message_codec
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        message_codec = None

#: Attributes in `flags`, from the lowest bit; the next bit means that the tail has names.
_BITS: Final = ("first_in_transaction", "last_in_transaction", "default_provider")
# Expressions for fields that are not attributes; `m` is the message.
_EXPRESSIONS: Final = {
    "version": str(VERSION),
    "flags": " | ".join(f"m.{name} << {bit}" for bit, name in enumerate(_BITS)) + f" | names << {len(_BITS)}",
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
    lines.append(f"    {' = '.join(f'm.{name}' for name in _BITS)} = False")
    lines.append("    if _flags:")
    lines += [f"        m.{name} = bool(_flags & {1 << bit})" for bit, name in enumerate(_BITS)]
    lines.append("    m.lookup_identifier = lookup_identifier")
    lines.append(f"    at = {FIXED.size}")
    for name, is_text in PARTS:
        decoding = ".decode('utf-8', 'surrogatepass')" if is_text else ""
        lines.append(f"    m.{name} = record[at : (at := at + n_{name})]{decoding}")
    lines.append("    m.multiple_destination_signature, m.destination_multi_queue_format_name = b'', ''")
    lines.append("    if _tail_size:")
    lines.append(f"        read_tail(m, record[at : (at := at + _tail_size)], bool(_flags & {1 << len(_BITS)}))")
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
encode_message_in_python: Final[Callable[[Message], bytes]] = _namespace["encode_message"]
decode_message_in_python: Final[Callable[[bytes, int], Message]] = _namespace["decode_message"]


if message_codec is not None:
    message_codec.describe(
        Message,
        tuple(
            (name, OFFSET[name], struct.calcsize("<" + code), code.endswith("s"))
            for name, code in FIELDS if name not in _EXPRESSIONS
        ),
        tuple((name, 0, 0, not is_text) for name, is_text in PARTS),
        tuple((name, 0, 0, False) for name in _BITS),
        OFFSET["flags"], OFFSET["tail_size"], DESCRIPTION, encode_message_in_python, decode_message_in_python,
    )  # fmt: skip
#: Returns the record of a message.
encode_message: Final[Callable[[Message], bytes]] = (
    encode_message_in_python if message_codec is None else message_codec.encode
)
#: Returns the message in a record in either form, with the given lookup identifier. Raises ValueError for another
#: version or a wrong length, struct.error if the record is shorter than the fixed part.
decode_message: Final[Callable[[bytes, int], Message]] = (
    decode_message_in_python if message_codec is None else message_codec.decode
)
