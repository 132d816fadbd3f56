"""Message.AllowPeekWhenLocked ([MS-MQDMPR] 3.1.1.12): messages received in a transaction that others may peek at."""

from __future__ import annotations

import pytest

from openmsmq.model.constants import MessageSeekAction, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.unit_of_work import Transaction
from queueing.world import Outcome, World

CURRENT, NEXT = ReceiveAction.PEEK_CURRENT, ReceiveAction.PEEK_NEXT
NOT_FOUND = HResult.MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.fixture
def filled(world: World) -> World:
    world.create("t", TRANSACTION=1)
    transaction = world.begin(9)
    for label in "abc":
        world.send("t", label, transaction)
    world.manager.transactions.commit(transaction)
    return world


def look_up(
    world: World, seek: MessageSeekAction, position: int = 0, transaction: Transaction | None = None, **how: bool
) -> Outcome:
    outcome = Outcome(world)
    world.manager.reading.read_by_lookup_identifier(
        world.open("t"), position, seek, lambda message: HResult.MQ_OK, outcome,
        destructive=how.get("destructive", False), transaction=transaction,
        leaves_visible=how.get("leaves_visible", False),
    )  # fmt: skip
    return outcome


def received(world: World, label: str, *, visible: bool = True) -> tuple[Transaction, int]:
    """Receive a message by lookup identifier in a transaction; return the message."""
    queue = world.queue("t")
    (key,) = [key for key in queue.available if queue.message(key).label == label]
    transaction = world.begin()
    outcome = look_up(world, MessageSeekAction.CURRENT, key, transaction, destructive=True, leaves_visible=visible)
    assert outcome.label == label
    return transaction, key


def seen(world: World) -> list[str]:
    """Return the labels that a peeking cursor finds."""
    descriptor = world.open("t")
    cursor = world.manager.handles.open_cursor(descriptor)
    found, action = [], CURRENT
    while (outcome := world.read(descriptor, action, cursor=cursor)).status == HResult.MQ_OK:
        found.append(outcome.label)
        action = NEXT
    return found


@pytest.mark.parametrize("label", ["a", "b", "c"])
def test_peeks_see_a_visibly_locked_message_and_receives_do_not(filled: World, label: str) -> None:
    _, key = received(filled, label)
    others = [other for other in "abc" if other != label]
    assert seen(filled) == ["a", "b", "c"]
    assert filled.read(filled.open("t"), CURRENT).label == "a"
    assert look_up(filled, MessageSeekAction.FIRST).label == "a"
    assert look_up(filled, MessageSeekAction.LAST).label == "c"
    assert look_up(filled, MessageSeekAction.CURRENT, key).label == label
    assert look_up(filled, MessageSeekAction.CURRENT, key, destructive=True).status == NOT_FOUND
    assert look_up(filled, MessageSeekAction.FIRST, destructive=True).label == others[0]
    assert filled.read(filled.open("t")).label == others[1]
    assert filled.read(filled.open("t")).status == HResult.MQ_ERROR_IO_TIMEOUT


def test_neighbors_are_searched_among_visible_messages(filled: World) -> None:
    _, key = received(filled, "b")
    keys = list(filled.queue("t").available)
    assert look_up(filled, MessageSeekAction.NEXT, keys[0]).label == "b"
    assert look_up(filled, MessageSeekAction.PREVIOUS, keys[1]).label == "b"
    assert look_up(filled, MessageSeekAction.NEXT, keys[0], destructive=True).label == "c"
    assert look_up(filled, MessageSeekAction.PREVIOUS, key, destructive=True).label == "a"


def test_messages_locked_without_the_flag_are_not_visible(filled: World) -> None:
    received(filled, "b", visible=False)
    assert seen(filled) == ["a", "c"]


def test_a_cursor_on_a_visibly_locked_message_can_peek_but_not_receive(filled: World) -> None:
    descriptor = filled.open("t")
    cursor = filled.manager.handles.open_cursor(descriptor)
    assert filled.read(descriptor, CURRENT, cursor=cursor).label == "a"
    received(filled, "a")
    assert filled.read(descriptor, CURRENT, cursor=cursor).label == "a"
    assert filled.read(descriptor, cursor=cursor).status == HResult.MQ_ERROR_MESSAGE_ALREADY_RECEIVED


def test_a_visibly_locked_message_disappears_at_the_commit(filled: World) -> None:
    transaction, _ = received(filled, "b")
    filled.manager.transactions.commit(transaction)
    assert seen(filled) == ["a", "c"]


def test_after_an_abort_a_visibly_locked_message_is_available_again(filled: World) -> None:
    transaction, _ = received(filled, "b")
    filled.manager.transactions.abort(transaction)
    assert seen(filled) == ["a", "b", "c"]
    received(filled, "b", visible=False)
    assert seen(filled) == ["a", "c"]


def test_the_memory_of_released_locks_is_bounded(filled: World) -> None:
    queue: Queue = filled.queue("t")
    for _ in range(20):
        transaction, _ = received(filled, "b")
        filled.manager.transactions.abort(transaction)
    assert len(queue.visible) <= 2
