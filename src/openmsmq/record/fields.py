"""The declaration of a message record in its plain form; `message_record` describes it."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

#: Version of the plain form.
VERSION: Final = 1


class RecordField(NamedTuple):
    """A field of the fixed part: attribute of `Message` or key of `message_record._EXPRESSIONS`, and format code of
    `struct`."""

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
FIXED: Final = struct.Struct("<" + "".join(field.code for field in FIELDS) + f"{len(PARTS)}I")
#: Offset of each field.
OFFSET: Final = {
    field.name: struct.calcsize("<" + "".join(before.code for before in FIELDS[:index]))
    for index, field in enumerate(FIELDS)
}
