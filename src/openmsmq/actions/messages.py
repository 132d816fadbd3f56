"""Show pages of a queue and single messages with all details; send a message. Nothing here removes a message."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import replace
from shlex import quote
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from openmsmq.actions.dead_letters import DeadLetterReasonView
from openmsmq.actions.errors import ActionRefused, InputError
from openmsmq.actions.fields import CommandText, QueueText, Text, doc
from openmsmq.actions.filters import as_text, criteria_of, options_of
from openmsmq.actions.limits import HEX_BODY, PAGE, PAGE_BYTES, SCANNED, SEARCH_SECONDS, SEARCHED, SHOWN_BODY
from openmsmq.actions.paging import Next
from openmsmq.actions.queues import Limit, daemon_of
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Input, Output, action
from openmsmq.admin import body_text
from openmsmq.admin.message_json import to_json
from openmsmq.admin.naming import format_name_of
from openmsmq.admin.queues import is_transactional
from openmsmq.admin.selection import Criteria, preview
from openmsmq.client.open_queue import DirectionWord
from openmsmq.client.sync import MessageQueue, QueueManager
from openmsmq.model.constants import INFINITE, Access
from openmsmq.model.errors import MessageNotFound, ReceiveTimeout
from openmsmq.model.message import Message, identifier_from_text
from openmsmq.model.reasons import class_name, reason_of
from openmsmq.model.roles import Role

_STREAMS: Final = "it shows messages one after the other, as they are read by the protocols of MSMQ"
_OF_OPERATORS: Final[dict[str, Any]] = {"role": Role.OPERATOR, "place": "queue manager"}
MessageId = Annotated[str, doc("Identifier of the message.", r"{6f9619ff-8b86-d011-b42d-00c04fc964ff}\2049")]
BodyView = Literal["auto", "json", "xml", "text", "hex"]
QueueNameText = Annotated[str, Meta(max_length=1024)]
Lifetime = Annotated[int, Meta(ge=1, le=INFINITE - 1, extra={"amount": "time"})]
Seconds = Annotated[int, Meta(ge=0, le=INFINITE - 1, extra={"amount": "time"})]
Bytes = Annotated[int, Meta(ge=0, le=INFINITE - 1, extra={"amount": "size"})]


class MessageSummaryView(Output, frozen=True):
    """A message in a list."""

    lookup: Annotated[str, doc("Its lookup identifier; empty in an outgoing queue.", "7")]
    id: MessageId
    label: Annotated[str, doc("Its label.")]
    message_class: Annotated[str, doc("Its class.", "NORMAL")]
    reason: Annotated[str | None, doc("Why it is a dead letter, as one word; null if it is none.")]
    priority: Annotated[int, doc("Its priority, 0 to 7.")]
    sent: Annotated[int, doc("When it was sent, in seconds since 1970.")]
    arrived: Annotated[int, doc("When it arrived, in seconds since 1970.")]
    size: Annotated[int, doc("Bytes of its body.")]
    recoverable: Annotated[bool, doc("Whether it survives a restart of the daemon.")]
    transactional: Annotated[bool, doc("Whether it was sent in a transaction.")]
    destination: Annotated[str, doc("Format name of the destination queue.")]
    body: Annotated[str, doc("The beginning of its body.")]


class MessagePage(Output, frozen=True):
    """One page of messages."""

    messages: Annotated[list[MessageSummaryView], doc("The messages in the order of the queue.")]
    next: Next
    scanned: Annotated[int, doc("Number of messages examined for this page.")]
    command: CommandText


class MessageBody(Output, frozen=True):
    """A body as displayed."""

    kind: Annotated[str, doc("text, json, xml, nrbf, binary, empty, or a VARTYPE.", "text")]
    text: Annotated[str, doc("The body, or the beginning of it, as text.")]
    size: Annotated[int, doc("Bytes of the body.")]
    cut: Annotated[bool, doc("Whether only the beginning was decoded.")]
    problem: Annotated[str, doc("Why the body cannot be shown in the requested form; otherwise empty.")] = ""


class MessageDetails(Output, frozen=True):
    """A message with every property."""

    summary: Annotated[MessageSummaryView, doc("The message as shown in lists.")]
    reason: Annotated[DeadLetterReasonView | None, doc("Why it is a dead letter; null if it is none.")]
    body: Annotated[MessageBody, doc("Its body.")]
    properties: Annotated[
        dict[str, str | int | bool],
        doc("Properties by their specified names: bytes in base64, identifiers in hexadecimal."),
    ]
    command: CommandText


class PageQuery(Input, frozen=True):
    """Selects messages of a queue that match all given conditions."""

    queue: QueueText
    find: Annotated[Text | None, doc("Text in the label or body, or 8 characters or more of the identifier.")] = None
    label: Annotated[Text | None, doc("Text in the label, or a pattern with * and ?.")] = None
    text: Annotated[Text | None, doc("Text in the body.")] = None
    reason: Annotated[Text | None, doc("Reason of dead letters: a word, a name or a number.", "expired-unread")] = None
    destination: Annotated[Text | None, doc("Format name of the destination, or text in it.")] = None
    older: Annotated[Seconds | None, doc("Minimum time in the queue, in seconds.")] = None
    newer: Annotated[Seconds | None, doc("Maximum time in the queue, in seconds.")] = None
    limit: Limit = PAGE
    cursor: Annotated[Text | None, doc("`next` of the page before; null for the first page.")] = None


class NamedMessage(Input, frozen=True):
    """A message of a queue."""

    queue: QueueText
    lookup: Annotated[str, doc("Its lookup identifier.", "7")]


class ShownMessage(Input, frozen=True):
    """A message of a queue, and the form in which to show its body."""

    queue: QueueText
    lookup: Annotated[str, doc("Its lookup identifier.", "7")]
    view: Annotated[BodyView, doc("Form of the body: as its type and content suggest, or one of these.")] = "auto"


class NewMessage(Input, frozen=True):
    """A message to send. Its body is `text` or `base64`."""

    queue: QueueText
    text: Annotated[str | None, doc("The body as text.", "Hello")] = None
    base64: Annotated[str | None, doc("The body as bytes, in base64.")] = None
    label: Annotated[str, Meta(max_length=249, description="Its label.")] = ""
    priority: Annotated[int, Meta(ge=0, le=7, description="Its priority.")] = 3
    recoverable: Annotated[bool, doc("Survives a restart of the daemon.")] = False
    transaction: Annotated[
        bool, doc("Send it in a transaction (required for a transactional queue of another machine).")
    ] = False
    time_to_reach_queue: Annotated[
        Lifetime | None, doc("Seconds until it expires if it has not reached its queue; null for never.")
    ] = None
    time_to_be_received: Annotated[Lifetime | None, doc("Time limit to be received, in seconds; null for none.")] = None
    response_queue: Annotated[QueueNameText, doc("Queue for answers; empty for none.")] = ""
    administration_queue: Annotated[
        QueueNameText, doc("Queue for acknowledgments, all of which are requested; empty for none.")
    ] = ""
    correlation: Annotated[str, Meta(max_length=80, description="Correlation identifier; empty for none.")] = ""
    deadletter: Annotated[bool, doc("Keep a copy as a dead letter if it expires.")] = False
    journal: Annotated[bool, doc("Keep a copy in the journal of the machine.")] = False


class Sent(Output, frozen=True):
    """A message that was sent."""

    id: MessageId
    command: CommandText


# -- queries -------------------------------------------------------------------------------------------------------


def summary_of(message: Message) -> MessageSummaryView:
    dead = bool(message.message_class & 0x8000)
    return MessageSummaryView(
        str(message.lookup_identifier) if message.lookup_identifier else "", message.id, message.label,
        class_name(message.message_class), reason_of(message.message_class).slug if dead else None, message.priority,
        message.sent_time, message.arrival_time, len(message.body), message.recoverable, message.is_transactional,
        message.destination_queue_format_name, preview(_beginning(message)),
    )  # fmt: skip


@action(
    "message.list", http="GET /queues/{queue}/messages", statuses=(400, 409), **_OF_OPERATORS,
    commands=(ActionCommand("peek", {"queue": "QUEUE", "limit": "--count"}, by_hand=_STREAMS),),
)  # fmt: skip
def list_messages(site: ActionSite, given: PageQuery) -> MessagePage:
    """List the messages of a queue, in pages.

    For one page, a search reads at most 5,000 messages and takes at most about two seconds. A page can have few or no
    messages and still a `next`: the next page continues where this one stopped.
    """
    row, daemon = site.queue, daemon_of(site)
    after = None
    if given.cursor is not None:
        known = daemon.unseal(given.cursor, "cursor")
        if known.get("queue") != row["id"]:
            raise ActionRefused(400, "this cursor belongs to another queue", "cursor")
        after = int(known["after"])
    criteria, now, until = criteria_of(given), time.time(), time.monotonic() + SEARCH_SECONDS
    searches = criteria != Criteria()
    found: list[MessageSummaryView] = []
    size, scanned, last, following = 0, 0, 0, None
    with closing(messages_behind(site.manager, row, after)) as messages:
        for message in messages:
            is_long = searches and scanned and (scanned >= SEARCHED or time.monotonic() >= until)
            if len(found) == given.limit or size > PAGE_BYTES or is_long:
                if last:
                    following = daemon.seal({"queue": row["id"], "after": str(last)})
                break
            scanned, last = scanned + 1, message.lookup_identifier
            if not searches or criteria.matches(message, now):
                found.append(summary_of(message))
                size += len(message.body)
    command = _command("peek", row)
    if searches and row["kind"] != "outgoing":  # `msg find` reads queues of this machine only
        command = f"openmsmq msg find {quote(row['name'])}{as_text(options_of(given))}"
    return MessagePage(found, following, scanned, command)


def messages_behind(manager: QueueManager, row: Mapping[str, Any], after: int | None) -> Generator[Message, None, None]:
    """Yield the messages after a lookup identifier; with None, all messages."""
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
    """Return the message after `after`. If that message was removed, most messages before it were removed, too, so the
    search begins at the first one. Raises ActionRefused if it takes too long.
    """
    found = _looked_up(opened, after, "next")
    if found is not None or _looked_up(opened, after, "current") is not None:
        return found
    found = _first(opened)
    for _ in range(SCANNED):
        if found is None or found.lookup_identifier > after:
            return found
        found = _looked_up(opened, found.lookup_identifier, "next")
    raise ActionRefused(
        409, "the messages at the end of the last page no longer exist: start again with the first page"
    )


def _looked_up(opened: MessageQueue, identifier: int, direction: DirectionWord) -> Message | None:
    try:
        return opened.peek_by_lookup_id(identifier, direction)
    except MessageNotFound:
        return None


def message_at(site: ActionSite, lookup: str) -> Message:
    """Return the message of a queue with a lookup identifier. Raises ActionRefused, MessageNotFound."""
    row = site.queue
    is_number = lookup.isascii() and lookup.isdecimal() and len(lookup) <= 20 and 0 < int(lookup) < 1 << 64
    if not is_number or row["kind"] == "outgoing":
        raise ActionRefused(404, f"no message {lookup[:40]} in {row['name']}")
    with site.manager.open(row["open"], "peek") as opened:
        return opened.peek_by_lookup_id(int(lookup))


@action(
    "message.show", http="GET /queues/{queue}/messages/{lookup}", statuses=(409,), **_OF_OPERATORS,
    commands=(ActionCommand("msg find", {"queue": "QUEUE", "lookup": "--id"}, by_hand=_STREAMS),),
)  # fmt: skip
def get_message(site: ActionSite, given: ShownMessage) -> MessageDetails:
    """Show a message with every property."""
    return details_of(message_at(site, given.lookup), _command("peek", site.queue), given.view)


def details_of(message: Message, command: str, view: BodyView = "auto") -> MessageDetails:
    body = _body_of(message, view)
    properties = to_json(message)
    del properties["body"]
    properties["lookup_identifier"] = str(message.lookup_identifier)
    reason = None
    if message.message_class & 0x8000:
        known = reason_of(message.message_class)
        reason = DeadLetterReasonView(known.slug, known.name, known.sentence, known.remedy, known.fails_again)
    return MessageDetails(summary_of(message), reason, body, properties, command)


def _body_of(message: Message, view: BodyView) -> MessageBody:
    size = len(message.body)
    if view == "hex":
        lines = body_text.hex_lines(message.body, HEX_BODY)
        return MessageBody("hex", "\n".join(lines), size, size > HEX_BODY)
    cut = _beginning(message)
    is_cut = len(cut.body) < size
    if view == "auto":
        shown = body_text.show(cut)
        return MessageBody(shown.kind, shown.text[: 4 * SHOWN_BODY], size, is_cut)
    try:
        text = body_text.show_as(cut, view)
    except ValueError as error:
        why = f"only the first {SHOWN_BODY:,} bytes are decoded" if is_cut else str(error)
        return MessageBody(body_text.show(cut).kind, "", size, is_cut, f"the body is not {view.upper()}: {why}")
    return MessageBody(view, text[: 4 * SHOWN_BODY], size, is_cut)


def _beginning(message: Message) -> Message:
    """Return the message with the part of its body that is decoded: decoding takes time and memory. A typed value
    cannot be cut, so the beginning of one becomes bytes. UTF-8 text is cut between characters.
    """
    if len(message.body) <= SHOWN_BODY:
        return message
    body = message.body[:SHOWN_BODY]
    for shorter in range(3):
        if body_text.text_of(body[: len(body) - shorter]) is not None:
            body = body[: len(body) - shorter]
            break
    return replace(message, body=body, body_type=0)


def _command(what: str, row: Mapping[str, Any]) -> str:
    if row["kind"] == "outgoing":
        return f"openmsmq outgoing peek {quote(row['name'])}"
    return f"openmsmq {what} {quote(row['name'])}"


# -- sending -------------------------------------------------------------------------------------------------------


@action(
    "message.send", http="POST /queues/{queue}/messages", status=201, effect="changes",
    statuses=(409, 507), **_OF_OPERATORS,
    commands=(
        ActionCommand(
            "send", {name: name for name in NewMessage.__struct_fields__},
            by_hand="it reads files, and sends straight to other machines where there is no queue manager",
        ),
    ),
)  # fmt: skip
def send_message(site: ActionSite, given: NewMessage) -> Sent:
    """Send a message."""
    row, manager, message = site.queue, site.manager, message_of(given)
    with manager.open(row["open"], "send") as opened:
        if given.transaction or is_transactional(manager, row["open"]):
            with manager.transaction() as transaction:
                identifier = opened.send(message, transaction=transaction)
        else:
            identifier = opened.send(message)
    daemon_of(site).changed()
    return Sent(identifier, f"openmsmq send {quote(row['name'])} BODY")


def message_of(given: NewMessage) -> Message:
    """Build the message to send. Raises InputError that names the invalid member."""
    if (given.text is None) == (given.base64 is None):
        raise InputError("give text or base64, and not both", errors={"/text": "or base64", "/base64": "or text"})
    value: str | bytes = given.text if given.text is not None else b""
    if given.base64 is not None:
        try:
            value = base64.b64decode(given.base64, validate=True)
        except (binascii.Error, ValueError):
            raise InputError("the value of base64 is not valid base64", "/base64") from None
    properties: dict[str, Any] = {
        "label": given.label, "priority": given.priority, "delivery_guarantee": int(given.recoverable),
        "response_queue_format_name": path_name(given.response_queue),
        "administration_queue_format_name": path_name(given.administration_queue),
        "acknowledgements_requested": 0x0F if given.administration_queue else 0,
        "journaling_requested": int(given.deadletter) | int(given.journal) << 1,
    }  # fmt: skip
    for name in ("time_to_reach_queue", "time_to_be_received"):
        if getattr(given, name) is not None:
            properties[name] = getattr(given, name)
    if given.correlation:
        try:
            properties["correlation_identifier"] = identifier_from_text(given.correlation)
        except ValueError as error:
            raise InputError(str(error), "/correlation") from None
    try:
        return Message.of(value, **properties)
    except (ValueError, UnicodeError) as error:
        raise InputError(str(error), "/text") from None


def path_name(name: str) -> str:
    """Convert a name that a user typed to a format name: `orders` becomes a direct one."""
    return format_name_of(name) if name else ""


ACTIONS: Final = (list_messages, get_message, send_message)
