"""Plain sends and receives, served together: what all connections brought in one turn of the event loop is decoded,
stored or removed, and answered at once, where `send_stubs.c` and `receive_stubs.c` are compiled.

A send is plain if nothing follows from it but a message in a queue, a receive if the message is there and nothing
follows from its receipt. Every other call, and every one that is refused, is `QmComm2`'s.
"""

from __future__ import annotations

import sys
from array import array
from functools import partial
from typing import TYPE_CHECKING, Final

from openmsmq.interfaces import ms_mqmp as m
from openmsmq.model.message import Message
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.qmcomm import RPC_QUEUE_HANDLE, find_owned_descriptor
from openmsmq.protocols.qmcomm2 import QmComm2
from openmsmq.protocols.record_layouts import READ, WRITTEN
from openmsmq.queueing.descriptors import OpenQueueDescriptor
from openmsmq.queueing.message_record import FIXED, encode_message
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.sending import PlainMessages
from openmsmq.queueing.storage import UNREADABLE
from openmsmq.rpc.association import HANDLE_SIZE
from openmsmq.rpc.call import Call, any_abandoned
from openmsmq.store import Rows

try:
    from openmsmq.protocols import receive_stubs, send_stubs
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        receive_stubs = send_stubs = None

_MOST_FORMS = 4096  # that are kept; then they are made anew
_CONTEXT_SIZE = 4  # bytes of hQMContext
Form = tuple[bytes, bytes, bytes, int]  # of `PlainSends._form`


class PlainCalls:
    """See `rpc.server.Together`."""

    def __init__(self, environment: Environment, interface: QmComm2) -> None:
        self._interface: Final = interface
        self._sends: Final = PlainSends(environment)
        self._receives: Final = PlainReceives(environment)

    @staticmethod
    def are_served() -> bool:
        """Whether the machine code is there, without which one call after the other is as quick. It reads numbers as
        they stand in stubs, which are little-endian."""
        return send_stubs is not None and receive_stubs is not None and sys.byteorder == "little"

    def takes(self, call: Call) -> bool:
        opnum = call.opnum
        return call.interface is self._interface and (opnum == self._sends.opnum or opnum == self._receives.opnum)

    def serve(self, calls: list[Call], start: int) -> int:
        if calls[start].opnum == self._sends.opnum:
            return self._sends.serve(calls, start)
        return self._receives.serve(calls, start)


