"""Resend a message with changes: a new message replaces the original or is sent in addition to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from shlex import quote
from typing import Annotated, Any, Final

from msgspec import Meta

from openmsmq.actions.errors import ActionRefused, InputError
from openmsmq.actions.fields import CommandText, QueueText, RecordNumber, doc
from openmsmq.actions.messages import MessageId, QueueNameText, message_at, path_name
from openmsmq.actions.queues import daemon_of
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Input, Output, action
from openmsmq.admin.editing import TEXT, document, edited
from openmsmq.admin.naming import path_of
from openmsmq.admin.queues import is_transactional, missing
from openmsmq.client.dead_letters import IN_ONE_TRANSACTION, SENT_THEN_REMOVED, open_target, sendable, walk
from openmsmq.client.sync import MessageQueue, QueueManager, Transaction
from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import MessageAlreadyReceived, MessageNotFound
from openmsmq.model.message import Message, identifier_from_text
from openmsmq.model.roles import Role

Seconds = Annotated[int, Meta(ge=0, le=INFINITE - 1)]
Number = Annotated[int, Meta(ge=0, le=0xFFFFFFFF)]
#: Kinds of queues whose messages had another destination.
_MEANT_ELSEWHERE: Final = ("deadletter", "journal", "subqueue")
KEPT: Final = "sent, and the original stays"


class ChangedMessage(Input, frozen=True):
    """A message to resend with changes. Omitted properties do not change."""

    queue: QueueText
    lookup: Annotated[str, doc("Lookup identifier of the message.", "7")]
    to: Annotated[
        QueueNameText | None,
        doc(
            "Queue to send to. By default, dead letters and messages of journals go to the queue that they were sent "
            "to, other messages to their own queue.",
            "orders",
        ),
    ] = None
    keep: Annotated[bool, doc("Keep the original.")] = False
    transaction: Annotated[bool, doc("Send in a transaction (required for a remote transactional queue).")] = False
    text: Annotated[str | None, doc("New body, as text in the form of the old one.")] = None
    label: Annotated[Annotated[str, Meta(max_length=249)] | None, doc("New label.")] = None
    priority: Annotated[Annotated[int, Meta(ge=0, le=7)] | None, doc("New priority.")] = None
    recoverable: Annotated[bool | None, doc("Survives a restart of the daemon.")] = None
    time_to_reach_queue: Annotated[
        Seconds | None, doc("Seconds from now until it expires if it has not reached its queue; 0 for never.")
    ] = None
    time_to_be_received: Annotated[
        Seconds | None, doc("New time limit to be received, in seconds from now; 0 for none.")
    ] = None
    response_queue: Annotated[QueueNameText | None, doc("Queue for answers; empty for none.")] = None
    administration_queue: Annotated[QueueNameText | None, doc("Queue for acknowledgments; empty for none.")] = None
    correlation: Annotated[
        Annotated[str, Meta(max_length=80)] | None, doc("Correlation identifier; empty for none.")
    ] = None
    deadletter: Annotated[bool | None, doc("Keep a copy as a dead letter if it expires.")] = None
    journal: Annotated[bool | None, doc("Keep a copy in the journal of the machine.")] = None
    acknowledge: Annotated[Annotated[int, Meta(ge=0, le=255)] | None, doc("Requested acknowledgments, as bits.")] = None
    application_tag: Annotated[Number | None, doc("A number for the application.")] = None


class SentAgain(Output, frozen=True):
    """A message that was resent."""

    id: Annotated[str, doc("Identifier of the new message.", r"{6f9619ff-8b86-d011-b42d-00c04fc964ff}\2050")]
    original: MessageId
    queue: Annotated[str, doc("Queue of the original.", "orders")]
    to: Annotated[str, doc("Destination queue.", "orders")]
    how: Annotated[str, doc("How the message was resent.", SENT_THEN_REMOVED)]
    record: RecordNumber
    command: CommandText


def target_of(row: Any, message: Message) -> str:
    """Return the default destination of a message."""
    return message.destination_queue_format_name if row["kind"] in _MEANT_ELSEWHERE else str(row["open"])


@action(
    "message.resend", http="POST /queues/{queue}/messages/{lookup}/resend", effect="destroys",
    audit=("messages.resend",), statuses=(404, 409), role=Role.OPERATOR, place="queue manager",
    commands=(
        ActionCommand(
            "msg resend", {name: name for name in ChangedMessage.__struct_fields__},
            by_hand="it reports each message as it is processed, and can open an editor",
        ),
    ),
)  # fmt: skip
def resend_message(site: ActionSite, given: ChangedMessage) -> SentAgain:
    """Resend a message with changes.

    The new message has a new identifier. The original is removed unless `keep` is set.
    """
    row, manager = site.queue, site.manager
    message = message_at(site, given.lookup)
    changed = sendable(_changed(message, given))
    target = path_of(given.to) if given.to else target_of(row, message)
    if missing(manager, [target]):
        raise InputError(f"there is no queue {given.to or target}", "/to")
    number = site.record(
        "messages.resend", "queue", row["name"], count=1,
        before={"message": message.id}, after={"to": target, "kept": given.keep},
    )  # fmt: skip
    identifier, how = _send(manager, row, message, changed, target, given)
    daemon_of(site).changed()
    return SentAgain(
        identifier, message.id, row["name"], target, how, str(number) if number is not None else None,
        _command(row, message, given),
    )  # fmt: skip


def _command(row: Any, message: Message, given: ChangedMessage) -> str:
    """Return the equivalent command. The message's new values are typed in an editor."""
    ways = {"deadletter": ("dlq", "--queue ", "", "--to"), "journal": ("journal", "", "--remove", "--to")}
    group, option, removes, to = ways.get(row["kind"], ("msg", "", "", "--to-queue"))
    words = [f"openmsmq {group} resend {option}{quote(row['name'])} --id {quote(message.id)} --edit"]
    words += [removes] if removes and not given.keep else []
    words += ["--keep"] if group == "msg" and given.keep else []
    words += [f"{to} {quote(given.to)}"] if given.to else []
    return " ".join(words)


