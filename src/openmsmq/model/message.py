"""The Message of [MS-MQDMPR] 3.1.1.12: every attribute, with its specified name in snake_case.

Identifiers (OBJECTID, [MS-MQMQ] 2.2.8) are 20 bytes: the Lineage GUID in little-endian order and the Uniquifier.
GUIDs are 16 bytes in the same order. Times are seconds since 1970 UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from openmsmq.model.bodies import BodyValue, decode_body, encode_body
from openmsmq.model.constants import INFINITE
from openmsmq.model.lookup_id import sequence_of

try:
    from openmsmq.model import message_slots
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        message_slots = None

NULL_GUID = bytes(16)
NULL_IDENTIFIER = bytes(20)
_OVERHEAD = 256  # bytes charged for the fixed attributes, so that empty messages count for quotas, too


@dataclass(slots=True)
class Message:
    """A message. The queue manager sets the attributes that the sender must not set."""

    body: bytes = b""
    label: str = ""
    body_type: int = 0
    priority: int = 3
    delivery_guarantee: int = 0
    acknowledgements_requested: int = 0
    journaling_requested: int = 0  # Journal flags: Negative- and PositiveJournalingRequested
    message_class: int = 0
    application_tag: int = 0
    correlation_identifier: bytes = NULL_IDENTIFIER
    extension: bytes = b""
    time_to_reach_queue: int = INFINITE
    time_to_be_received: int = INFINITE
    administration_queue_format_name: str = ""
    response_queue_format_name: str = ""
    destination_queue_format_name: str = ""
    destination_multi_queue_format_name: str = ""  # all destinations, if the message was sent to several
    transaction_status_queue_format_name: str = ""
    tracing_requested: int = 0
    privacy_level: int = 0
    authentication_level: int = 0
    hash_algorithm: int = 0
    encryption_algorithm: int = 0
    sender_identifier_type: int = 0
    sender_identifier: bytes = b""
    sender_certificate: bytes = b""
    symmetric_key: bytes = b""
    signature: bytes = b""
    authentication_provider_type: int = 0
    authentication_provider_name: str = ""
    default_provider: bool = False  # the signature is by the default provider, regardless of type and name
    multiple_destination_signature: bytes = b""  # MSMQ 3.0; replaces `signature` for several destinations
    connector_type_identifier: bytes = NULL_GUID
    # The following attributes are set by the queue manager.
    identifier: bytes = NULL_IDENTIFIER
    lookup_identifier: int = 0
    source_machine_identifier: bytes = NULL_GUID
    sent_time: int = 0
    sent_milliseconds: int = 0  # fraction of `sent_time`, not on the wire (deviation D-21)
    arrival_time: int = 0
    transaction_identifier: bytes = NULL_IDENTIFIER
    first_in_transaction: bool = False
    last_in_transaction: bool = False
    # [MS-MQRR] 2.2.5.3: receives and moves rolled back since the last move, moves, and the time of the last one.
    abort_count: int = 0
    move_count: int = 0
    last_move_time: int = 0

    @classmethod
    def of(cls, value: BodyValue, **properties: Any) -> Message:
        """Return a message with `value` as its body; see `bodies.encode_body`."""
        body, body_type = encode_body(value)
        return cls(**{"body": body, "body_type": body_type, **properties})

    def copy(self) -> Message:
        """Return a copy; many times as fast as `dataclasses.replace`."""
        return _copy(self)

    def decode(self) -> BodyValue:
        """Return the body as a value of type `body_type`. Raises BodyError."""
        return decode_body(self.body, self.body_type)

    @property
    def id(self) -> str:
        """The identifier as text, `{guid}\\number`."""
        return identifier_text(self.identifier)

    @property
    def recoverable(self) -> bool:
        return bool(self.delivery_guarantee)

    @property
    def size(self) -> int:
        """Bytes that the message counts for in quotas and TotalBytes: its headers and its body."""
        if message_slots is not None:
            return message_slots.size(self)
        return _OVERHEAD + 2 * sum(map(len, _texts_of(self))) + sum(map(len, _parts_of(self)))

    @property
    def is_transactional(self) -> bool:
        return self.transaction_identifier != NULL_IDENTIFIER

    @property
    def sequence(self) -> int:
        """The 56-bit sequence number in the lookup identifier, which increases over the whole queue manager."""
        return sequence_of(self.lookup_identifier)

    def deadline(self) -> int:
        """Return when the message expires in its destination queue, in milliseconds since 1970 UTC; 0 for never."""
        if self.time_to_be_received == INFINITE:
            return 0
        return (self.sent_time + self.time_to_be_received) * 1000 + self.sent_milliseconds


#: Attributes that count for the size: texts, with two bytes for each character, and bytes.
_TEXTS: Final = (
    "label", "destination_queue_format_name", "destination_multi_queue_format_name",
    "administration_queue_format_name", "response_queue_format_name", "transaction_status_queue_format_name",
    "authentication_provider_name",
)  # fmt: skip
_PARTS: Final = (
    "body", "extension", "sender_identifier", "sender_certificate", "symmetric_key", "signature",
    "multiple_destination_signature",
)  # fmt: skip
_ALL: Final = tuple(field.name for field in fields(Message))
_attributes_of, _texts_of, _parts_of = attrgetter(*_ALL), attrgetter(*_TEXTS), attrgetter(*_PARTS)


def copy_in_python(message: Message) -> Message:
    """Pure Python version of `Message.copy`."""
    return Message(*_attributes_of(message))


if message_slots is not None:
    message_slots.describe(Message, _ALL, _TEXTS, _PARTS, _OVERHEAD, copy_in_python)
_copy: Final = copy_in_python if message_slots is None else message_slots.copy


def identifier_text(identifier: bytes) -> str:
    """Return a message identifier as text, `{guid}\\number`."""
    return f"{{{UUID(bytes_le=identifier[:16])}}}\\{int.from_bytes(identifier[16:20], 'little')}"


def identifier_from_text(text: str) -> bytes:
    """Parse the result of `identifier_text`; braces are optional. Raises ValueError with the text."""
    guid, separator, number = text.partition("\\")
    if not separator or not number.isdecimal() or int(number[:11]) >> 32:
        raise ValueError(f"{text!r} is not a message identifier of the form {{guid}}\\number")
    return UUID(guid).bytes_le + int(number).to_bytes(4, "little")
