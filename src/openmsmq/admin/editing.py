"""Changes to a message before it is resent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from openmsmq.admin.message_json import from_json, to_json
from openmsmq.model.bodies import BodyError
from openmsmq.model.constants import INFINITE, VarType
from openmsmq.model.message import Message

TEXT: Final = "text"  # member with the body as text; a binary body is in `body`, in base64
#: Properties in the document; the queue manager sets the others.
_EDITABLE: Final = (
    "label", "body_type", "priority", "delivery_guarantee", "acknowledgements_requested", "journaling_requested",
    "application_tag", "correlation_identifier", "time_to_reach_queue", "time_to_be_received",
    "administration_queue_format_name", "response_queue_format_name",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MessageEdits:
    """Changed properties; None means unchanged. Times in seconds, counted from the resend. `body` is text or raw
    bytes."""

    label: str | None = None
    body: str | bytes | None = None
    priority: int | None = None
    time_to_reach_queue: int | None = None
    time_to_be_received: int | None = None

    def apply(self, message: Message) -> Message:
        """Return the changed message. Raises ValueError if the body type cannot represent the text."""
        values = {
            name: value
            for name in ("label", "priority", "time_to_reach_queue", "time_to_be_received")
            if (value := getattr(self, name)) is not None
        }
        if isinstance(self.body, bytes):
            values["body"] = self.body
        elif self.body is not None:
            values |= _encoded(message, self.body)
        return replace(message, **values)


def document(message: Message) -> dict[str, Any]:
    """Return the document for an editor: the properties that can be changed, and the body if it is text."""
    values = to_json(message)
    shown = {name: values[name] for name in _EDITABLE}
    for name in ("time_to_reach_queue", "time_to_be_received"):
        if shown[name] == INFINITE:
            shown[name] = None
    text = _text_of(message)
    return shown | ({"body": values["body"]} if text is None else {TEXT: text})


def edited(message: Message, changed: Mapping[str, Any]) -> Message:
    """Return the message with the values of an edited document. Raises ValueError that names the invalid member."""
    for name in changed:
        if name not in (*_EDITABLE, TEXT, "body"):
            raise ValueError(f"{name!r} can't be changed; allowed: {', '.join(_EDITABLE)}, {TEXT}, body")
    values = dict(changed)
    text = values.pop(TEXT, None)
    for name in ("time_to_reach_queue", "time_to_be_received"):
        if name in values and values[name] is None:
            values[name] = INFINITE
    given = from_json(values)
    result = replace(message, **{name: getattr(given, name) for name in values})
    if text is None:
        return result
    if not isinstance(text, str):
        raise ValueError(f"{TEXT} is {text!r}, allowed: text")
    return replace(result, **_encoded(result, text))


def _text_of(message: Message) -> str | None:
    """Return the body as text; None if encoding the text again would give different bytes."""
    try:
        value = message.decode()
    except BodyError:
        return None
    if isinstance(value, bytes):
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:
            return None
    elif isinstance(value, str):
        text = value
    else:
        return None
    try:
        same = _encoded(message, text)["body"] == message.body
    except ValueError:
        return None
    return text if same else None


_ENCODINGS: Final = {VarType.VT_BSTR: "utf-16-le", VarType.VT_LPWSTR: "utf-16-le", VarType.VT_LPSTR: "latin-1"}


def _encoded(message: Message, text: str) -> dict[str, Any]:
    """Encode text as the body of a message according to its body type; UTF-8 if the type is not known. Raises
    ValueError for a type that is not text."""
    kind = message.body_type
    if kind in _ENCODINGS:
        ended = "\0" if kind != VarType.VT_BSTR and message.body.endswith(b"\0") else ""
        return {"body": (text + ended).encode(_ENCODINGS[VarType(kind)])}
    try:
        value = message.decode()
    except BodyError:
        value = b""
    if not isinstance(value, bytes):
        raise ValueError(f"the body is a {type(value).__name__}, not text (type {kind})")
    return {"body": text.encode()}
