"""Messages as JSON documents, and back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from openmsmq.model.message import Message

_IDENTIFIERS = ("identifier", "correlation_identifier", "transaction_identifier")
IDENTIFIER, DECODED = "id", "decoded"  # additional members for readers: the identifier, the decoded body
_GUIDS = ("source_machine_identifier", "connector_type_identifier")


def to_json(message: Message) -> dict[str, Any]:
    """Return all properties of a message; `from_json` restores the same message. Bytes are in base64, identifiers in
    hexadecimal."""
    result: dict[str, Any] = {}
    for field in fields(Message):
        value = getattr(message, field.name)
        if field.name in _IDENTIFIERS + _GUIDS:
            value = value.hex()
        elif isinstance(value, bytes):
            value = base64.b64encode(value).decode()
        result[field.name] = value
    return result


_NUMBER: Final = "a whole number"
_KINDS: Final = {"int": (int, _NUMBER), "str": (str, "text"), "bool": (int, "true or false")}


def from_json(values: Mapping[str, Any]) -> Message:
    """Convert the result of `to_json` to a message; the additional members for readers are ignored. Raises ValueError
    that names an unknown or malformed property."""
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
        kind, allowed = _KINDS.get(str(known[name].type), (object, ""))
        if not isinstance(value, kind) or (allowed == _NUMBER and isinstance(value, bool)):
            raise ValueError(f"{name} is {value!r}, allowed: {allowed}")
        properties[name] = value
    return Message(**properties)
