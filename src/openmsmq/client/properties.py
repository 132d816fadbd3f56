"""Properties by name, for type checkers: those of a message that a program sends, and those of a queue."""

from __future__ import annotations

from typing import Literal, TypedDict
from uuid import UUID


class MessageProperties(TypedDict, total=False):
    """Properties of a message that its sender may set; see `openmsmq.Message`. `recoverable` is short for
    `delivery_guarantee=1`."""

    body_type: int
    label: str
    priority: int
    recoverable: bool
    delivery_guarantee: int
    acknowledgements_requested: int
    journaling_requested: int
    message_class: int
    application_tag: int
    correlation_identifier: bytes | str
    extension: bytes
    time_to_reach_queue: int
    time_to_be_received: int
    administration_queue_format_name: str
    response_queue_format_name: str
    transaction_status_queue_format_name: str
    tracing_requested: int
    privacy_level: int
    authentication_level: int
    hash_algorithm: int
    encryption_algorithm: int
    sender_identifier_type: int
    sender_identifier: bytes
    sender_certificate: bytes
    symmetric_key: bytes
    signature: bytes
    authentication_provider_type: int
    authentication_provider_name: str
    default_provider: bool
    multiple_destination_signature: bytes
    connector_type_identifier: bytes


class NewQueueProperties(TypedDict, total=False):
    """Properties of a queue that can be set; `transactional` when it is created only. Quotas are in kilobytes."""

    label: str
    transactional: bool
    journal: bool
    quota: int
    journal_quota: int
    priv_level: int
    type: UUID
    authenticate: bool
    base_priority: int
    multicast_address: str
    delivery_limit: int
    poison_to_deadletter: bool


#: Names of properties of a queue that can be read.
QueuePropertyName = Literal[
    "instance", "type", "path_name", "journal", "quota", "base_priority", "journal_quota", "label", "create_time",
    "modify_time", "authenticate", "priv_level", "transactional", "path_name_dns", "multicast_address", "ads_path",
    "delivery_limit", "poison_to_deadletter",
]  # fmt: skip
