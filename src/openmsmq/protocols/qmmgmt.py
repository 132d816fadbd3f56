"""The interface qmmgmt ([MS-MQMR] 3.1.4): what an administrator sees of the machine and its queues.

Properties that only an outgoing queue has come back as VT_NULL: there are no outgoing queues here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openmsmq.interfaces import ms_mqmr as m
from openmsmq.interfaces.ms_dtyp import LARGE_INTEGER
from openmsmq.interfaces.ms_mqmq import CALPWSTR
from openmsmq.interfaces.ms_mqmq import tag_inner_PROPVARIANT as PROPVARIANT
from openmsmq.model.constants import QueueAccessMask, VarType
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.protocols.dispatch import NdrInterface, answers, present
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.queueing.state import State
from openmsmq.rpc.call import Call
from openmsmq.transfer.propvariants import pack
from openmsmq.transfer.queue_format import from_queue_format

MGMT_MACHINE, MGMT_QUEUE, MGMT_SESSION = 1, 2, 3
_TEXTS = VarType.VT_LPWSTR | 0x1000
_UI4_MAXIMUM = 0xFFFFFFFF

_TYPES = {QueueKind.PRIVATE: "PRIVATE", QueueKind.JOURNAL: "PRIVATE", QueueKind.SYSTEM: "MACHINE"}


def _texts(values: list[str]) -> PROPVARIANT:
    return PROPVARIANT(vt=_TEXTS, calpwstr=CALPWSTR(len(values), list(values)))


def _private(state: State) -> list[Queue]:
    return [queue for queue in state.queues.values() if queue.kind is QueueKind.PRIVATE]


# Property identifier -> value, [MS-MQMR] 3.1.4.1 and [MS-MQMQ] 2.3.11.
_MACHINE: dict[int, Callable[[State], PROPVARIANT]] = {
    1: lambda s: _texts([str(s.private_format_name(q)) for q in _private(s) if q.descriptors]),
    2: lambda s: _texts([queue.properties.path_name for queue in _private(s)]),
    3: lambda s: PROPVARIANT(vt=VarType.VT_NULL),  # not integrated with a directory service
    4: lambda s: pack(VarType.VT_LPWSTR, "CONNECTED"),
    5: lambda s: pack(VarType.VT_LPWSTR, ""),
    6: lambda s: _bytes(sum(queue.total_bytes for queue in s.queues.values())),
}
# [MS-MQMQ] 2.3.12.
_QUEUE: dict[int, Callable[[State, Queue], PROPVARIANT]] = {
    1: lambda s, q: pack(VarType.VT_LPWSTR, q.properties.path_name),
    2: lambda s, q: pack(VarType.VT_LPWSTR, f"DIRECT=OS:{q.properties.path_name}"),
    3: lambda s, q: pack(VarType.VT_LPWSTR, _TYPES[q.kind]),
    4: lambda s, q: pack(VarType.VT_LPWSTR, "LOCAL"),
    5: lambda s, q: pack(VarType.VT_LPWSTR, "YES" if q.properties.transactional else "NO"),
    6: lambda s, q: pack(VarType.VT_LPWSTR, "NO"),
    7: lambda s, q: _count(len(q)),
    8: lambda s, q: _count(q.total_bytes),
    9: lambda s, q: _count(len(q.journal) if q.journal is not None else 0),
    10: lambda s, q: _count(q.journal.total_bytes if q.journal is not None and q.properties.journaling else 0),
    11: lambda s, q: pack(VarType.VT_LPWSTR, "LOCAL CONNECTION"),
    **{outgoing: lambda s, q: PROPVARIANT(vt=VarType.VT_NULL) for outgoing in range(12, 26)},
    26: lambda s, q: _count(0),
    27: lambda s, q: _texts([]),
}


class QmMgmt(NdrInterface):
    description = m.qmmgmt

    @answers("served for the machine and local queues")
    def R_QMMgmtGetInfo(self, call: Call, q: m.R_QMMgmtGetInfo_Request) -> m.R_QMMgmtGetInfo_Response:
        """3.1.4.1. Reads without opening: an open with receive access, as published, would fail while somebody
        holds the queue exclusively."""
        state = self.environment.manager.state
        if q.pObjectFormat.type == MGMT_MACHINE:
            return m.R_QMMgmtGetInfo_Response(apVar=[self._property(_MACHINE, p)(state) for p in q.aProp])
        if q.pObjectFormat.type != MGMT_QUEUE:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "sessions have no properties")
        queue_format = present(q.pObjectFormat.pQueueFormat, "pQueueFormat")
        manager = self.environment.manager
        queue = manager.queue_for(from_queue_format(queue_format))
        manager.demand(queue, self.environment.caller(call), QueueAccessMask.GET_QUEUE_PROPERTIES)
        return m.R_QMMgmtGetInfo_Response(apVar=[self._property(_QUEUE, p)(state, queue) for p in q.aProp])

    @staticmethod
    def _property(table: dict[int, Any], propid: int) -> Any:
        if propid not in table:
            raise MsmqError(HResult.MQ_ERROR_ILLEGAL_PROPID, f"{propid}; known are 1 to {max(table)}")
        return table[propid]

    @answers("not available yet: MQ_ERROR")
    def R_QMMgmtAction(self, call: Call, q: m.R_QMMgmtAction_Request) -> None:
        """3.1.4.2: no action is available yet."""
        raise MsmqError(HResult.MQ_ERROR, f"action {q.lpwszAction!r}")


def _count(value: int) -> PROPVARIANT:
    return pack(VarType.VT_UI4, min(value, _UI4_MAXIMUM))


def _bytes(value: int) -> PROPVARIANT:
    return PROPVARIANT(vt=VarType.VT_I8, hVal=LARGE_INTEGER(value))
