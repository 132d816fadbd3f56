"""Reads that end early: the client cancels or orphans the call. They take no message that nobody gets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dcom.test_peeking import TwoQueues
from dcom.world import Link
from msrpc.dcom.activation import VERSION
from msrpc.dcom.variant import VT, Variant, to_wire
from msrpc.interfaces.ms_dcom import ORPCTHIS
from msrpc.rpc.call import UNAUTHENTICATED, Call
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.constants import Access
from openmsmq.model.errors import HResult
from openmsmq.protocols.mqac.transactions import TransactionImpl
from waiting import until

CANCELLED = int(HResult.MQ_ERROR_OPERATION_CANCELLED)


class Reading:
    """A queue object with calls that are not answered yet."""

    def __init__(self, *, transactional: bool = False) -> None:
        self.both = TwoQueues("DIRECT=OS:.\\private$\\q")
        self.world = self.both.world
        self.machine = self.world.protocols.world
        if transactional:
            self.machine.create("xact", TRANSACTION=1)
            self.both.info.put_FormatName(self.both.context, "DIRECT=OS:.\\private$\\xact")
        self.target = self.both.open(Access.RECEIVE)
        self.ipid = self.world.export(self.target, m.IMSMQQueue4).ipid
        self.link = Link(self.world.association)

    def call(self, name: str, *arguments: Variant) -> Call:
        """Call a method with its first arguments."""
        operation = m.IMSMQQueue4.operation(name)
        assert operation.request is not None and operation.encode_request is not None
        request = operation.request(orpcthis=ORPCTHIS(version=VERSION, cid=bytes(16)))
        for number, value in enumerate(arguments):
            setattr(request, f"a{number}", to_wire(value, self._marshal))
        served: Any = self.world.interfaces[m.IMSMQQueue4.uuid]
        stub = operation.encode_request(request)
        call = Call(self.link, served, UNAUTHENTICATED, None, 1, 0, operation.opnum, stub, object_uuid=self.ipid)
        served.call(call)
        return call

    def _marshal(self, target: Any, by_dispatch: bool) -> Any:
        return self.both.context.marshal(target, m.ITransaction.uuid)

    def result(self, name: str) -> int:
        response: Any = m.IMSMQQueue4.operation(name).decode_response(self.link.answer)
        return int(response.result) & 0xFFFFFFFF

    async def settle(self, call: Call) -> None:
        """Let the queue manager and tasks run until a call has ended."""

        def has_ended() -> bool:
            self.machine.turn()
            return call.over

        await until(has_ended)

    def transaction(self) -> TransactionImpl:
        """Return a transaction that the client holds until it ends it."""
        made = TransactionImpl(self.world.protocols.environment, is_internal=True)
        made.wrap()
        return made


def in_a_loop(work: Any) -> None:
    asyncio.run(work())


@pytest.mark.parametrize("name", ["Receive", "ReceiveCurrent", "Peek"])
def test_a_read_that_is_cancelled_in_the_read_of_its_request_ends(name: str) -> None:
    """C706 9.3.3: the call ends before the task that waits for it has begun."""

    async def work() -> None:
        reading = Reading()
        reading.machine.read(reading.machine.open("q"))
        call = reading.call(name)
        call.cancel()
        await reading.settle(call)
        assert reading.result(name) == CANCELLED
        assert reading.target.opened().queue.waiters == 0

    in_a_loop(work)


def test_a_receive_in_a_transaction_that_is_cancelled_takes_no_later_message() -> None:
    """The client has been told that the call was canceled, and commits what else is in the transaction."""

    async def work() -> None:
        reading = Reading(transactional=True)
        transaction = reading.transaction()
        call = reading.call("Receive", Variant(VT.UNKNOWN, transaction))
        call.cancel()
        await reading.settle(call)
        assert reading.result("Receive") == CANCELLED
        machine, sending = reading.machine, reading.machine.begin(7)
        machine.send("xact", "kept", sending)
        machine.manager.transactions.commit(sending)
        machine.turn()
        transaction.commit(False, 2, 0)
        assert len(machine.queue("xact")) == 1

    in_a_loop(work)


def test_a_receive_that_is_cancelled_after_it_took_its_message_returns_the_message() -> None:
    async def work() -> None:
        reading = Reading()
        machine = reading.machine
        machine.read(machine.open("q"))
        call = reading.call("Receive")
        await until(lambda: machine.queue("q").waiters)
        machine.send("q", "arrives")
        machine.turn()
        call.cancel()
        await reading.settle(call)
        assert reading.result("Receive") == 0

    in_a_loop(work)


@pytest.mark.parametrize("name", ["ReceiveFirstByLookupId", "ReceiveLastByLookupId"])
def test_an_orphaned_receive_by_lookup_identifier_takes_no_message(name: str) -> None:
    """Deviation D-26."""

    async def work() -> None:
        reading = Reading()
        reading.link.orphans = True
        await reading.settle(reading.call(name))
        assert len(reading.machine.queue("q")) == 1

    in_a_loop(work)
