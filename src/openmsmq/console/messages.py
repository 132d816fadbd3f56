"""Messages: pages of a queue, one with all that is known of it, its body; sending one. A look takes nothing away."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import replace
from shlex import quote
from typing import Annotated, Any, Final

import msgspec
from starlette.responses import Response

from openmsmq.actions.table import Input, Output
from openmsmq.admin import body_text
from openmsmq.admin.message_json import to_json
from openmsmq.admin.naming import path_of
from openmsmq.admin.queues import is_transactional
from openmsmq.admin.selection import preview
from openmsmq.client.sync import MessageQueue, QueueManager
from openmsmq.console.limits import PAGE, PAGE_BYTES, SCANNED, SHOWN_BODY
from openmsmq.console.problems import Problem
from openmsmq.console.queues import Limit, Text
from openmsmq.console.table import HttpOperation, WebRequest
from openmsmq.model.constants import INFINITE, Access
from openmsmq.model.errors import MessageNotFound, ReceiveTimeout
from openmsmq.model.message import Message, identifier_from_text
from openmsmq.model.reasons import class_name, reason_of
from openmsmq.model.roles import Role

_NAME_LENGTH: Final = 1024


class MessageSummaryView(Output, frozen=True):
    """A message in a list. `lookup` is its lookup identifier, empty in an outgoing queue, which has none for readers;
    `reason` is why it is a dead letter. Times in seconds since 1970. `body` is the beginning of it."""

    lookup: str
    id: str
    label: str
    message_class: str
    reason: str | None
    priority: int
    sent: int
    arrived: int
    size: int
    recoverable: bool
    transactional: bool
    destination: str
    body: str


class MessagePage(Output, frozen=True):
    """One page in the order of the queue; `next` is the cursor of what follows."""

    messages: list[MessageSummaryView]
    next: str | None
    command: str


class DeadLetterReasonView(Output, frozen=True):
    slug: str
    name: str
    sentence: str
    remedy: str
    fails_again: bool


class Body(Output, frozen=True):
    """What a body is: `kind` is text, json, xml, nrbf, binary, empty or a VARTYPE; `text` shows it. `cut`: only the
    beginning of it was looked at."""

    kind: str
    text: str
    size: int
    cut: bool


class MessageDetails(Output, frozen=True):
    """Every property by its specified name: bytes in base64, identifiers and GUIDs in hexadecimal."""

    summary: MessageSummaryView
    reason: DeadLetterReasonView | None
    body: Body
    properties: dict[str, str | int | bool]
    command: str


class PageQuery(Input, frozen=True):
    limit: Limit = PAGE
    cursor: Text | None = None


class NewMessage(Input, frozen=True):
    """A body is `text`, or `base64`. Times in seconds. `transaction` for a transactional queue of another machine."""

    text: str | None = None
    base64: str | None = None
    label: Annotated[str, msgspec.Meta(max_length=249)] = ""
    priority: Annotated[int, msgspec.Meta(ge=0, le=7)] = 3
    recoverable: bool = False
    transaction: bool = False
    time_to_reach_queue: Annotated[int, msgspec.Meta(ge=1, le=INFINITE - 1)] | None = None
    time_to_be_received: Annotated[int, msgspec.Meta(ge=1, le=INFINITE - 1)] | None = None
    response_queue: Annotated[str, msgspec.Meta(max_length=_NAME_LENGTH)] = ""
    administration_queue: Annotated[str, msgspec.Meta(max_length=_NAME_LENGTH)] = ""
    correlation: Annotated[str, msgspec.Meta(max_length=80)] = ""
    deadletter: bool = False
    journal: bool = False


class Sent(Output, frozen=True):
    id: str
    command: str


# -- looking -------------------------------------------------------------------------------------------------------


def summary_of(message: Message) -> MessageSummaryView:
    dead = bool(message.message_class & 0x8000)
    return MessageSummaryView(
        str(message.lookup_identifier) if message.lookup_identifier else "", message.id, message.label,
        class_name(message.message_class), reason_of(message.message_class).slug if dead else None, message.priority,
        message.sent_time, message.arrival_time, len(message.body), message.recoverable, message.is_transactional,
        message.destination_queue_format_name, preview(_beginning(message)),
    )  # fmt: skip


def list_messages(asked: WebRequest) -> MessagePage:
    row = asked.services.queue(asked.caller.ticket, asked.path["queue"])
    query: PageQuery = asked.query
    after = None
    if query.cursor is not None:
        known = asked.services.seals.open(query.cursor, "cursor")
        if known.get("queue") != row["id"]:
            raise Problem(400, "this cursor belongs to another queue", errors={"cursor": "of another queue"})
        after = int(known["after"])
    found: list[MessageSummaryView] = []
    size, following = 0, None
    with asked.queue_manager() as manager, closing(_walk(manager, row, after)) as messages:
        for message in messages:
            if len(found) == query.limit or size > PAGE_BYTES:
                if found[-1].lookup:
                    following = asked.services.seals.seal({"queue": row["id"], "after": found[-1].lookup})
                break
            found.append(summary_of(message))
            size += len(message.body)
    return MessagePage(found, following, _command("peek", row))


def _walk(manager: QueueManager, row: Mapping[str, Any], after: int | None) -> Generator[Message, None, None]:
    """The messages behind a lookup identifier, from the first one on for None."""
    access = Access.PEEK_ADMIN if row["kind"] == "outgoing" else Access.PEEK
    with manager.open(row["open"], access) as opened:
        if row["kind"] == "outgoing":  # MS-MQRR reads queues of this machine only
            yield from opened
            return
        message = _first(opened) if after is None else _next(opened, after)
        while message is not None:
            yield message
            message = _next(opened, message.lookup_identifier)


def _first(opened: MessageQueue) -> Message | None:
    try:
        return opened.peek(0)
    except ReceiveTimeout:
        return None


def _next(opened: MessageQueue, after: int) -> Message | None:
    """The message behind `after`. A queue knows what follows a message that is there. Where it is gone, mostly all
    before it are gone, too: the search begins at the first one. Raises Problem where it takes too long."""
    found = _looked_up(opened, after, "next")
    if found is not None or _looked_up(opened, after, "current") is not None:
        return found
    found = _first(opened)
    for _ in range(SCANNED):
        if found is None or found.lookup_identifier > after:
            return found
        found = _looked_up(opened, found.lookup_identifier, "next")
    raise Problem(409, "the place where the last page ended is lost: begin anew")


def _looked_up(opened: MessageQueue, identifier: int, direction: str) -> Message | None:
    try:
        return opened.peek_by_lookup_id(identifier, direction)
    except MessageNotFound:
        return None


def _found(asked: WebRequest) -> tuple[dict[str, Any], Message]:
    """The message that the path names. Raises Problem, MessageNotFound."""
    row = asked.services.queue(asked.caller.ticket, asked.path["queue"])
    text = asked.path["lookup"]
    if not text.isascii() or not text.isdecimal() or len(text) > 20 or int(text) >> 64 or row["kind"] == "outgoing":
        raise Problem(404, f"there is no message {text[:40]} in {row['name']}")
    with asked.queue_manager() as manager, manager.open(row["open"], "peek") as opened:
        return row, opened.peek_by_lookup_id(int(text))


def get_message(asked: WebRequest) -> MessageDetails:
    row, message = _found(asked)
    return details_of(message, _command("peek", row))


def details_of(message: Message, command: str) -> MessageDetails:
    cut = _beginning(message)
    shown = body_text.show(cut)
    properties = to_json(message)
    del properties["body"]
    properties["lookup_identifier"] = str(message.lookup_identifier)
    reason = None
    if message.message_class & 0x8000:
        known = reason_of(message.message_class)
        reason = DeadLetterReasonView(known.slug, known.name, known.sentence, known.remedy, known.fails_again)
    body = Body(shown.kind, shown.text[: 4 * SHOWN_BODY], len(message.body), len(cut.body) < len(message.body))
    return MessageDetails(summary_of(message), reason, body, properties, command)


def _beginning(message: Message) -> Message:
    """The message with as much of its body as is looked at: decoding takes time, and what was made of it room. A value
    of a type can't be cut, so the beginning of one is bytes; of a text in UTF-8 no character is cut."""
    if len(message.body) <= SHOWN_BODY:
        return message
    body = message.body[:SHOWN_BODY]
    for shorter in range(3):
        if body_text.text_of(body[: len(body) - shorter]) is not None:
            body = body[: len(body) - shorter]
            break
    return replace(message, body=body, body_type=0)


