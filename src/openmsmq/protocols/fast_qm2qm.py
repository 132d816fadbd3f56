"""Fast path of qm2qm for simple receives: RemoteQMStartReceive, RemoteQMStartReceive2 and RemoteQMEndReceive ([MS-MQQP]
3.1.4.1, 3.1.4.10, 3.1.4.2)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from msrpc.rpc.association import NULL_HANDLE, HeldHandles
from msrpc.rpc.faults import Fault
from openmsmq.conversion.packets import user_message_of
from openmsmq.interfaces import ms_mqqp as m
from openmsmq.model.constants import ReceiveAction
from openmsmq.model.lookup_id import sequence_of
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.first_messages import answer_all, first_messages
from openmsmq.protocols.qm2qm import (
    BY_SERVER,
    PCTX_REMOTEREAD_HANDLE_TYPE,
    RR_ACK,
    OpenQueueEntry,
    Qm2Qm,
    RemoteReadEntry,
)
from openmsmq.protocols.two_phase_batches import EndBatch, start_all
from openmsmq.queueing.descriptors import OpenQueueDescriptor
from openmsmq.record.compact_record import expand_head
from openmsmq.record.fields import OFFSET
from openmsmq.record.layouts import READ
from openmsmq.record.message_record import decode_message

try:
    from msrpc.rpc import requests
    from openmsmq.packet import outgoing_packets, plain_packets
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        outgoing_packets = plain_packets = requests = None

# REMOTEREADDESC: hRemoteQueue, hCursor, ulAction, ulTimeout, dwSize, dwQueue, dwRequestID, Reserved, dwArriveTime,
# eAckNack and the referent of lpBuffer. REMOTEREADDESC2 before it: its referent and SequentialId.
_DESCRIPTION: Final = struct.Struct("<9IH2xI")
_OUTER: Final = struct.Struct("<I4xQ")
_BUFFER: Final = struct.Struct("<3I")  # conformant and varying
_ARRIVED: Final = struct.Struct("<I")
_HEAD: Final = OFFSET["arrival_time"] + _ARRIVED.size
_END: Final = struct.Struct("<20sI")
_ENDED: Final = NULL_HANDLE + bytes(4)  # response of RemoteQMEndReceive: pphContext and MQ_OK
_FIRST_REFERENT: Final = 0x20000
_RECEIVE: Final = int(ReceiveAction.RECEIVE)
_MOST_TEMPLATES: Final = 1024  # a full cache is emptied
_LARGEST_SHAPE: Final = 2048  # bytes
_LARGEST_BUFFER: Final = 0x420000  # REMOTEREADDESC.dwSize, [MS-MQQP] 2.2.2.1


class RemoteStartBatcher:
    """Fast path of one of the two start operations. Only the second returns a SequentialId (`has_sequence`)."""

    def __init__(self, environment: Environment, interface: Qm2Qm, name: str, has_sequence: bool) -> None:
        self._environment: Final = environment
        self._interface: Final = interface
        self._has_sequence: Final = has_sequence
        self._offset: Final[int] = _OUTER.size if has_sequence else 0
        self._templates: dict[bytes, tuple[bytes, int] | None] = {}
        self.opnum: Final[int] = m.qm2qm.operation(name).opnum

    def serve(self, calls: list[Any]) -> int:
        """See `fast_path.OperationBatcher`."""
        environment, interface = self._environment, self._interface
        descriptors: list[OpenQueueDescriptor] = []
        for call in calls:
            entry = self._entry(call)
            if entry is None:
                break
            descriptors.append(entry.descriptor)
        queues = environment.manager.reading.fast_path_queues(descriptors)
        if not queues or requests.any_abandoned(calls[: len(queues)]):
            return 0
        found = first_messages(environment, queues)
        packets = self._packets(found.positions, found.records)
        answers: list[bytes] = []
        handles: list[tuple[HeldHandles, bytes]] = []
        for packet, record, position in zip(packets, found.records, found.positions, strict=False):
            call, read = calls[len(answers)], RemoteReadEntry(descriptors[len(answers)], position)
            try:
                handle = call.handles.create(PCTX_REMOTEREAD_HANDLE_TYPE, read, interface.put_back)
            except Fault:  # too many handles
                break
            handles.append((call.handles, handle))
            answers.append(self._answer(call.stub, handle, packet, record, sequence_of(position)))

        def put_back(index: int) -> None:
            interface.give_up(*handles[index])

        return start_all(environment, calls, descriptors, queues, found, answers, put_back)

    def _entry(self, call: Any) -> OpenQueueEntry | None:
        """Return the session of a simple request."""
        stub = call.stub
        if len(stub) != self._offset + _DESCRIPTION.size or (self._has_sequence and not any(stub[:4])):
            return None
        queue, cursor, action, _, size, same, request, _, _, _, buffer = _DESCRIPTION.unpack_from(stub, self._offset)
        if cursor or action != _RECEIVE or buffer or queue != same or not queue or size > _LARGEST_BUFFER:
            return None
        entry = self._interface.session_of(call.handles.holder, queue)
        return None if entry is None or request in entry.waiting else entry

    def _packets(self, positions: list[int], records: list[bytes]) -> list[bytes]:
        """Return the packets of the simple messages at the beginning."""
        templates: list[tuple[bytes, int]] = []
        shapes = outgoing_packets.shapes(records, READ)
        for shape, record, position in zip(shapes, records, positions, strict=False):
            template = self._templates.get(shape)
            if template is None:
                if shape in self._templates or len(shape) > _LARGEST_SHAPE:
                    break
                if len(self._templates) >= _MOST_TEMPLATES:
                    self._templates.clear()
                packet = user_message_of(decode_message(record, position), tells_level=True).pack()
                properties = plain_packets.properties(packet)
                template = self._templates[shape] = (packet, properties) if properties >= 0 else None
                if template is None:
                    break
            templates.append(template)
        return outgoing_packets.packets(records[: len(templates)], templates, READ)

    def _answer(self, stub: bytes, handle: bytes, packet: bytes, record: bytes, sequence: int) -> bytes:
        values = list(_DESCRIPTION.unpack_from(stub, self._offset))
        (arrived,) = _ARRIVED.unpack_from(expand_head(record, _HEAD), OFFSET["arrival_time"])
        size, referent = len(packet), _FIRST_REFERENT + 4 * self._has_sequence
        values[4], values[7], values[8], values[10] = size, BY_SERVER, arrived, referent
        outer = bytes(4) + _OUTER.pack(_FIRST_REFERENT, sequence) if self._has_sequence else b""
        padding = bytes(-size & 3)
        return b"".join(
            (handle, outer, _DESCRIPTION.pack(*values), _BUFFER.pack(size, 0, size), packet, padding, bytes(4))
        )


class RemoteEndBatcher:
    """Fast path of RemoteQMEndReceive."""

    def __init__(self, environment: Environment) -> None:
        self._environment: Final = environment
        self.opnum: Final[int] = m.qm2qm.operation("RemoteQMEndReceive").opnum

    def serve(self, calls: list[Any]) -> int:
        """See `fast_path.OperationBatcher`."""
        batch = EndBatch(self._environment)
        for index, read in enumerate(requests.held(calls, PCTX_REMOTEREAD_HANDLE_TYPE)):
            stub = calls[index].stub
            if len(stub) != _END.size or _END.unpack(stub)[1] != RR_ACK:
                break
            if not batch.add(read.descriptor, read.lookup_identifier):
                break
        waits = batch.carry_out()
        if waits:
            for call in calls[: len(waits)]:
                call.handles.close(call.stub[: len(NULL_HANDLE)], PCTX_REMOTEREAD_HANDLE_TYPE)
            answer_all(self._environment, calls[: len(waits)], [_ENDED] * len(waits), waits)
        return len(waits)
