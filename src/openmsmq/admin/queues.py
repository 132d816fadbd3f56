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