def get_body(asked: WebRequest) -> Response:
    """The bytes, for a file: no browser shows them."""
    _, message = _found(asked)
    name = f"message-{message.lookup_identifier}.bin"
    return Response(
        message.body,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _command(what: str, row: Mapping[str, Any]) -> str:
    if row["kind"] == "outgoing":
        return f"openmsmq outgoing peek {quote(row['name'])}"
    return f"openmsmq {what} {quote(row['name'])}"


# -- sending -------------------------------------------------------------------------------------------------------


def send_message(asked: WebRequest) -> Sent:
    row = asked.services.queue(asked.caller.ticket, asked.path["queue"])
    message = message_of(asked.body)
    with asked.queue_manager() as manager, manager.open(row["open"], "send") as opened:
        if asked.body.transaction or is_transactional(manager, row["open"]):
            with manager.transaction() as transaction:
                identifier = opened.send(message, transaction=transaction)
        else:
            identifier = opened.send(message)
    asked.services.rows.forget(asked.caller.ticket)
    return Sent(identifier, f"openmsmq send {quote(row['name'])} BODY")


def message_of(body: NewMessage) -> Message:
    """Raises Problem naming the member that is wrong."""
    if (body.text is None) == (body.base64 is None):
        raise Problem(422, "give text or base64, and not both", errors={"/text": "or base64", "/base64": "or text"})
    value: str | bytes = body.text if body.text is not None else b""
    if body.base64 is not None:
        try:
            value = base64.b64decode(body.base64, validate=True)
        except (binascii.Error, ValueError):
            raise Problem(422, "base64 is not base64", errors={"/base64": "not base64"}) from None
    properties: dict[str, Any] = {
        "label": body.label, "priority": body.priority, "delivery_guarantee": int(body.recoverable),
        "response_queue_format_name": path_name(body.response_queue),
        "administration_queue_format_name": path_name(body.administration_queue),
        "journaling_requested": int(body.deadletter) | int(body.journal) << 1,
    }  # fmt: skip
    for name in ("time_to_reach_queue", "time_to_be_received"):
        if getattr(body, name) is not None:
            properties[name] = getattr(body, name)
    if body.correlation:
        try:
            properties["correlation_identifier"] = identifier_from_text(body.correlation)
        except ValueError as error:
            raise Problem(422, str(error), errors={"/correlation": str(error)}) from None
    try:
        return Message.of(value, **properties)
    except (ValueError, UnicodeError) as error:
        raise Problem(422, str(error), errors={"/text": str(error)}) from None


def path_name(name: str) -> str:
    """A format name for what a person typed: `orders` becomes a direct one."""
    if not name or "=" in name:
        return name
    return f"DIRECT=OS:{path_of(name)}"


OPERATIONS: Final = (
    HttpOperation("GET", "/queues/{queue}/messages", list_messages, "Messages of a queue, in pages", MessagePage,
              PageQuery, statuses=(400, 404, 409), role=Role.OPERATOR),
    HttpOperation("POST", "/queues/{queue}/messages", send_message, "Send a message", Sent, body=NewMessage, status=201,
              statuses=(404, 409, 507), role=Role.OPERATOR),
    HttpOperation("GET", "/queues/{queue}/messages/{lookup}", get_message, "One message with every property",
              MessageDetails, statuses=(404, 409), role=Role.OPERATOR),
    HttpOperation("GET", "/queues/{queue}/messages/{lookup}/body", get_body, "The bytes of a body",
              media_type="application/octet-stream", statuses=(404, 409), role=Role.OPERATOR),
)  # fmt: skip
