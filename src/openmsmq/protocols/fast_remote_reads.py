"""Fast path (see `fast_path`) for two-phase receives of remote readers ([MS-MQRR] 3.1.4.7, 3.1.4.9): R_StartReceive of
available messages whose receipt has no other effect, and R_EndReceive that acknowledges them. All other calls, and all
calls that are refused, are handled by `RemoteRead`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from openmsmq.interfaces import ms_mqrr as m
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.first_messages import answer_all, first_messages
from openmsmq.protocols.remote_read import QUEUE_CONTEXT_HANDLE, PendingRequestEntry, RemoteQueue, RemoteRead
from openmsmq.protocols.two_phase_batches import EndBatch, start_all
from openmsmq.protocols.user_headers import UserHeaders
from openmsmq.record.layouts import READ

try:
    from msrpc.rpc import requests
    from openmsmq.protocols import start_receive_stubs
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        start_receive_stubs = requests = None

_OK: Final = bytes(4)  # stub of a response whose only value is the HRESULT MQ_OK


class StartReceiveBatcher:
    """Fast path of R_StartReceive."""

    def __init__(self, environment: Environment, interface: RemoteRead) -> None:
        self._environment: Final = environment
        self._interface: Final = interface
        self._user_headers: Final = UserHeaders()
        self.opnum: Final[int] = m.RemoteRead.operation("R_StartReceive").opnum

    def serve(self, calls: list[Any]) -> int:
        """See `fast_path.OperationBatcher`."""
        environment, interface = self._environment, self._interface
        readers: list[RemoteQueue] = []
        numbers, sizes = start_receive_stubs.starts(requests.stubs(calls))
        holders: list[RemoteQueue] = requests.held(calls, QUEUE_CONTEXT_HANDLE)
        for index in range(min(len(numbers), len(holders))):
            reader, caller = holders[index], calls[index].caller
            if numbers[index] in reader.pending or not interface.admits(caller, reader):
                break
            readers.append(reader)
        descriptors = [reader.descriptor for reader in readers]
        queues = environment.manager.reading.fast_path_queues(descriptors)
        if not queues or requests.any_abandoned(calls[: len(queues)]):
            return 0
        found = first_messages(environment, queues)
        answers = start_receive_stubs.answers(found.records, READ, self._user_headers, found.positions, sizes)
        entries: list[PendingRequestEntry] = []
        for index in range(len(answers)):
            reader, request = readers[index], numbers[index]
            if request in reader.pending:  # used by an earlier call of this batch
                del answers[index:]
                break
            entry = reader.pending[request] = PendingRequestEntry(reader, request)
            entry.keep(found.positions[index])
            entries.append(entry)
        interface.limit_times(entries)

        def put_back(index: int) -> None:
            interface.put_back(entries[index])

        return start_all(environment, calls, descriptors, queues, found, answers, put_back)


class EndReceiveBatcher:
    """Fast path of R_EndReceive."""

    def __init__(self, environment: Environment, interface: RemoteRead) -> None:
        self._environment: Final = environment
        self._interface: Final = interface
        self.opnum: Final[int] = m.RemoteRead.operation("R_EndReceive").opnum

    def serve(self, calls: list[Any]) -> int:
        """See `fast_path.OperationBatcher`."""
        environment, interface = self._environment, self._interface
        batch, entries = EndBatch(environment), []
        numbers = start_receive_stubs.acknowledgments(requests.stubs(calls))
        holders: list[RemoteQueue] = requests.held(calls, QUEUE_CONTEXT_HANDLE)
        for index in range(min(len(numbers), len(holders))):
            reader, caller = holders[index], calls[index].caller
            entry = reader.pending.get(numbers[index])
            if entry is None or entry.reader is not None or entry.transaction is not None:
                break
            if not interface.admits(caller, reader) or not batch.add(reader.descriptor, entry.lookup_identifier):
                break
            entries.append(entry)
        waits = batch.carry_out()
        if waits:
            for entry in entries[: len(waits)]:
                interface.forget(entry)
            answer_all(environment, calls[: len(waits)], [_OK] * len(waits), waits)
        return len(waits)
