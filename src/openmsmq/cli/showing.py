"""Messages on a terminal, and as JSON for machines."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from openmsmq.cli import body_text
from openmsmq.cli.output import echo, print_json, time_text
from openmsmq.model.constants import MessageClass
from openmsmq.model.message import Message

_IDENTIFIERS = ("identifier", "correlation_identifier", "transaction_identifier")
IDENTIFIER, DECODED = "id", "decoded"  # beside the properties in JSON for readers: the identifier, what the body is
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


def show_message(message: Message, number: int, as_json: bool) -> None:
    """One of several messages; people get an empty line between them."""
    if as_json:
        shown = body_text.show(message)
        print_json({IDENTIFIER: message.id, **to_json(message), DECODED: {"kind": shown.kind, "value": shown.value}})
        return
    if number:
        echo()
    print_message(message)


def print_message(message: Message) -> None:
    """One message on several lines: what is set, then the body."""
    rows: list[tuple[str, str]] = [("id", message.id)]
    if message.label:
        rows.append(("label", message.label))
    rows.append(("class", class_name(message.message_class)))
    rows += [("sent", time_text(message.sent_time)), ("arrived", time_text(message.arrival_time))]
    delivery = "recoverable" if message.recoverable else "express"
    rows.append(("delivery", f"{delivery}, priority {message.priority}"))
    for name in ("destination", "response", "administration"):
        value = getattr(message, f"{name}_queue_format_name")
        if value:
            rows.append((name, value))
    for key, value in rows:
        echo(f"{key + ':':13}{value}")
    shown = body_text.show(message)
    text = shown.text
    if "\n" in text:  # lines of a body do not begin where the names of properties do
        text = shown.kind + "\n" + textwrap.indent(text, "  ", lambda line: True)
    echo(f"{'body:':13}{text}", multiline=True)


def class_name(value: int) -> str:
    try:
        return MessageClass(value).name
    except ValueError:
        return f"0x{value:04x}"