class PlainSends:
    def __init__(self, environment: Environment) -> None:
        self._environment: Final = environment
        self._forms: dict[tuple[str, bytes], Form] = {}
        self.opnum: Final[int] = m.qmcomm2.operation("rpc_ACSendMessageEx").opnum

    def serve(self, calls: list[Call], start: int) -> int:
        """See `rpc.server.Together`; all but sends are left."""
        environment = self._environment
        sending = environment.manager.sending
        stubs: list[bytes] = []
        forms: list[Form] = []
        queues: list[Queue] = []
        for index in range(start, len(calls)):
            call = calls[index]
            if call.opnum != self.opnum or call.byte_order != "<":
                break
            stub = call.stub
            descriptor = call.handles.find(stub[:HANDLE_SIZE], RPC_QUEUE_HANDLE)
            if not isinstance(descriptor, OpenQueueDescriptor):
                break
            queue = sending.plainly(descriptor)
            if queue is None:
                break
            stubs.append(stub)
            forms.append(self._form(descriptor.name, environment.sender_sid(call)))
            queues.append(queue)
        if not stubs:
            return start
        now, first = environment.manager.clock(), environment.manager.changes.sequence + 1
        found, answers = send_stubs.records(stubs, forms, WRITTEN, first, now // 1000, now % 1000)
        count = len(answers)
        if not count:
            return start
        del queues[count:]
        recoverable, records, bounds, keys, words, sizes, charged = found
        rows = Rows(
            array("I", [queue.number for queue in queues]), records, array("I", sizes), array("q", bounds),
            array("Q", keys), array("Q", words),
        )  # fmt: skip
        if not sending.enqueue_plain(PlainMessages(queues, rows, array("I", charged), recoverable)):
            return start
        served = list(zip(calls[start : start + count], answers, strict=True))
        if recoverable:
            environment.when_durable(partial(_answer, served), count)
        else:
            _answer(served)
        return start + count

    def _form(self, destination: str, sender: bytes) -> Form:
        """What the records of a sender for a queue have in common, and who sends where it is left open: the fixed part,
        sender, destination and its length in characters."""
        form = self._forms.get((destination, sender))
        if form is None:
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            machine = self._environment.manager.machine.identifier
            template = Message(source_machine_identifier=machine, identifier=machine + bytes(4))
            name = destination.encode("utf-8", "surrogatepass")
            form = encode_message(template)[: FIXED.size], sender, name, len(destination)
            self._forms[destination, sender] = form
        return form


class PlainReceives:
    def __init__(self, environment: Environment) -> None:
        self._environment: Final = environment
        self.opnum: Final[int] = m.qmcomm2.operation("rpc_ACReceiveMessageEx").opnum

    def serve(self, calls: list[Call], start: int) -> int:
        """See `rpc.server.Together`; all but receives are left."""
        environment = self._environment
        queues: list[Queue] = []
        for index in range(start, len(calls)):
            call = calls[index]
            queue = self._queue(call) if call.opnum == self.opnum and call.byte_order == "<" else None
            if queue is None:
                break
            queues.append(queue)
        if not queues or any_abandoned(calls[start : start + len(queues)]):
            return start
        positions, locations, records = self._messages(queues)
        answers = self._answers(calls, start, records)
        count = len(answers)
        reading = environment.manager.reading
        if not count or not reading.take_plain(queues[:count], positions[:count], locations[:count]):
            return start
        served = list(zip(calls[start : start + count], answers, locations[:count], strict=True))
        _answer([(call, answer) for call, answer, location in served if location is None])
        stored = [(call, answer) for call, answer, location in served if location is not None]
        if stored:  # who gets an express message does not wait for the disk
            environment.when_durable(partial(_answer, stored), len(stored))
        return start + count

    def _messages(self, queues: list[Queue]) -> tuple[list[int], list[int | None], list[bytes]]:
        """The next message of each queue, up to the first one that is not there, can't be read or is no record: its
        position, where it is stored, None for an express one, and its record."""
        positions: list[int] = []
        locations: list[int | None] = []
        held: list[bytes] = []
        heads: dict[int, list[int]] = {}  # the last first, by number of queue
        for queue in queues:
            left = heads.get(queue.number)
            if left is None:
                left = heads[queue.number] = queue.heads(len(queues))
                left.reverse()
            if not left:
                break
            location = queue.location(left[-1])
            if location is None:
                record = queue.held_record(left[-1])
                if record is None:
                    break
                held.append(record)
            positions.append(left.pop())
            locations.append(location)
        return positions, locations, self._records(locations, held)

    def _records(self, locations: list[int | None], held: list[bytes]) -> list[bytes]:
        """The records of messages in their order; none if one can't be read: `Reading.read` says which one."""
        stored = [location for location in locations if location is not None]
        if not stored:
            return held
        try:
            read = self._environment.manager.store.read_all(stored)
        except UNREADABLE:
            return []
        if not held:
            return read
        from_store, from_memory = iter(read), iter(held)
        return [next(from_memory if location is None else from_store) for location in locations]

    def _answers(self, calls: list[Call], start: int, records: list[bytes]) -> list[bytes]:
        """The answers to calls from `start` on, up to the first one that is not plain."""
        now = self._environment.manager.clock() // 1000
        answers: list[bytes] = []
        for index, record in enumerate(records, start):
            answer = receive_stubs.answer(calls[index].stub, record, READ, now)
            if answer is None:
                break
            answers.append(answer)
        return answers

    def _queue(self, call: Call) -> Queue | None:
        """The queue that the caller has opened."""
        environment = self._environment
        context = int.from_bytes(call.stub[:_CONTEXT_SIZE], "little")
        descriptor = find_owned_descriptor(environment.manager, call, context)
        if descriptor is None or context in environment.proxies:
            return None
        return environment.manager.reading.plainly(descriptor)


def _answer(served: list[tuple[Call, bytes]]) -> None:
    for call, answer in served:
        if not call.over:
            call.reply(answer)
