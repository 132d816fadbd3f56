"""Messages for browsers: body bytes, export as a file, and the form that resends a message."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Final, NamedTuple

from msgspec import Meta
from starlette.responses import Response

from openmsmq.actions.filters import criteria_of
from openmsmq.actions.limits import PAGE_BYTES, SCANNED, SHOWN_BODY
from openmsmq.actions.messages import MessageDetails, NamedMessage, details_of, get_message, message_at
from openmsmq.actions.resending import editable_text, target_of
from openmsmq.actions.selections import MOST, MessageFilter
from openmsmq.actions.table import Input
from openmsmq.admin.message_json import to_json
from openmsmq.admin.selection import Selection, search
from openmsmq.console.derived import action_errors, site_of
from openmsmq.console.forms import is_unchanged
from openmsmq.console.problems import Problem
from openmsmq.console.table import HttpOperation, WebRequest
from openmsmq.model.constants import INFINITE, Journal
from openmsmq.model.message import Message, identifier_text
from openmsmq.model.roles import Role
from openmsmq.model.text import printable

_NONE: Final = bytes(20)  # no correlation identifier
_BOXES: Final = ("recoverable", "deadletter", "journal")


def get_body(asked: WebRequest) -> Response:
    with action_errors(get_message), site_of(get_message, asked) as site:
        message = message_at(site, asked.path["lookup"])
    return Response(
        message.body,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="message-{message.lookup_identifier}.bin"'},
    )


OPERATIONS: Final = (
    HttpOperation(
        "GET", "/queues/{queue}/messages/{lookup}/body", get_body, "The bytes of a body",
        media_type="application/octet-stream", statuses=(404, 409), role=Role.OPERATOR, path_fields=NamedMessage,
    ),
)  # fmt: skip


# -- messages as a file --------------------------------------------------------------------------------------------


class MessageExport(Input, frozen=True):
    """Selects the messages to export: the first ones that match."""

    where: MessageFilter = MessageFilter()
    first: Annotated[int, Meta(ge=1, le=MOST)] = MOST


def export(asked: WebRequest) -> Response:
    """Return messages as JSON lines, the format of `openmsmq export` and `openmsmq import`. Raises Problem if the file
    would exceed the limit of a request; the command has no limit."""
    lines: list[bytes] = []
    size = 0
    with action_errors(get_message), site_of(get_message, asked) as site:
        if site.queue["kind"] == "outgoing":
            raise Problem(409, "messages of an outgoing queue cannot be exported")
        found = Selection()
        wanted = criteria_of(asked.body.where)
        looked = search(
            site.manager, site.queue["open"], wanted, time.time(), found, limit=asked.body.first, scan=SCANNED
        )
        with closing(looked) as messages:
            for message in messages:
                size += len(message.body)
                if size > PAGE_BYTES:
                    raise Problem(409, f"more than {PAGE_BYTES >> 20} MB of bodies: choose fewer messages, or use "
                                  "`openmsmq export`, which has no limit")  # fmt: skip
                lines.append(json.dumps(to_json(message)).encode() + b"\n")
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in site.queue["name"])[-60:]
    return Response(
        b"".join(lines), media_type="application/x-ndjson",
        headers={"Content-Disposition": f'attachment; filename="{name}.jsonl"'},
    )  # fmt: skip


# -- resending -----------------------------------------------------------------------------------------------------


class ResendingForm(NamedTuple):
    """A message, and the fields of the form that resends it, as shown. `is_text`: the body can be edited. `to`: the
    default destination queue."""

    details: MessageDetails
    fields: dict[str, str]
    is_text: bool
    to: str


def resending_form(asked: WebRequest) -> ResendingForm:
    with action_errors(get_message), site_of(get_message, asked) as site:
        message = message_at(site, asked.path["lookup"])
        text = editable_text(message)
        to = target_of(site.queue, message)
    is_text = text is not None and len(text) <= SHOWN_BODY and printable(text, multiline=True) == text
    return ResendingForm(details_of(message, ""), _fields(message, text if is_text else None), is_text, to)


def _fields(message: Message, text: str | None) -> dict[str, str]:
    found = {
        "label": message.label, "priority": str(message.priority), "response_queue": message.response_queue_format_name,
        "administration_queue": message.administration_queue_format_name,
        "application_tag": str(message.application_tag), "acknowledge": str(message.acknowledgements_requested),
        "correlation": (
            "" if message.correlation_identifier == _NONE else identifier_text(message.correlation_identifier)
        ),
        "recoverable": "true" if message.recoverable else "false",
        "deadletter": "true" if message.journaling_requested & Journal.DEADLETTER else "false",
        "journal": "true" if message.journaling_requested & Journal.JOURNAL else "false",
    }  # fmt: skip
    for name in ("time_to_reach_queue", "time_to_be_received"):
        seconds = getattr(message, name)
        found[name] = "" if seconds == INFINITE else str(seconds)
    return found if text is None else {**found, "text": text}


def changes_in(form: Mapping[str, str], shown: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a form that the user has changed. Browsers send each line end as CR LF; text without CR LF
    gets its own line ends back."""
    given = {**dict.fromkeys(_BOXES, "false"), **form}
    changed = {
        name: value for name, value in given.items()
        if name not in shown or not is_unchanged(value, shown[name], multiline=name == "text")
    }  # fmt: skip
    for name in ("time_to_reach_queue", "time_to_be_received"):
        if changed.get(name) == "":
            changed[name] = "0"  # never
    if "text" in shown and "text" in changed and "\r\n" not in shown["text"]:
        changed["text"] = changed["text"].replace("\r\n", "\n")
    if "text" not in shown:
        changed.pop("text", None)
    return changed
