"""Offsets of the fields that native code writes and reads in a message record: `Layout` of `send_stubs.c` and of
`record_reader.h`."""

from __future__ import annotations

import struct
from typing import Final

from openmsmq.record.compact_record import DESCRIPTION
from openmsmq.record.fields import FIXED, OFFSET, PARTS


def _layout(*fields: str) -> bytes:
    lengths = FIXED.size - 4 * len(PARTS)
    return struct.pack(f"={len(fields) + 2}I", FIXED.size, *(OFFSET[name] for name in fields), lengths)


WRITTEN: Final = _layout(
    "priority", "delivery_guarantee", "sent_milliseconds", "application_tag", "body_type", "time_to_reach_queue",
    "sent_time", "arrival_time", "hash_algorithm", "encryption_algorithm", "sender_identifier_type", "identifier",
    "correlation_identifier",
)  # fmt: skip
READ: Final = _layout(
    "version", "priority", "delivery_guarantee", "acknowledgements_requested", "journaling_requested",
    "tracing_requested", "authentication_level", "flags", "message_class", "application_tag", "body_type",
    "time_to_reach_queue", "time_to_be_received", "sent_time", "arrival_time", "privacy_level", "hash_algorithm",
    "encryption_algorithm", "sender_identifier_type", "authentication_provider_type", "tail_size", "identifier",
    "correlation_identifier", "source_machine_identifier", "connector_type_identifier", "transaction_identifier",
    "abort_count", "move_count", "last_move_time", "sent_milliseconds",
) + DESCRIPTION  # fmt: skip
