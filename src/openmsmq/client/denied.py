"""Find the right that a refused caller lacks: the server only reports MQ_ERROR_ACCESS_DENIED."""

from __future__ import annotations

from typing import Final

from openmsmq.model.constants import Access
from openmsmq.model.constants import MachineAccessMask as M
from openmsmq.model.constants import QueueAccessMask as Q
from openmsmq.model.queue_names import path_of
from openmsmq.model.rights import missing_right

_USER: Final = "USER"  # the client may not know the account with which the server identifies it
#: Rights required by operations other than opening a queue: on the queue, or on the queue manager.
_ON_QUEUE: Final = {
    "R_QMDeleteObject": Q.DELETE_QUEUE,
    "R_QMGetObjectProperties": Q.GET_QUEUE_PROPERTIES,
    "R_QMSetObjectProperties": Q.SET_QUEUE_PROPERTIES,
    "R_QMGetObjectSecurityInternal": Q.GET_QUEUE_PERMISSIONS,
    "R_QMSetObjectSecurityInternal": Q.CHANGE_QUEUE_PERMISSIONS,
}
_ON_MACHINE: Final = {
    "R_QMCreateObjectInternal": M.CREATE_QUEUE,
    "R_QMMgmtAction": M.SET_MACHINE_PROPERTIES,
}
_MANAGEMENT: Final = "R_QMMgmtGetInfo"
#: Rights required to open a queue, a journal, a dead-letter queue, or the machine journal ([MS-MQDMPR] 3.1.7.1.5).
_TO_READ: Final = (Q.RECEIVE_MESSAGE, Q.RECEIVE_JOURNAL_MESSAGE, M.RECEIVE_DEADLETTER_MESSAGE,
                   M.RECEIVE_JOURNAL_QUEUE_MESSAGE)  # fmt: skip
_TO_OPEN: Final = {
    Access.RECEIVE: _TO_READ,
    Access.PEEK: (Q.PEEK_MESSAGE, Q.PEEK_MESSAGE, M.PEEK_DEADLETTER_MESSAGE, M.PEEK_JOURNAL_QUEUE_MESSAGE),
    Access.SEND: (Q.WRITE_MESSAGE,) * 4,
}
_MOVE: Final = 4  # MQ_MOVE_ACCESS, [MS-MQMQ] 2.2.8


def denied_hint(operation: str, what: str, access: int = 0) -> str:
    """Return a hint, appended to the error of a denied operation on the queue `what`: the required right and the
    command that grants it. Empty if no right would help.

    Args:
        access: requested access mode of an open, 0 for other operations.
    """
    queue: str | None = what
    if access:
        index, queue = _opened(what)
        rights = _TO_READ if access == _MOVE else _TO_OPEN.get(access)  # type: ignore[call-overload]
        mask = M.SET_MACHINE_PROPERTIES if rights is None else rights[index]
        queue = None if rights is None else queue
    elif operation == _MANAGEMENT:
        queue = None if what == "the machine" or "\\system$;" in path_of(what).lower() else what
        mask = M.GET_MACHINE_PROPERTIES if queue is None else Q.GET_QUEUE_PROPERTIES
    elif operation in _ON_MACHINE:
        queue, mask = None, _ON_MACHINE[operation]
    elif operation in _ON_QUEUE:
        mask = _ON_QUEUE[operation]
    else:
        return ""
    return f": {missing_right(mask, _USER, queue)}"


def _opened(name: str) -> tuple[int, str | None]:
    """Return the kind of the named queue, as an index of `_TO_OPEN`, and the queue that has the security descriptor."""
    queue, _, part = path_of(name).partition(";")
    if queue.lower().endswith("\\system$"):
        return (3 if part.lower() == "journal" else 2), None
    return (1 if part.lower() == "journal" else 0), queue
