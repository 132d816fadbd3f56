"""Validate records made by a client before they become messages: every row of an upload is checked before it is stored.
No client can store a record that a reader cannot decode, or one that claims another sender.

Most rows pass a simple check: their fixed part differs from a template only in permitted bits, and they name no
administration or response queue. Where `packing.c` is compiled, it finds those rows; `why_not` checks the others.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from openmsmq.model.admission import check_message, label_too_long, too_large
from openmsmq.model.constants import MAXIMUM_LABEL, MAXIMUM_MESSAGE_SIZE
from openmsmq.model.errors import IllegalPropertyValue, MsmqError
from openmsmq.model.names import parse_format_name
from openmsmq.record.fields import FIELDS, FIXED, PARTS, VERSION, RecordField
from openmsmq.record.message_record import decode_message

try:
    from openmsmq.queueing import packing
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        packing = None

_SID = 1  # PROPID_M_SENDERID_TYPE, [MS-MQMQ] 2.3.1.20: a security identifier
_BYTE, _SHORT, _LONG = 0xFF, 0xFFFF, 0xFFFFFFFF
_ALL_BITS: Final = {"B": _BYTE, "H": _SHORT, "I": _LONG}

# The bits of each field that a row must not choose; all bits of fields that are not listed.
_CHOSEN_BY_OTHERS: Final[dict[str, int | bytes]] = {
    "priority": 0xF8, "delivery_guarantee": 0xFE, "acknowledgements_requested": 0xF0, "journaling_requested": 0xFC,
    "application_tag": 0, "body_type": 0xFFFF0000, "time_to_reach_queue": 0, "time_to_be_received": 0,
    "correlation_identifier": bytes(20),
}  # fmt: skip
# The parts whose length the row chooses.
_OWN_PARTS: Final = (
    "body", "extension", "label", "administration_queue_format_name", "response_queue_format_name",
)  # fmt: skip


def _mask_of(field: RecordField) -> int | bytes:
    if field.name in _CHOSEN_BY_OTHERS:
        return _CHOSEN_BY_OTHERS[field.name]
    return _ALL_BITS[field.code] if field.code in _ALL_BITS else b"\xff" * int(field.code[:-1])


_FIXED_FIELDS: Final = tuple((field.name, field.code, _mask_of(field)) for field in FIELDS)
_PART_FIELDS: Final = tuple((name, 0 if name in _OWN_PARTS else _LONG) for name, _ in PARTS)
_MASK: Final = FIXED.pack(*(mask for _, _, mask in _FIXED_FIELDS), *(mask for _, mask in _PART_FIELDS))
_MASK_NUMBER: Final = int.from_bytes(_MASK, "little")
_FORMAT_NAMES = ("administration_queue_format_name", "response_queue_format_name")


class Form(NamedTuple):
    """Fields that the records for one target have in common.

    Attributes:
        template: the fixed part, with the bits that a row must not choose.
        sender: security identifier of the sender, or empty.
        destination: format name of the queue in UTF-8.
    """

    template: bytes
    sender: bytes
    destination: bytes


def form_of(sender: bytes, destination: str) -> Form:
    """Return the form of the rows that a sender (a SID, or empty) sends to a queue."""
    name = destination.encode()
    fixed: dict[str, int] = {"version": VERSION, "sender_identifier_type": _SID if sender else 0}
    lengths = {"sender_identifier": len(sender), "destination_queue_format_name": len(name)}
    values = [fixed.get(field, bytes(20) if code.endswith("s") else 0) for field, code, _ in _FIXED_FIELDS]
    return Form(FIXED.pack(*values, *(lengths.get(field, 0) for field, _ in _PART_FIELDS)), sender, name)


def odd_drafts(records: bytes | bytearray, bounds: array[int], form: Form) -> list[int]:
    """Return the indices of the records that need a check by `why_not`.

    Args:
        records: the records, concatenated.
        bounds: array('q') with the start of each record and the end of the last one.
        form: form of all records.

    Raises ValueError if the bounds are outside the records.
    """
    if packing is None:
        return odd_drafts_in_python(records, bounds, form)
    return packing.odd(records, bounds, _MASK, form.template, form.sender, form.destination, MAXIMUM_LABEL)


def odd_drafts_in_python(records: bytes | bytearray, bounds: array[int], form: Form) -> list[int]:
    """Pure Python version of `odd_drafts`."""
    for start, end in pairwise(bounds):
        if not 0 <= start <= end <= len(records):
            raise ValueError("the bounds are not within the records")
    return [
        place for place, (start, end) in enumerate(pairwise(bounds))
        if not _needs_no_checks(memoryview(records)[start:end], form)
    ]  # fmt: skip


def _needs_no_checks(record: memoryview, form: Form) -> bool:
    """Whether a record is valid and names no administration or response queue (those need further checks)."""
    if len(record) < FIXED.size:
        return False
    fixed, template = (int.from_bytes(part, "little") for part in (record[: FIXED.size], form.template))
    if (fixed ^ template) & _MASK_NUMBER:
        return False
    lengths = FIXED.unpack_from(record)[-len(_PART_FIELDS) :]
    body, extension, sender, label, destination, administration, response = (
        lengths[place] for place in (0, 1, 2, 6, 7, 8, 9)
    )
    if FIXED.size + sum(lengths) != len(record) or administration or response:
        return False
    at = FIXED.size + body + extension
    text = bytes(record[at + sender : at + sender + label])
    try:
        units = _code_units(text)
    except UnicodeDecodeError:
        return False
    if b"\0" in text or units > MAXIMUM_LABEL or record[at : at + sender] != form.sender:
        return False
    return record[len(record) - destination :] == form.destination


def why_not(record: bytes | bytearray, form: Form) -> MsmqError | None:
    """Return why a record cannot be a message of this form; None if it can."""
    if len(record) > MAXIMUM_MESSAGE_SIZE:
        return too_large(len(record))
    if len(record) < FIXED.size:
        return _malformed(f"{len(record)} bytes", f"{FIXED.size} or more")
    given, expected, masks = (FIXED.unpack_from(part) for part in (record, form.template, _MASK))
    for (name, _, _), value, wanted, mask in zip(_FIXED_FIELDS, given, expected, masks, strict=False):
        if _chosen(value, mask) != _chosen(wanted, mask):
            return _malformed(f"{name} {_shown(value)}", _shown(wanted) if _is_fixed(mask) else f"0 to {~mask & _LONG}")
    count = len(_PART_FIELDS)
    lengths = dict(zip((name for name, _ in _PART_FIELDS), given[-count:], strict=True))
    if FIXED.size + sum(lengths.values()) != len(record):
        return _malformed(f"{len(record)} bytes", f"the sum of its parts, {FIXED.size + sum(lengths.values())}")
    for (name, mask), length, wanted in zip(_PART_FIELDS, given[-count:], expected[-count:], strict=True):
        if mask and length != wanted:
            return _malformed(f"{name} of {length} bytes", f"{wanted} bytes")
    parts, at = {}, FIXED.size
    for name, length in lengths.items():
        parts[name] = bytes(record[at : (at := at + length)])
    if parts["sender_identifier"] != form.sender:
        return _malformed("sender_identifier of another user", "the security identifier of the caller")
    if parts["destination_queue_format_name"] != form.destination:
        return _malformed("destination_queue_format_name of another queue", form.destination.decode())
    if (error := _why_not_texts(parts)) is not None:
        return error
    try:
        check_message(decode_message(bytes(record), 0))
    except MsmqError as refusal:
        return refusal
    return None


def _why_not_texts(parts: dict[str, bytes]) -> MsmqError | None:
    for name in ("label", *_FORMAT_NAMES):
        try:
            text = parts[name].decode()
            units = _code_units(parts[name])
        except UnicodeDecodeError as error:
            return _malformed(f"{name} ({error.reason} at byte {error.start})", "UTF-8")
        if name == "label":
            if units > MAXIMUM_LABEL:
                return label_too_long(units)
        elif text:
            try:
                _check_format_name(text)
            except MsmqError as error:
                return MsmqError(error.hresult, f"{name}: {error.detail}")
    return None


def _code_units(text: bytes) -> int:
    """Return the number of UTF-16 code units of a UTF-8 text. Raises UnicodeDecodeError."""
    return len(text) if text.isascii() else len(text.decode().encode("utf-16-le")) // 2


@lru_cache(maxsize=256)
def _check_format_name(text: str) -> None:
    """Raises MsmqError for an invalid format name. Cached, because the rows of an upload use few names."""
    parse_format_name(text)


def _malformed(what: str, allowed: str) -> MsmqError:
    return IllegalPropertyValue(detail=f"malformed message record: {what}, allowed: {allowed}")


def _chosen(value: int | bytes, mask: int | bytes) -> int | bytes:
    """Return the part of a value that a row must not choose."""
    if isinstance(value, bytes):
        return value if mask != bytes(len(value)) else b""
    assert isinstance(mask, int)
    return value & mask


def _is_fixed(mask: int | bytes) -> bool:
    return isinstance(mask, bytes) or mask in (_BYTE, _SHORT, _LONG)


def _shown(value: int | bytes) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
