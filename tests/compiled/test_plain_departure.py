"""Plain messages to other queue managers: their fast path delivers the same messages in the same order as the ordinary
path, and creates the same journal copies and dead letters."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import seeds
from openmsmq.model import names
from openmsmq.model.constants import INFINITE, MessageClass
from openmsmq.model.message import Message
from openmsmq.packet import outgoing_packets
from openmsmq.peering import plain_departure
from openmsmq.queueing.outgoing_queues import OutgoingQueue
from peering.conftest import Pair

PLAIN = "DIRECT=TCP:127.0.0.12\\private$\\plain"
QUEUES = (
    PLAIN, PLAIN, PLAIN, PLAIN.replace("plain", "other"), PLAIN.replace("plain", "missing"),
    "DIRECT=OS:BETA\\private$\\tx",
)  # fmt: skip


class Counted:
    """Counts the packets of the fast path."""

    def __init__(self) -> None:
        self.packets_made = 0
        self.shapes = outgoing_packets.shapes

    def packets(self, *arguments: Any) -> list[bytes]:
        made = outgoing_packets.packets(*arguments)
        self.packets_made += len(made)
        return made


def some_messages(chance: random.Random) -> list[tuple[str, list[Message]]]:
    """Return messages by destination, in order."""
    found, number = [], 0
    for _ in range(40):
        messages, usual = [], chance.random() < 0.7
        like = Message(delivery_guarantee=int(chance.random() < 0.8), time_to_reach_queue=INFINITE)
        for _ in range(chance.choice((1, 2, 10, 70))):
            number += 1
            message = replace(
                like, label=f"{number}", body=chance.randbytes(chance.choice((0, 10, 2000))),
                priority=chance.choice((3, 3, 3, 0, 7)), application_tag=number,
            )  # fmt: skip
            if not usual and chance.random() < 0.3:
                name, value = chance.choice((
                    ("journaling_requested", 2), ("journaling_requested", 1), ("acknowledgements_requested", 15),
                    ("time_to_reach_queue", 3), ("time_to_be_received", 3), ("delivery_guarantee", 0), ("label", "😀"),
                    ("response_queue_format_name", "DIRECT=OS:.\\private$\\answers"), ("extension", b"extension"),
                    ("body", bytes(300_000)),
                ))  # fmt: skip
                setattr(message, name, value)
                if name == "acknowledgements_requested":
                    message.administration_queue_format_name = "DIRECT=OS:ALPHA\\private$\\admin"
            messages.append(message)
        found.append((chance.choice(QUEUES), messages))
    return found


def contents(pair: Pair) -> dict[str, list[tuple[Any, ...]]]:
    """Return what differs between messages, for all queues of both queue managers."""
    found = {
        f"{node.name} {queue.properties.path_name}": [
            (m.label, m.body, m.priority, m.application_tag, m.message_class, m.extension, m.sent_time, m.identifier,
             m.response_queue_format_name, m.time_to_reach_queue, m.delivery_guarantee)
            for m in map(queue.message, queue.available)
            if m.message_class == MessageClass.NORMAL or m.message_class >= MessageClass.NACK_BAD_DST_Q
        ]
        for node in (pair.alpha, pair.beta)
        for queue in node.manager.registry.queues.values()
        if not isinstance(queue, OutgoingQueue) and "admin" not in queue.properties.path_name
    }  # fmt: skip
    # Copies are made in the order of acknowledgments, and each destination has a session of its own.
    return {name: sorted(messages) if name.startswith("ALPHA") else messages for name, messages in found.items()}


def run(pair: Pair, story: Callable[[Pair], Any]) -> dict[str, list[tuple[Any, ...]]]:
    async def whole() -> None:
        await story(pair)
        for _ in range(200):
            await asyncio.sleep(1)
            pair.alpha.manager.expire()
            if not any(len(queue) for queue in pair.alpha.manager.registry.outgoing.values()):
                return
        raise AssertionError("messages are still in transit")

    pair.run(whole)
    return contents(pair)


@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_both_paths_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = some_messages(seeds.chance(f"plain departure {name}"))

    async def story(pair: Pair) -> None:
        pair.network.partition = frozenset([pair.beta.address])
        for destination, messages in sent:
            await pair.alpha.send(destination, [replace(message) for message in messages])
        await asyncio.sleep(4)  # some messages expire
        pair.alpha.manager.expire()
        pair.network.partition = frozenset()

    results = []
    for module in (Counted(), None):
        monkeypatch.setattr(plain_departure, "outgoing_packets", module)
        pair = Pair()
        results.append(run(pair, story))
        if module is not None:
            assert module.packets_made > 200
        asyncio.set_event_loop(None)
        pair.network.loop.close()
    assert results[0] == results[1]


MANY = 2000
ALL = [f"{number}" for number in range(MANY)]


def outgoing(pair: Pair) -> OutgoingQueue:
    queue = pair.alpha.manager.registry.outgoing_queue(names.parse_format_name(PLAIN))  # type: ignore[arg-type]
    assert queue is not None
    return queue


async def in_transit(pair: Pair) -> None:
    """Send messages, and stop when some of them are sent and not acknowledged."""
    pair.network.slowness = 0.5
    await pair.alpha.send(PLAIN, [Message(label=label, delivery_guarantee=1) for label in ALL])
    while not outgoing(pair).locked:
        await asyncio.sleep(0.05)


def arrived(pair: Pair) -> list[str]:
    return pair.beta.labels("plain")


def test_messages_that_are_not_acknowledged_are_sent_again_in_order(pair: Pair) -> None:
    async def story(pair: Pair) -> None:
        await in_transit(pair)
        pair.network.break_one()
        pair.network.slowness = 0.01

    run(pair, story)
    assert sorted(arrived(pair), key=int) == ALL


def test_a_purge_removes_what_is_not_in_transit(pair: Pair) -> None:
    async def story(pair: Pair) -> None:
        await in_transit(pair)
        assert 0 < len(outgoing(pair).locked) < MANY
        for key in list(outgoing(pair).available):
            pair.alpha.manager.outgoing.refuse(outgoing(pair), outgoing(pair).message(key), MessageClass.NACK_Q_PURGED)
        pair.network.slowness = 0.01

    run(pair, story)
    assert arrived(pair) == ALL[: len(arrived(pair))] and 0 < len(arrived(pair)) < MANY


def test_a_paused_queue_sends_nothing(pair: Pair) -> None:
    async def story(pair: Pair) -> None:
        await in_transit(pair)
        pair.alpha.manager.outgoing.pause(outgoing(pair))
        pair.network.slowness = 0.01
        await asyncio.sleep(30)
        count = len(arrived(pair))
        assert 0 < count < MANY and not outgoing(pair).locked
        await asyncio.sleep(30)
        assert len(arrived(pair)) == count
        pair.alpha.manager.outgoing.resume(outgoing(pair))

    run(pair, story)
    assert arrived(pair) == ALL


def test_several_queues_of_a_session_share_the_window(pair: Pair) -> None:
    async def story(pair: Pair) -> None:
        other = PLAIN.replace("plain", "other")
        pair.network.partition = frozenset([pair.beta.address])
        for name in (PLAIN, other):
            await pair.alpha.send(name, [Message(label=label, delivery_guarantee=1) for label in ALL])
        pair.network.partition = frozenset()
        pair.network.slowness = 0.5
        while not (len(arrived(pair)) and len(pair.beta.labels("other"))):
            await asyncio.sleep(0.05)
        assert abs(len(arrived(pair)) - len(pair.beta.labels("other"))) <= 64
        pair.network.slowness = 0.01

    run(pair, story)
    assert arrived(pair) == pair.beta.labels("other") == ALL


def test_after_a_power_failure_of_the_sender_everything_arrives_once(pair: Pair) -> None:
    async def story(pair: Pair) -> None:
        await in_transit(pair)
        await asyncio.sleep(1)
        pair.alpha.crash(power=True)
        pair.network.slowness = 0.01
        await pair.alpha.start()

    run(pair, story)
    assert sorted(arrived(pair), key=int) == ALL


def test_a_message_that_cannot_be_read_holds_up_no_other(pair: Pair) -> None:
    async def story() -> None:
        pair.network.partition = frozenset([pair.beta.address])
        await pair.alpha.send(PLAIN, [Message(label=label, delivery_guarantee=1) for label in ALL[:5]])
        key = list(outgoing(pair).available)[2]
        segment, offset = divmod(outgoing(pair).location(key) or 0, 1 << 20)
        (inode,) = [each for path, each in pair.alpha.vfs.names.items() if path.endswith(f"{segment:016x}")]
        inode.content[offset + 60] ^= 1
        pair.network.partition = frozenset()
        await asyncio.sleep(60)
        assert arrived(pair) == ["0", "1", "3", "4"] and list(outgoing(pair).locked) == [key]

    pair.run(story)
