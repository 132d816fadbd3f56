"""What clients and queue managers ask of the TransactionManager interface, the project's own."""

from __future__ import annotations

from openmsmq.client.calls import REPEATABLE, Steps, call
from openmsmq.interfaces.ms_mqmq import QUEUE_FORMAT, XACTUOW
from openmsmq.interfaces.ms_mqrr import RemoteRead
from openmsmq.interfaces.openmsmq_tm import TransactionManager


def propagation_token(uow: bytes) -> Steps[bytes]:
    """What other queue managers need to take part in an internal transaction of this client."""
    response = yield from call(TransactionManager, "TmGetPropagationToken", fate=REPEATABLE, pUow=XACTUOW(uow))
    return bytes(response.ppbToken or b"")


def enlist_remote(uow: bytes, token: bytes) -> Steps[None]:
    """R_QMEnlistRemoteTransaction ([MS-MQRR] 3.2.4.2): let a server take part in a transaction of another one."""
    yield from call(
        RemoteRead, "R_QMEnlistRemoteTransaction", pTransactionId=XACTUOW(uow), cbPropagationToken=len(token),
        pbPropagationToken=token, pQueueFormat=QUEUE_FORMAT(),
    )  # fmt: skip


def enlist(uow: bytes, secret: bytes, participant: bytes) -> Steps[None]:
    yield from call(
        TransactionManager, "TmEnlist", pUow=XACTUOW(uow), pSecret=secret, cbParticipant=len(participant),
        pbParticipant=participant,
    )  # fmt: skip


def notify(operation: str, uow: bytes, secret: bytes) -> Steps[None]:
    """TmPrepare, TmCommit or TmAbort."""
    yield from call(TransactionManager, operation, pUow=XACTUOW(uow), pSecret=secret)


def outcome(uow: bytes, secret: bytes) -> Steps[int]:
    response = yield from call(TransactionManager, "TmGetOutcome", fate=REPEATABLE, pUow=XACTUOW(uow), pSecret=secret)
    answer: int = response.pdwOutcome
    return answer
