"""Messages and tables on a terminal, and as JSON for machines."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from openmsmq.cli import bodies
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
    """The inverse of `to_json`; what is for readers is passed over. Raises ValueError naming an unknown or malformed
    property."""
    known = {field.name: field for field in fields(Message)}
    properties: dict[str, Any] = {}
    for name, value in values.items():
        if name in (IDENTIFIER, DECODED):
            continue
        if name not in known:
            raise ValueError(f"{name!r} is no message property; known are {', '.join(known)}")
        try:
            if name in _IDENTIFIERS + _GUIDS:
                value = bytes.fromhex(value)
            elif str(known[name].type) == "bytes":
                value = base64.b64decode(value, validate=True)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name}: {error}") from None
        properties[name] = value
    return Message(**properties)


def print_json(value: Any) -> None:
    """One line; halves of surrogate pairs, which UTF-8 does not have, as JSON's escapes."""
    text = json.dumps(value, default=_plain, ensure_ascii=False)
    if any("\ud800" <= c <= "\udfff" for c in text):
        text = json.dumps(value, default=_plain)
    click.echo(text)


def show_message(message: Message, number: int, as_json: bool) -> None:
    """One of several messages; people get an empty line between them."""
    if as_json:
        shown = bodies.show(message)
        print_json({IDENTIFIER: message.id, **to_json(message), DECODED: {"kind": shown.kind, "value": shown.value}})
        return
    if number:
        click.echo()
    print_message(message)


def report(as_json: bool, text: str, document: Mapping[str, Any], err: bool = False) -> None:
    """Say what was done: a line for people, or a document for machines on standard output."""
    if as_json:
        print_json(document)
    else:
        click.echo(text, err=err)


def counted(number: int, one: str, many: str = "") -> str:
    """`1 message`, `1,200 messages`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    return value.hex() if isinstance(value, bytes) else str(value)


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
    shown = bodies.show(message)
    rows.append(("body", shown.text if "\n" not in shown.text else f"{shown.kind}\n{shown.text}"))
    for key, value in rows:
        click.echo(f"{key + ':':13}{bodies.printable(value)}")


def management_rows(properties: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Management properties for people: one line for each element of a list, times as such, nothing left empty."""
    rows = []
    for name, value in properties.items():
        values = value if isinstance(value, list) else [value]
        rows += [(name, _cell(name, element)) for element in values or ["none"]]
    return rows


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(key, element)}" for key, element in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    if name == "time" or name.endswith("_time"):
        return time_text(value) if value else "never"
    return str(value)


def class_name(value: int) -> str:
    try:
        return MessageClass(value).name
    except ValueError:
        return f"0x{value:04x}"


def time_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ").replace("+00:00", " UTC")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*[str(cell) for cell in row])
    Console(soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 200).print(table)


def progress(description: str) -> Progress:
    """A bar with count and rate on standard error; nothing where that is no terminal."""
    return Progress(
        SpinnerColumn(),
        TextColumn(description),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