def _send(
    manager: QueueManager, row: Any, message: Message, changed: Message, target: str, given: ChangedMessage
) -> tuple[str, str]:
    """Send the changed message. Returns its new identifier and the method used. Raises ActionRefused if another client
    received the original in the meantime.
    """
    goes_in = given.transaction or is_transactional(manager, target)
    is_dead = row["kind"] == "deadletter" and message.is_transactional
    together = goes_in and not given.keep and (is_dead or is_transactional(manager, row["open"]))
    with open_target(manager, target, changed) as opened:
        if together:
            with manager.transaction() as transaction:
                _take(manager, row, message, transaction)
                return opened.send(changed, transaction=transaction), IN_ONE_TRANSACTION
        if given.keep:
            return _sent(manager, opened, changed, goes_in), KEPT
        with manager.open(row["open"]) as source:
            if source.can_lock:
                with _locked(source, message):
                    return _sent(manager, opened, changed, goes_in), SENT_THEN_REMOVED
            identifier = _sent(manager, opened, changed, goes_in)
            _remove(source, message, identifier)
    return identifier, SENT_THEN_REMOVED


def _sent(manager: QueueManager, opened: MessageQueue, message: Message, in_transaction: bool) -> str:
    """Send a message and return its identifier."""
    if not in_transaction:
        return opened.send(message)
    with manager.transaction() as transaction:
        return opened.send(message, transaction=transaction)


def _take(manager: QueueManager, row: Any, message: Message, transaction: Transaction) -> None:
    """Receive the original in a transaction, which requires a cursor at the message."""
    with manager.open(row["open"], protocol="qmcomm") as source:
        for cursor, found in walk(source):
            if found.id == message.id:
                cursor.receive(0, transaction=transaction)
                return
    raise _gone(message)


@contextmanager
def _locked(source: MessageQueue, message: Message) -> Iterator[None]:
    """Lock the original, and remove it after the block."""
    with ExitStack() as stack:
        try:
            stack.enter_context(source.receive_lock_by_lookup_id(message.lookup_identifier))
        except (MessageNotFound, MessageAlreadyReceived):
            raise _gone(message) from None
        yield


def _gone(message: Message) -> ActionRefused:
    detail = f"nothing was sent: another client has received the message {message.id} in the meantime"
    return ActionRefused(409, detail)


def _remove(source: MessageQueue, message: Message, identifier: str) -> None:
    try:
        source.receive_by_lookup_id(message.lookup_identifier)
    except MessageNotFound:
        taken = f"another client has received the message {message.id}; {identifier} was sent in its place"
        raise ActionRefused(409, f"{taken}: both may be read") from None


def _changed(message: Message, given: ChangedMessage) -> Message:
    """Return the message with the changes. Raises InputError that names the invalid field."""
    values: dict[str, Any] = {
        "label": given.label, "priority": given.priority, "application_tag": given.application_tag,
        "acknowledgements_requested": given.acknowledge, TEXT: given.text,
        "delivery_guarantee": None if given.recoverable is None else int(given.recoverable),
        "response_queue_format_name": None if given.response_queue is None else path_name(given.response_queue),
        "administration_queue_format_name": (
            None if given.administration_queue is None else path_name(given.administration_queue)
        ),
    }  # fmt: skip
    for name in ("time_to_reach_queue", "time_to_be_received"):
        seconds = getattr(given, name)
        values[name] = INFINITE if seconds == 0 else seconds
    if given.correlation is not None:
        try:
            known = identifier_from_text(given.correlation) if given.correlation else bytes(20)
        except ValueError as error:
            raise InputError(str(error), "/correlation") from None
        values["correlation_identifier"] = known.hex()
    if given.deadletter is not None or given.journal is not None:
        old = message.journaling_requested
        bits = ((given.deadletter, 1), (given.journal, 2))
        values["journaling_requested"] = sum(bit for on, bit in bits if (bool(old & bit) if on is None else on))
    try:
        return edited(message, {name: value for name, value in values.items() if value is not None})
    except ValueError as error:
        raise InputError(str(error), "/text" if given.text is not None else "") from None


def editable_text(message: Message) -> str | None:
    """Return the body as text if encoding the text gives the same bytes; otherwise None."""
    found = document(message).get(TEXT)
    return found if isinstance(found, str) else None


ACTIONS: Final = (resend_message,)
