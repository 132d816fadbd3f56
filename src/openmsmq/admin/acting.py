"""Actions on selected messages (`selection.act`): delete, move, copy, return, resend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from openmsmq.admin.editing import MessageEdits
from openmsmq.admin.queues import demand_certain, is_transactional
from openmsmq.admin.selection import Action
from openmsmq.client.dead_letters import REMOVED, Forwarding, is_journal
from openmsmq.client.sync import Cursor, QueueManager
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message

Edit = Callable[[Message], Message]
Act = Literal["delete", "move", "copy", "return", "resend"]
#: Actions that require a target queue, and actions that have none.
NEEDS_TARGET: Final = ("move", "copy")
HAS_NO_TARGET: Final = ("delete", "return")


@dataclass(frozen=True, slots=True)
class MessageAction:
    """An action on messages in `queues`. `to`: path name or format name of the target; None for the original
    destination of each message. `in_transaction`: treat the target as transactional; for queues of this queue manager,
    this is detected."""

    act: Act
    queues: tuple[str, ...]
    to: str | None = None
    changes: MessageEdits = MessageEdits()
    in_transaction: bool = False


@contextmanager
def action(qm: QueueManager, deed: MessageAction, edit: Edit | None = None) -> Iterator[Action]:
    """Yield a function that performs an action on the message at a cursor and returns how it did so. `edit` changes the
    message to send, before the changes of the action."""
    goes_in = deed.in_transaction or (deed.to is not None and is_transactional(qm, deed.to))
    if deed.act == "move" and deed.to is not None:
        demand_certain(qm, deed.to, in_transaction=goes_in)
    both = deed.to is not None and goes_in and all(is_transactional(qm, queue) for queue in deed.queues)
    with Forwarding(qm) as forwarding:

        def delete(cursor: Cursor, message: Message) -> str:
            cursor.receive(0)
            return REMOVED

        def copy(cursor: Cursor, message: Message) -> str:
            target = deed.to or message.destination_queue_format_name
            together = goes_in or (deed.to is None and message.is_transactional)
            return forwarding.copy(_changed(deed, message, edit), target, in_transaction=together)

        def forward(cursor: Cursor, message: Message) -> str:
            changed = _changed(deed, message, edit)
            if deed.to is None:
                return forwarding.send_back(cursor, changed, in_transaction=goes_in)
            # Queues within others are not transactional by their properties, but may hold transactional messages.
            together = both or (goes_in and message.is_transactional and not is_journal(cursor.queue_name))
            return forwarding.forward(cursor, changed, deed.to, both=together, in_transaction=goes_in)

        actions: dict[Act, Action] = {
            "delete": delete, "move": forward, "copy": copy, "return": forward, "resend": forward,
        }  # fmt: skip
        yield actions[deed.act]


def _changed(deed: MessageAction, message: Message, edit: Edit | None) -> Message:
    """Return the changed message. Raises MsmqError if the body type cannot represent the new text."""
    try:
        return deed.changes.apply(message if edit is None else edit(message))
    except ValueError as error:
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, str(error)) from None
