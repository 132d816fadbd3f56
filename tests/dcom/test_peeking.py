"""A peek returns a copy: changing its properties does not change the message in the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from dcom.world import ComWorld
from msrpc.dcom.variant import VT, SafeArray, Variant
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.constants import Access, Share
from openmsmq.model.names import parse_format_name
from openmsmq.protocols.mqac.message import PROPERTIES, MSMQMessage
from openmsmq.protocols.mqac.objects import NOBODY
from openmsmq.protocols.mqac.queue import MSMQQueue

NOT_NOW = Variant(VT.I4, 0)
Peek = Callable[[Any, MSMQQueue], Any]
PEEKS: dict[str, Peek] = {
    "Peek": lambda c, q: q.Peek(c, None, None, NOT_NOW),
    "Peek_v1": lambda c, q: q.Peek_v1(c, None, None, NOT_NOW),
    "PeekCurrent": lambda c, q: q.PeekCurrent(c, None, None, NOT_NOW),
    "PeekByLookupId": lambda c, q: q.PeekByLookupId(
        c, Variant(VT.UI8, q.opened().queue.visible_after(0)), None, None, None
    ),
    "PeekFirstByLookupId": lambda c, q: q.PeekFirstByLookupId(c, None, None, None),
    "PeekLastByLookupId": lambda c, q: q.PeekLastByLookupId(c, None, None, None),
}
OCTETS = Variant(VT.ARRAY | VT.UI1, SafeArray.of(VT.UI1, b"changed" * 99))
NAMES = ["DIRECT=OS:.\\private$\\q", "DIRECT=TCP:192.0.2.77\\private$\\q"]
VALUES = {
    "octets": OCTETS, "identifier": Variant(VT.ARRAY | VT.UI1, SafeArray.of(VT.UI1, b"i" * 20)), "BSTR": "changed",
    "guid": "{6a2c1f00-0000-0000-0000-00000000000c}", "long": 1,
}  # fmt: skip


class TwoQueues:
    """Objects in a world without a network: `queue` holds an express message, `elsewhere` is on another machine."""

    def __init__(self, name: str) -> None:
        self.world = ComWorld()
        self.world.protocols.administrators.add(None)  # administrators may read outgoing queues
        self.context = self.world.context()
        self.info = self.world.new("QueueInfo")
        self.info.put_PathName(self.context, ".\\private$\\q")
        self.info.Create(self.context, None, None)
        self.info.put_FormatName(self.context, name)
        self.sender = self.info.Open(self.context, Access.SEND, 0)
        message: MSMQMessage = self.world.new("Message")
        message.put_Body(self.context, Variant(VT.BSTR, "original"))
        message.put_Label(self.context, "original")
        message.Send(self.context, self.sender, None)

    def open(self, access: Access) -> MSMQQueue:
        queue: MSMQQueue = self.world.new("Queue")
        manager = self.world.protocols.world.manager
        name = parse_format_name(self.info.format_name)
        caller = queue.caller(self.context)
        queue.attach(manager.handles.open_queue(name, access, Share.DENY_NONE, caller, NOBODY), self.info)
        return queue

    def change(self, message: MSMQMessage) -> None:
        """Set every writable property."""
        message.put_Body(self.context, OCTETS)
        for wanted in PROPERTIES:
            if wanted.is_writable and wanted.attribute != "message_class":
                getattr(message, f"put_{wanted.names[0]}")(self.context, VALUES[wanted.kind])
        message.put_ResponseQueueInfo(self.context, self.info)
        message.put_AdminQueueInfo(self.context, self.info)


async def _done(work: Any) -> Any:
    return await work if hasattr(work, "__await__") else work


@pytest.mark.parametrize("name", NAMES, ids=["here", "out"])
@pytest.mark.parametrize("way", PEEKS)
def test_changing_a_peeked_message_changes_nothing_in_the_queue(way: str, name: str) -> None:
    async def peek() -> None:
        room = TwoQueues(name)
        is_here = "OS:" in name
        queue = room.open(Access.PEEK if is_here else Access.PEEK_ADMIN)
        opened = queue.opened().queue
        assert opened is not None
        before, size = asdict(opened.message(opened.visible_after(0))), opened.total_bytes
        peeked = await _done(PEEKS[way](room.context, queue))
        room.change(peeked)
        assert asdict(opened.message(opened.visible_after(0))) == before and opened.total_bytes == size
        room.info.put_FormatName(room.context, "DIRECT=OS:.\\private$\\q")
        peeked.message.sender_certificate = b""  # it signs nothing
        peeked.put = frozenset()
        peeked.message.acknowledgements_requested = peeked.message.journaling_requested = 0
        peeked.message.privacy_level = peeked.requested_authentication = 0
        peeked.Send(room.context, room.info.Open(room.context, Access.SEND, 0), None)
        assert asdict(opened.message(opened.visible_after(0))) == before
        receiver = room.open(Access.RECEIVE) if is_here else queue
        if is_here:
            received = await _done(receiver.Receive(room.context, None, None, None, NOT_NOW))
            assert asdict(received.message) == before
            assert (received.get_Body(room.context).value, received.get_Label(room.context)) == ("original",) * 2
            again = await _done(receiver.Receive(room.context, None, None, None, NOT_NOW))
            assert again.message.body == b"changed" * 99
            assert not opened.total_bytes

    asyncio.run(peek())


def test_interfaces_of_peeked_messages_are_those_of_their_own_object() -> None:
    async def peek() -> None:
        room = TwoQueues(NAMES[0])
        queue = room.open(Access.PEEK)
        first, second = [await _done(PEEKS["Peek"](room.context, queue)) for _ in range(2)]
        references = [room.context.reference(message, m.IMSMQMessage4.uuid) for message in (first, second)]
        assert first.message is not second.message and references[0].oid != references[1].oid

    asyncio.run(peek())
