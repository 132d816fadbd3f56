"""Fast path for simple sends and receives in NDR 2.0: the calls that all connections received in one event-loop
iteration are decoded, executed and answered in batches. It requires the compiled `send_stubs.c`, `receive_stubs.c` and
`start_receive_stubs.c`.

A send is simple if its only effect is a message in a queue; a receive is simple if a message is available and its
receipt has no other effect. All other calls, and all calls that are refused, are handled by their interface.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from msrpc.rpc.association import HeldHandles
from msrpc.rpc.call import RpcInterface
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.model.constants import INFINITE
from openmsmq.model.message import Message
from openmsmq.protocols.dispatch import NdrInterface
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.fast_qm2qm import RemoteEndBatcher, RemoteStartBatcher
from openmsmq.protocols.fast_remote_reads import EndReceiveBatcher, StartReceiveBatcher
from openmsmq.protocols.first_messages import answer_all, first_messages
from openmsmq.protocols.qm2qm import Qm2Qm
from openmsmq.protocols.qmcomm import RPC_QUEUE_HANDLE, find_owned_descriptor
from openmsmq.protocols.qmcomm2 import QmComm2
from openmsmq.protocols.remote_read import RemoteRead
from openmsmq.queueing.descriptors import OpenQueueDescriptor
from openmsmq.queueing.queue import QueueKind
from openmsmq.queueing.sending import MessageBatch
from openmsmq.record.compact_record import compact_rows
from openmsmq.record.fields import FIXED
from openmsmq.record.layouts import READ, WRITTEN
from openmsmq.record.message_record import encode_message
from openmsmq.store import MessageRows

try:
    from msrpc.rpc import requests
    from openmsmq.protocols import receive_stubs, send_stubs, start_receive_stubs
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        receive_stubs = send_stubs = start_receive_stubs = requests = None

_MOST_FORMS = 4096  # maximum number of cached forms; a full cache is emptied
Form = tuple[bytes, bytes, bytes, int, int]  # see `SendBatcher._form`


class OperationBatcher(Protocol):
    """Fast path of one operation."""

    @property
    def opnum(self) -> int: ...

    def serve(self, calls: list[Any]) -> int:
        """Serve the first of the given calls (see `rpc.dispatcher.BatchHandler`). Returns the number of calls
        served."""


class FastPath:
    """The fast path; implements `rpc.dispatcher.BatchHandler`."""

    def __init__(self, environment: Environment, interfaces: Iterable[NdrInterface]) -> None:
        self._lanes: Final[dict[RpcInterface, dict[int, OperationBatcher]]] = {}
        for interface in interfaces:
            lanes: tuple[OperationBatcher, ...] = ()
            if isinstance(interface, QmComm2):
                lanes = SendBatcher(environment), ReceiveBatcher(environment)
            elif isinstance(interface, RemoteRead):
                lanes = StartReceiveBatcher(environment, interface), EndReceiveBatcher(environment, interface)
            elif isinstance(interface, Qm2Qm):
                lanes = (
                    RemoteStartBatcher(environment, interface, "RemoteQMStartReceive", has_sequence=False),
                    RemoteStartBatcher(environment, interface, "RemoteQMStartReceive2", has_sequence=True),
                    RemoteEndBatcher(environment),
                )
            if lanes:
                self._lanes[interface] = {lane.opnum: lane for lane in lanes}

    @staticmethod
    def are_served() -> bool:
        """Whether the compiled modules are available; without them, single calls are as fast. They require a
        little-endian machine."""
        return None not in (send_stubs, receive_stubs, start_receive_stubs, requests) and sys.byteorder == "little"

    def operations(self, interface: RpcInterface) -> Collection[int]:
        return self._lanes.get(interface, ())

    def by_operation(self, calls: list[Any]) -> list[list[Any]]:
        return requests.by_operation(calls)

    def serve(self, calls: list[Any]) -> int:
        first = calls[0]
        return self._lanes[first.interface][first.opnum].serve(calls)


class SendBatcher:
    def __init__(self, environment: Environment) -> None:
        self._environment: Final = environment
        self._forms: dict[tuple[str, bytes, int], Form] = {}
        self.opnum: Final[int] = m.qmcomm2.operation("rpc_ACSendMessageEx").opnum

    def serve(self, calls: list[Any]) -> int:
        """See `OperationBatcher`."""
        environment = self._environment
        forms: list[Form] = []
        descriptors: list[OpenQueueDescriptor] = []
        for descriptor in requests.held(calls, RPC_QUEUE_HANDLE):
            if not isinstance(descriptor, OpenQueueDescriptor):
                break
            if descriptor.form is None:
                descriptor.form = self._form(descriptor, environment.sender_sid(calls[len(forms)].caller))
            forms.append(descriptor.form)
            descriptors.append(descriptor)
        sending = environment.manager.sending
        queues = sending.fast_path_queues(descriptors)
        if not queues:
            return 0
        some = len(queues)
        now, first = environment.manager.clock(), environment.manager.changes.sequence + 1
        found, answers = send_stubs.records(
            requests.stubs(calls)[:some], forms[:some], WRITTEN, first, now // 1000, now % 1000
        )
        count = len(answers)
        if not count:
            return 0
        del queues[count:]
        recoverable, records, bounds, keys, words, sizes, charged = found
        if recoverable:
            records, sizes, bounds = compact_rows(records, bounds)
        rows = MessageRows(array("I", [queue.number for queue in queues]), records, sizes, bounds, keys, words)
        if not sending.enqueue_batch(MessageBatch(queues, rows, charged, recoverable)):
            return 0
        answer_all(environment, calls[:count], answers, [recoverable] * count)
        return count

    def _form(self, descriptor: OpenQueueDescriptor, sender: bytes) -> Form:
        """Return the common fields of a sender's records for a queue: the fixed part, the sender (for messages that
        name none), the destination, its length in characters, and the maximum time to reach it (INFINITE for a queue of
        this machine). Cached, so that open queues share it."""
        destination, longest = descriptor.name, INFINITE
        if descriptor.queue is not None and descriptor.queue.kind is QueueKind.OUTGOING:
            longest = self._environment.manager.machine.default_time_to_reach_queue
        form = self._forms.get((destination, sender, longest))
        if form is None:
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            machine = self._environment.manager.machine.identifier
            template = Message(source_machine_identifier=machine, identifier=machine + bytes(4))
            name = destination.encode("utf-8", "surrogatepass")
            form = encode_message(template)[: FIXED.size], sender, name, len(destination), longest
            self._forms[destination, sender, longest] = form
        return form


class ReceiveBatcher:
    def __init__(self, environment: Environment) -> None:
        self._environment: Final = environment
        self.opnum: Final[int] = m.qmcomm2.operation("rpc_ACReceiveMessageEx").opnum

    def serve(self, calls: list[Any]) -> int:
        """See `OperationBatcher`."""
        environment = self._environment
        reading = environment.manager.reading
        queues = reading.fast_path_queues(self._opened(calls))
        if not queues or requests.any_abandoned(calls[: len(queues)]):
            return 0
        found = first_messages(environment, queues)
        now = environment.manager.clock() // 1000
        answers = receive_stubs.answers(requests.stubs(calls), found.records, READ, now)
        count = len(answers)
        locations = found.locations[:count]
        if not count or not reading.take_batch(queues[:count], found.positions[:count], locations):
            return 0
        # The answer with an express message need not wait for a sync.
        answer_all(environment, calls[:count], answers, [location is not None for location in locations])
        return count

    def _opened(self, calls: list[Any]) -> list[OpenQueueDescriptor]:
        """Return the local queues that the calls read, up to the first call on another handle."""
        environment = self._environment
        manager, proxies = environment.manager, environment.proxies
        opened: list[OpenQueueDescriptor] = []
        for context in requests.leading_words(calls):
            handles: HeldHandles = calls[len(opened)].handles
            descriptor = find_owned_descriptor(manager, handles.holder, context)
            if descriptor is None or (proxies and context in proxies):
                break
            opened.append(descriptor)
        return opened
