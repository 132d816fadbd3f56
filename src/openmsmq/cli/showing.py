"""Messages on a terminal."""

from __future__ import annotations

import sys
import textwrap

from openmsmq.admin import body_text
from openmsmq.admin.message_json import DECODED, IDENTIFIER, to_json
from openmsmq.cli.output import echo, print_json
from openmsmq.model.message import Message
from openmsmq.model.reasons import class_name
from openmsmq.model.text import time_text


def show_message(message: Message, number: int, as_json: bool) -> None:
    """Print one of several messages; as text, they are separated by empty lines."""
    if as_json:
        shown = body_text.show(message)
        print_json({IDENTIFIER: message.id, **to_json(message), DECODED: {"kind": shown.kind, "value": shown.value}})
        return
    if number:
        echo()
    print_message(message)


def write_body(message: Message) -> None:
    """Write the bytes of a body to standard output."""
    sys.stdout.buffer.write(message.body)
    sys.stdout.buffer.flush()


def print_message(message: Message) -> None:
    """Print a message on several lines: the properties that are set, then the body."""
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
