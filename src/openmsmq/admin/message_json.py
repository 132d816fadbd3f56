"""Messages as JSON documents, and back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from openmsmq.model.message import Message

_IDENTIFIERS = ("identifier", "correlation_identifier", "transaction_identifier")
IDENTIFIER, DECODED = "id", "decoded"  # additional members in JSON for people: the identifier, the decoded body
_GUIDS = ("source_machine_identifier", "connector_type_identifier")


def to_json(message: Message) -> dict[str, Any]:
    """Every property; bytes in base64 but identifiers in hexadecimal, so that `from_json` gives the same message."""
    result: dict[str, Any] = {}
    for field in fields(Message):
        value = getattr(message, field.name)
        if field.name in _IDENTIFIERS + _GUIDS:
            value = value.hex()
        elif isinstance(value, bytes):
            value = base64.b64encode(value).decode()
        result[field.name] = value
    return result


def from_json(values: Mapping[str, Any]) -> Message:
    """The inverse of `to_json`; what is for people is ignored. Raises ValueError naming an unknown or malformed
    property."""
    known = {field.name: field for field in fields(Message)}
    properties: dict[str, Any] = {}
    for name, value in values.items():
        if name in (IDENTIFIER, DECODED):
            continue
        if name not in known:
            raise ValueError(f"{name!r} is not a message property; allowed: {', '.join(known)}")
        try:
            if name in _IDENTIFIERS + _GUIDS:
                value = bytes.fromhex(value)
            elif str(known[name].type) == "bytes":
                value = base64.b64decode(value, validate=True)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name}: {error}") from None
        properties[name] = value
    return Message(**properties)
