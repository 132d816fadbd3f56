"""The interface qmmgmt ([MS-MQMR] 3.1.4): query and administer the machine and its queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NoReturn

from msrpc.rpc.call import Call
from msrpc.rpc.faults import RPC_X_BAD_STUB_DATA, Fault
from msrpc.rpc.pdu import NDR
from openmsmq.conversion.management import MACHINE_PROPERTIES, QUEUE_PROPERTIES, ManagementProperty, pack
from openmsmq.conversion.queue_format import from_queue_format
from openmsmq.interfaces import ms_mqmr as m
from openmsmq.interfaces.ms_mqmq import tag_inner_PROPVARIANT as PROPVARIANT
from openmsmq.model.constants import VarType
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.protocols import management
from openmsmq.protocols.dispatch import NdrInterface, check, present
from openmsmq.queueing.authorization import Right
from openmsmq.queueing.outgoing_queues import OutgoingQueue
from openmsmq.queueing.queue import Queue

_VT_VECTOR = 0x1000
_COUNTED_ARMS = ("blob", "caub", "caui", "cal", "caul", "cauh", "cauuid", "calpwstr", "capropvar")  # of PROPVARIANT

MGMT_MACHINE, MGMT_SESSION = 1, 3  # MgmtObjectType; 2 is a queue


class QmMgmt(NdrInterface):
    description = m.qmmgmt
    transfer_syntaxes = (NDR,)  # [MS-MQMR] 2.2: NDR only
    states: ClassVar[dict[str, str]] = {
        "R_QMMgmtAction": "served; EOD_RESEND answers MQ_ERROR where nothing waits for an order acknowledgment",
    }

    # -- properties --------------------------------------------------------------------------------------------

    def R_QMMgmtGetInfo(self, call: Call, q: m.R_QMMgmtGetInfo_Request) -> m.R_QMMgmtGetInfo_Response:
        """3.1.4.1. Deviation D-46: does not open the queue. Opening it with receive access, as published, would fail
        while another client has it open exclusively."""
        _reject_null_arrays(q.apVar)
        manager, caller = self.manager, self.environment.caller(call)
        if q.pObjectFormat.type == MGMT_MACHINE:
            manager.authorization.authorize(caller, None, Right.SEE)
            return self._answer(MACHINE_PROPERTIES, q.aProp, lambda name: management.MACHINE[name](manager))
        queue = self._queue(q.pObjectFormat)
        manager.authorization.authorize(caller, queue, Right.SEE)
        return self._answer(QUEUE_PROPERTIES, q.aProp, lambda name: management.QUEUE[name](manager, queue))

    def _queue(self, target: m.MGMT_OBJECT) -> Queue:
        check(target.type != MGMT_SESSION, "sessions have no properties")
        name = from_queue_format(present(target.pQueueFormat, "pQueueFormat"))
        return self.manager.registry.administered(name)

    @staticmethod
    def _answer(
        known: dict[str, ManagementProperty], propids: list[int], value_of: Callable[[str], object]
    ) -> m.R_QMMgmtGetInfo_Response:
        names = {entry.propid: name for name, entry in known.items()}
        values: list[PROPVARIANT] = []
        for propid in propids:
            if propid not in names:
                raise MsmqError(HResult.MQ_ERROR_ILLEGAL_PROPID, f"{propid}; allowed: 1 to {max(names)}")
            values.append(pack(known, names[propid], value_of(names[propid])))
        return m.R_QMMgmtGetInfo_Response(apVar=values)

    # -- actions -----------------------------------------------------------------------------------------------

    def R_QMMgmtAction(self, call: Call, q: m.R_QMMgmtAction_Request) -> m.R_QMMgmtAction_Response:
        """3.1.4.2: for administrators. Actions are case-insensitive."""
        name = q.lpwszAction.upper()
        check(q.pObjectFormat.type != MGMT_SESSION, "nothing can be done to a session")
        is_machine = q.pObjectFormat.type == MGMT_MACHINE
        allowed = self._machine_actions() if is_machine else self._queue_actions(q.pObjectFormat)
        if name not in allowed:
            wrong = f"action {q.lpwszAction[:100]!r}; allowed for this object: {', '.join(allowed)}"
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, wrong)
        caller = self.environment.caller(call)
        what = "the machine" if is_machine else _shown(q.pObjectFormat)
        self.manager.authorization.authorize(caller, None, Right.ADMINISTER, f"{name} {what}")
        allowed[name]()
        return m.R_QMMgmtAction_Response()

    def _machine_actions(self) -> dict[str, Callable[[], None]]:
        manager = self.manager
        return {
            "CONNECT": lambda: manager.outgoing.set_online(True),
            "DISCONNECT": lambda: manager.outgoing.set_online(False),
            # Deviation D-56: published as Purge Queue for every queue, which contradicts the description.
            "TIDY": self.environment.tidy,
        }

    def _queue_actions(self, target: m.MGMT_OBJECT) -> dict[str, Callable[[], None]]:
        manager = self.manager
        return {
            "PAUSE": lambda: manager.outgoing.pause(self._outgoing(target)),
            "RESUME": lambda: manager.outgoing.resume(self._outgoing(target)),
            "EOD_RESEND": lambda: manager.outgoing.transport.resend(self._outgoing(target)),
        }

    def _outgoing(self, target: m.MGMT_OBJECT) -> OutgoingQueue:
        queue = self._queue(target)
        return queue if isinstance(queue, OutgoingQueue) else _not_outgoing(queue)


def _shown(target: m.MGMT_OBJECT) -> str:
    """Return a queue's name for the audit log, without revealing whether the queue exists."""
    try:
        return str(from_queue_format(present(target.pQueueFormat, "pQueueFormat")))
    except MsmqError:
        return "a queue"


def _reject_null_arrays(variants: list[PROPVARIANT]) -> None:
    """3.1.4: the RPC runtime rejects a NULL pointer with a nonzero conformant value. Among the arguments of this
    interface, this can only occur in counted arrays of PROPVARIANTs, which consist of a count and a pointer."""
    for variant in variants:
        if variant.vt != VarType.VT_BLOB and not variant.vt & _VT_VECTOR:
            continue  # skip the search of all arms, which costs more than the rest of the call
        counted = next(arm for name in _COUNTED_ARMS if (arm := getattr(variant, name)) is not None)
        count, pointer = counted.__slots__
        if getattr(counted, count) and getattr(counted, pointer) is None:
            raise Fault(RPC_X_BAD_STUB_DATA)


def _not_outgoing(queue: Queue) -> NoReturn:
    wrong = f"{queue.properties.path_name} is not an outgoing queue"
    raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, wrong)
