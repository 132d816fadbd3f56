"""Checks of queues before messages are received from or sent to them."""

from __future__ import annotations

from collections.abc import Iterable

from openmsmq.client.calls import UNANSWERED
from openmsmq.client.sync import QueueManager
from openmsmq.model.errors import AccessDenied, HResult, MsmqError, QueueNotFound
from openmsmq.model.message import Message


def is_transactional(qm: QueueManager, path: str) -> bool:
    """Whether a queue of this queue manager is transactional. False for queues of other machines, which are unknown
    here, and for journals and dead-letter queues, which are read without transactions. Raises AccessDenied if the
    caller may neither see the properties of the queue nor send to it."""
    is_connector = path.upper().startswith("CONNECTOR=")
    if (";" in path and not is_connector) or path.upper().startswith("MACHINE="):
        return False
    try:
        return bool(qm.management(path)["transactional"] == "YES")
    except QueueNotFound:  # nothing was sent to it yet, or it is missing, which opening it will report
        return False
    except AccessDenied:
        return _takes_transactions(qm, path)


def is_elsewhere(qm: QueueManager, path: str) -> bool:
    """Whether a name is of a queue of another machine."""
    try:
        return bool(qm.management(path)["location"] == "REMOTE")
    except AccessDenied:
        return False
    except QueueNotFound:  # nothing was sent to it yet, or it is missing
        pass
    try:
        qm.properties(path, "path_name")
    except UNANSWERED:
        raise
    except (QueueNotFound, AccessDenied):
        return False
    except MsmqError:  # of a name that this queue manager has no object for
        return True
    return True  # a public queue, which the directory knows


def demand_certain(qm: QueueManager, to: str, *, in_transaction: bool) -> None:
    """Check that messages can be removed as soon as they were sent to a queue. Another machine may refuse a message
    without a trace, unless it is sent in a transaction: then it becomes a dead letter. Raises MsmqError."""
    if not in_transaction and is_elsewhere(qm, to):
        raise MsmqError(
            HResult.MQ_ERROR_UNSUPPORTED_OPERATION,
            f"{to} is on another machine, which may refuse messages after they were removed here: give --transaction "
            "if it is transactional; `openmsmq forward to` moves messages to any queue, and waits for each to arrive",
        )


def missing(qm: QueueManager, names: Iterable[str]) -> list[str]:
    """Return the names of queues of this queue manager that do not exist. Queues of other machines are not checked."""
    return [name for name in dict.fromkeys(names) if _is_missing(qm, name)]


def _is_missing(qm: QueueManager, name: str) -> bool:
    try:
        qm.properties(name, "path_name")
    except UNANSWERED:
        raise
    except QueueNotFound:
        return True
    except MsmqError:  # not a queue, on another machine, or not accessible to this caller
        return False
    return False


def _takes_transactions(qm: QueueManager, path: str) -> bool:
    """Whether a queue accepts a message in a transaction, tested with a transaction that is aborted. This requires only
    the right to send."""
    transaction = qm.transaction()
    try:
        with qm.open(path, "send") as opened:
            opened.send(Message(), transaction=transaction)
    except MsmqError as error:
        if error.hresult != HResult.MQ_ERROR_TRANSACTION_USAGE:
            raise
        return False
    finally:
        transaction.abort()
    return True
