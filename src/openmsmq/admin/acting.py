"""Actions on selected messages (`selection.act`): delete, move, copy, return, send again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from openmsmq.admin.editing import MessageEdits
from openmsmq.admin.queues import is_transactional
from openmsmq.admin.selection import Action
from openmsmq.client.dead_letters import REMOVED, Forwarding
from openmsmq.client.sync import Cursor, QueueManager
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message

Edit = Callable[[Message], Message]
Act = Literal["delete", "move", "copy", "return", "resend"]
#: What needs a queue to go to, and what has none.
NEEDS_TARGET: Final = ("move", "copy")
HAS_NO_TARGET: Final = ("delete", "return")


@dataclass(frozen=True, slots=True)
class MessageAction:
    """`queues` are those that the messages are in. `to`: a path name or format name; None for the queue that each
    message was meant for. `in_transaction`: the target is transactional, which is known by itself of queues that are
    here."""

    act: Act
    queues: tuple[str, ...]
    to: str | None = None
    changes: MessageEdits = MessageEdits()
    in_transaction: bool = False


@contextmanager
def action(qm: QueueManager, deed: MessageAction, edit: Edit | None = None) -> Iterator[Action]:
    """Does the deed to a message on which a cursor stands, and says how. `edit` changes what is sent, before the
    changes of the deed."""
    goes_in = deed.in_transaction or (deed.to is not None and is_transactional(qm, deed.to))
    both = deed.to is not None and goes_in and all(is_transactional(qm, queue) for queue in deed.queues)
    with Forwarding(qm) as forwarding:

        def delete(cursor: Cursor, message: Message) -> str:
            cursor.receive(0)
            return REMOVED

        def copy(cursor: Cursor, message: Message) -> str:
            target = deed.to or message.destination_queue_format_name
            return forwarding.copy(_changed(deed, message, edit), target, in_transaction=goes_in)

        def forward(cursor: Cursor, message: Message) -> str:
            changed = _changed(deed, message, edit)
            if deed.to is None:
                return forwarding.send_back(cursor, changed, in_transaction=goes_in)
            return forwarding.forward(cursor, changed, deed.to, both=both, in_transaction=goes_in)

        actions: dict[Act, Action] = {
            "delete": delete, "move": forward, "copy": copy, "return": forward, "resend": forward,
        }  # fmt: skip
        yield actions[deed.act]


def _changed(deed: MessageAction, message: Message, edit: Edit | None) -> Message:
    """Raises MsmqError for a text that the type of the body has no form for."""
    try:
        return deed.changes.apply(message if edit is None else edit(message))
    except ValueError as error:
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, str(error)) from None
