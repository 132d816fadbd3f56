"""Client calls for one transaction across several queue managers ([MS-MQMP] 3.1.4.12 and 3.1.4.13, [MS-MQRR]
3.2.4.2; deviation D-253)."""

from __future__ import annotations

from openmsmq.client.calls import REPEATABLE, Steps, call
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces.ms_mqmq import QUEUE_FORMAT, XACTUOW
from openmsmq.interfaces.ms_mqrr import RemoteRead
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.oletx.structures import (
    BadStructure,
    PropagationToken,
    decode_whereabouts,
    encode_stx_info,
    encode_token,
)

_BUFFERS = (512, 0x10000)  # bytes for SWhereabouts, which take about 100


def propagation_token(uow: bytes) -> Steps[bytes]:
    """Return the propagation token with which other queue managers pull an internal transaction from the transaction
    manager of this one.

    Raises MsmqError MQ_ERROR_DTC_CONNECT if the transaction manager is off."""
    for size in _BUFFERS:
        try:
            response = yield from call(m.qmcomm, "R_QMGetTmWhereabouts", fate=REPEATABLE, cbBufSize=size)
            break
        except MsmqError as error:
            if error.hresult != HResult.MQ_ERROR_USER_BUFFER_TOO_SMALL or size == _BUFFERS[-1]:
                raise
    try:
        superior = decode_whereabouts(bytes(response.pbWhereabouts)[: response.pcbWhereabouts])
    except BadStructure as error:
        raise MsmqError(HResult.MQ_ERROR_DTC_CONNECT, f"cannot find the transaction manager: {error}") from error
    return encode_token(PropagationToken(uow, superior))


def enlist_remote(uow: bytes, token: bytes) -> Steps[None]:
    """Enlist a server in a transaction of another one (R_QMEnlistRemoteTransaction). An empty token stands for an
    internal transaction of this client; only openmsmq accepts it (deviation D-70)."""
    yield from call(
        RemoteRead, "R_QMEnlistRemoteTransaction", pTransactionId=XACTUOW(uow), cbPropagationToken=len(token),
        pbPropagationToken=token, pQueueFormat=QUEUE_FORMAT(),
    )  # fmt: skip


def enlist_for_sending(uow: bytes) -> Steps[None]:
    """Tell a server that participates in a transaction that messages will be sent in it (R_QMEnlistTransaction)."""
    cookie = encode_stx_info(uow)
    yield from call(m.qmcomm, "R_QMEnlistTransaction", pUow=XACTUOW(uow), cbCookie=len(cookie), pbCookie=cookie)
