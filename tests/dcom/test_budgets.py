"""Limits of the resources held by a client's objects; reaching one loses and leaks nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dcom.world import PEER, ComWorld
from msrpc.dcom.budget import ObjectBudget
from msrpc.dcom.persistence import MemoryStream
from msrpc.dcom.server import CallContext, ForeignReference
from msrpc.dcom.variant import VT, SafeArray, Variant, bstr
from msrpc.hresults import ComResult
from msrpc.interfaces import com
from msrpc.rpc.call import RpcCaller
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.security import Identity
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import ComError, HResult, InsufficientResources, MsmqError, SharingViolation
from openmsmq.protocols.mqac.bodies import charge_of
from openmsmq.protocols.mqac.message import MSMQMessage
from openmsmq.protocols.mqac.queue import MSMQQueue
from openmsmq.protocols.mqac.sinks import Sink
from waiting import until

ROOM = 10_000  # bytes
SETTINGS = "max_com_megabytes", "max_com_megabytes_per_peer"
BOB = RpcCaller(Identity("bob", "DOMAIN", "S-1-5-21-1-2"), AuthLevel.PKT_INTEGRITY)
RECEIVE, SEND, PEEK, DENY = 1, 2, 0x20, 1
NOT_NOW = Variant(VT.I4, 0)


def octets(size: int) -> Variant:
    return Variant(VT.ARRAY | VT.UI1, SafeArray.of(VT.UI1, bytes(size)))


class LimitedWorld:
    """A world with a queue and small limits."""

    def __init__(self, **limits: int) -> None:
        self.world = ComWorld(**limits)
        self.budgets = self.world.server.budgets
        self.budgets.message_bytes = ObjectBudget(
            "bytes", 3 * ROOM, ROOM, ("max_com_megabytes", "max_com_megabytes_per_peer")
        )
        self.context = self.world.context()
        self.info = self.world.new("QueueInfo")
        self.info.put_PathName(self.context, ".\\private$\\q")
        self.info.Create(self.context, None, None)

    def message(self, body: int = 0, context: CallContext | None = None) -> MSMQMessage:
        made: MSMQMessage = self.world.new("Message")
        made.put_Body(context or self.context, octets(body))
        self.world.export(made, m.IMSMQMessage4, (context or self.context).owner)
        return made

    def end(self, target: Any) -> None:
        exporter = self.world.exporter
        exporter._end(exporter._by_target[id(target)])

    def open(self, access: int, share: int = 0) -> MSMQQueue:
        opened: MSMQQueue = self.info.Open(self.context, access, share)
        return opened

    def send(self, body: int) -> None:
        """Send a message and release its object, so that it no longer counts."""
        message = self.message(body)
        message.Send(self.context, self.open(SEND), None)
        self.end(message)

    @property
    def waiting(self) -> int:
        queue = self.world.protocols.world.manager.registry.by_name["q"]
        return len(queue.entries)


def test_unsent_bodies_count_against_the_budget_and_existing_objects_stay() -> None:
    limited = LimitedWorld()
    held = limited.message(ROOM // 2)
    other = limited.message()
    with pytest.raises(InsufficientResources, match=f"limit {ROOM} for .*{PEER}.*max_com_megabytes_per_peer"):
        other.put_Body(limited.context, octets(ROOM // 2))
    assert other.get_BodyLength(limited.context) == 0
    for name in ("Extension", "SenderCertificate", "SenderId"):
        with pytest.raises(InsufficientResources):
            getattr(other, f"put_{name}")(limited.context, octets(ROOM // 2))
        assert getattr(other, f"get_{name}")(limited.context).value.values == b""
    with pytest.raises(InsufficientResources):
        other.put_AuthenticationProviderName(limited.context, "x" * (ROOM // 4))
    limited.end(held)
    other.put_Body(limited.context, octets(ROOM // 2))
    other.put_Body(limited.context, octets(1))
    limited.message(ROOM // 2)


def test_users_behind_one_host_have_a_share_each_and_there_is_a_total() -> None:
    limited = LimitedWorld()
    contexts = [
        limited.world.context(caller=RpcCaller(Identity("u", "D", f"S-1-5-21-{number}"), AuthLevel.PKT_INTEGRITY))
        for number in range(4)
    ]
    for context in contexts[:3]:
        limited.message(ROOM * 9 // 10, context)
    with pytest.raises(InsufficientResources, match=r"limit 30000 in all \(max_com_megabytes\)"):
        limited.message(ROOM * 9 // 10, contexts[3])
    assert limited.budgets.message_bytes.held_by(contexts[0].owner.source) <= ROOM


Reading = Callable[[LimitedWorld, MSMQQueue], Any]
READINGS: dict[str, Reading] = {
    "Receive": lambda limited, queue: queue.Receive(limited.context, None, None, None, NOT_NOW),
    "Peek": lambda limited, queue: queue.Peek(limited.context, None, None, NOT_NOW),
    "ReceiveCurrent": lambda limited, queue: queue.ReceiveCurrent(limited.context, None, None, None, NOT_NOW),
    "ReceiveFirstByLookupId": lambda limited, queue: queue.ReceiveFirstByLookupId(
        limited.context, None, None, None, None
    ),
    "PeekLastByLookupId": lambda limited, queue: queue.PeekLastByLookupId(limited.context, None, None, None),
}


async def _of(read: Reading, limited: LimitedWorld, queue: MSMQQueue) -> Any:
    found = read(limited, queue)
    return await found if hasattr(found, "__await__") else found


@pytest.mark.parametrize("name", READINGS)
def test_a_message_that_exceeds_the_budget_stays_in_its_queue(name: str) -> None:
    limited, read = LimitedWorld(), READINGS[name]
    limited.send(ROOM * 2 // 3)
    queue, held = limited.open(RECEIVE), limited.message(ROOM // 2)
    with pytest.raises(InsufficientResources, match="max_com_megabytes_per_peer"):
        asyncio.run(_of(read, limited, queue))
    assert limited.waiting == 1
    limited.end(held)
    assert asyncio.run(_of(read, limited, queue)).get_BodyLength(limited.context) == ROOM * 2 // 3


@pytest.mark.parametrize("name", READINGS)
def test_a_message_that_exceeds_the_object_limit_stays_in_its_queue(name: str) -> None:
    limited = LimitedWorld(most_objects=100, most_of_peer=2)
    limited.send(10)
    queue = limited.open(RECEIVE)
    held = [limited.message() for _ in range(2)]
    with pytest.raises(ComError) as refused:
        asyncio.run(_of(READINGS[name], limited, queue))
    assert refused.value.hresult == ComResult.E_OUTOFMEMORY and limited.waiting == 1
    assert limited.budgets.message_bytes.taken == sum(message.message.size for message in held)
    limited.end(held[0])
    asyncio.run(_of(READINGS[name], limited, queue))


def test_a_waiting_read_leaves_a_message_that_exceeds_the_budget() -> None:
    limited = LimitedWorld()

    async def wait() -> None:
        queue = limited.open(RECEIVE)
        waiting = asyncio.ensure_future(_of(lambda d, q: q.Receive(d.context, None, None, None, None), limited, queue))
        await asyncio.sleep(0)
        message = limited.message(ROOM * 2 // 3)
        message.Send(limited.context, limited.open(SEND), None)
        limited.world.protocols.world.turn()
        with pytest.raises(InsufficientResources):
            await asyncio.wait_for(waiting, 5)

    asyncio.run(wait())
    assert limited.waiting == 1


def test_an_object_that_cannot_be_returned_is_released() -> None:
    limited = LimitedWorld(most_objects=100, most_of_peer=1)
    limited.message()
    with pytest.raises(ComError, match="E_OUTOFMEMORY"):
        limited.context.marshal(limited.open(RECEIVE, DENY), m.IMSMQQueue4.uuid)
    limited.open(RECEIVE, DENY)
    with pytest.raises(SharingViolation):
        limited.open(RECEIVE, DENY)
    begun = limited.world.new("TransactionDispenser").BeginTransaction(limited.context)
    transaction = begun.inner.transaction
    with pytest.raises(ComError, match="E_OUTOFMEMORY"):
        limited.context.marshal(begun, m.IMSMQTransaction3.uuid)
    assert not transaction.is_open


def test_notifications_that_wait_are_limited_and_end_with_the_queue() -> None:
    limited = LimitedWorld()
    limited.budgets.notifications = ObjectBudget("notifications", 100, 3)
    event = limited.world.new("Event")
    queue = limited.open(PEEK)
    for _ in range(3):
        queue.EnableNotification(limited.context, event, None, None)
    with pytest.raises(InsufficientResources, match="limit 3"):
        queue.EnableNotification(limited.context, event, None, None)
    limited.open(PEEK).EnableNotification(limited.world.context(caller=BOB), event, None, None)
    queue.close()
    assert limited.budgets.notifications.taken == 1
    queue = limited.open(PEEK)
    for _ in range(20):  # a completed one no longer counts
        queue.EnableNotification(limited.context, event, None, NOT_NOW)
    assert limited.budgets.notifications.taken == 1


class _Program:
    """A sink whose program may not answer."""

    def __init__(self, *, answers: bool) -> None:
        self.answers, self.told, self.is_closed = answers, 0, False

    async def invoke(self, *_: Any) -> None:
        self.told += 1
        if not self.answers:
            await asyncio.Event().wait()

    async def close(self) -> None:
        self.is_closed = True


def test_calls_that_a_sink_does_not_answer_are_limited_and_others_get_theirs() -> None:
    async def steps() -> None:
        limited = LimitedWorld()
        limited.budgets.notifications = ObjectBudget("notifications", 100, 3)
        event, slow, quick = limited.world.new("Event"), _Program(answers=False), _Program(answers=True)
        event.sinks[1], event.sinks[2] = slow, quick
        for count in range(1, 9):
            event.FireArrivedEvent(limited.context, None, 0)
            await until(lambda count=count: quick.told == count)  # type: ignore[misc]
        assert slow.told == 4, "one, and three that count"
        assert list(event.sinks) == [2] and slow.is_closed and not quick.is_closed
        assert limited.budgets.notifications.taken == 3

    asyncio.run(steps())


def test_an_event_that_was_released_takes_no_sink() -> None:
    """Advise looks the sink up; the event may be released meanwhile."""

    async def steps() -> None:
        event, late = LimitedWorld().world.new("Event"), _Program(answers=True)
        event.released()
        with pytest.raises(ComError, match="the event was released"):
            event.advise(late)
        await until(lambda: late.is_closed)
        assert not event.sinks

    asyncio.run(steps())


def test_event_sinks_are_limited() -> None:
    limited = LimitedWorld()
    limited.budgets.sinks = ObjectBudget("event sinks", 100, 0)

    reference = limited.world.export(limited.world.new("Event"), m.IMSMQEvent3)
    with pytest.raises(InsufficientResources, match="too many event sinks: limit 0"):
        asyncio.run(Sink.of(limited.context, ForeignReference(reference, PEER)))
    limited.budgets.sinks = ObjectBudget("event sinks", 100, 1)
    with pytest.raises(MsmqError):  # no program listens there
        asyncio.run(Sink.of(limited.context, ForeignReference(reference, PEER)))
    assert not limited.budgets.sinks.taken


@pytest.mark.parametrize(
    ("kind", "name"),
    [("QueueInfo", "put_Label"), ("QueueInfo", "put_PathName"), ("Destination", "put_FormatName"),
     ("Application", "put_Machine")],
)  # fmt: skip
def test_no_object_keeps_a_text_that_is_longer_than_any_name(kind: str, name: str) -> None:
    world = ComWorld()
    target = world.new(kind)
    interface = target.coclass.default
    ipid = world.export(target, interface).ipid

    answer = asyncio.run(world.call(ipid, interface, name, a0=bstr("x" * 0x8001)))
    assert answer.result == HResult.MQ_ERROR_INVALID_PARAMETER


def test_the_state_of_an_object_in_a_body_counts_as_often_as_it_is_returned() -> None:
    limited = LimitedWorld()
    message = limited.message()
    message.change(limited.context, body=bytes(ROOM // 3), body_type=68)
    first = message.get_Body(limited.context)
    limited.context.marshal(first.value, com.IPersistStream.uuid)
    with pytest.raises(InsufficientResources):
        message.get_Body(limited.context)
    limited.end(first.value)
    assert message.get_Body(limited.context).value.state.data == bytes(ROOM // 3 - 16)


def test_what_an_object_writes_while_it_is_saved_counts_until_it_has_done_so() -> None:
    limited = LimitedWorld()
    stream = MemoryStream(1 << 20, charge_of(limited.context))
    stream.write(bytes(ROOM // 2))
    with pytest.raises(InsufficientResources):
        stream.write(bytes(ROOM))
    with pytest.raises(InsufficientResources):
        limited.message(ROOM)
    assert len(stream.close()) == ROOM // 2 and not limited.budgets.message_bytes.taken
