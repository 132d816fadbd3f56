"""Single rules of the operations, each with its section."""

from __future__ import annotations

from typing import Any

import pytest

from msrpc.rpc.faults import RPC_X_BAD_STUB_DATA, Fault
from openmsmq.conversion.receive_buffer import receive_buffer
from openmsmq.interfaces import ms_mqmr as mr
from openmsmq.interfaces import ms_mqrr as rr
from openmsmq.interfaces.ms_mqmq import BLOB, CALPWSTR, XACTUOW
from openmsmq.interfaces.ms_mqmq import tag_inner_PROPVARIANT as PROPVARIANT
from openmsmq.model.constants import INFINITE, Access, LookupAction, ReceiveAction, VarType
from openmsmq.model.errors import HResult
from protocols import test_qm2qm as qm2qm
from protocols import test_remote_read as remote_read
from protocols.clients import Client, Server, queue_format

H = HResult


@pytest.fixture
def server() -> Server:
    server = Server()
    server.world.create("q")
    server.world.create("x", TRANSACTION=1)
    return server


@pytest.fixture
def client(server: Server) -> Client:
    return server.client()


def test_a_lookup_leaves_a_waiting_request_with_its_number_alone(client: Client, server: Server) -> None:
    """[MS-MQQP] 3.1.4.11, 3.1.4.6."""
    queue, _ = qm2qm.session(client)
    waiting = qm2qm.start(client, queue, request=7, ulTimeout=INFINITE)
    missing = qm2qm.look_up(client, queue, 12345, LookupAction.PEEK_CURRENT, request=7)
    assert missing.result == H.MQ_ERROR_MESSAGE_NOT_FOUND
    cancel = client.call("RemoteQMCancelReceive", hQueue=queue, pQueue=queue, dwRequestID=7)
    assert cancel.result == H.MQ_OK
    assert waiting.response.result == H.MQ_INFORMATION_REMOTE_CANCELED_BY_CLIENT


@pytest.mark.parametrize("action", [ReceiveAction.PEEK_CURRENT, ReceiveAction.RECEIVE])
def test_a_handle_opened_for_moving_cannot_read(client: Client, server: Server, action: ReceiveAction) -> None:
    """[MS-MQRR] 3.1.4.11."""
    server.world.send("q", "a")
    _, handle = remote_read.for_move(client, "q;s")
    assert remote_read.read(client, handle, action).result == H.MQ_ERROR_ACCESS_DENIED
    assert client.call("R_CreateCursor", phContext=handle).result == H.MQ_ERROR_ACCESS_DENIED


def test_moving_is_no_access_mode_of_qmcomm(client: Client) -> None:
    """[MS-MQMP] 3.1.4.17."""
    assert client.open(access=Access.MOVE).result == H.MQ_ERROR_UNSUPPORTED_ACCESS_MODE


def test_a_remote_queue_without_its_handle_is_refused(client: Client) -> None:
    """[MS-MQMP] 3.1.4.17, dwpQueue."""
    arguments: dict[str, Any] = {
        "pQueueFormat": queue_format("q"), "dwDesiredAccess": Access.RECEIVE, "dwShareMode": 0, "hRemoteQueue": 0,
        "lplpRemoteQueueName": None, "lpClientName": "", "dwpQueue": 0, "pLicGuid": bytes(16), "dwpRemoteContext": 0,
        "dwRemoteProtocol": 0,
    }  # fmt: skip
    for name in ("dwpQueue", "dwpRemoteContext"):
        refused = client.call("rpc_QMOpenQueueInternal", **arguments | {name: 5})
        assert refused.result == H.MQ_ERROR_INVALID_PARAMETER


@pytest.mark.parametrize("variant", [
    PROPVARIANT(vt=0x101F, calpwstr=CALPWSTR(5, None)), PROPVARIANT(vt=VarType.VT_BLOB, blob=BLOB(5, None)),
])  # fmt: skip
def test_a_null_pointer_with_a_count_is_rejected(client: Client, variant: PROPVARIANT) -> None:
    """[MS-MQMR] 3.1.4."""
    with pytest.raises(Fault) as fault:
        client.call(
            "R_QMMgmtGetInfo", pObjectFormat=mr.MGMT_OBJECT(type=1, Reserved1=0), cp=1, aProp=[1], apVar=[variant]
        )
    assert fault.value.status == RPC_X_BAD_STUB_DATA


def test_without_a_directory_a_system_queue_is_not_known_to_be_foreign(client: Client, server: Server) -> None:
    """[MS-MQMR] 3.1.4.1, PROPID_MGMT_QUEUE_FOREIGN."""

    def foreign(name: str) -> str:
        target = mr.MGMT_OBJECT(type=2, Reserved1=0, pQueueFormat=queue_format(name))
        response = client.call("R_QMMgmtGetInfo", pObjectFormat=target, cp=1, aProp=[6], apVar=[PROPVARIANT()])
        text: str = response.apVar[0].pwszVal
        return text

    assert foreign("q") == "NO"
    assert foreign("DIRECT=OS:.\\SYSTEM$;DEADLETTER") == "UNKNOWN"


def test_the_null_unit_of_work_is_not_enlisted(client: Client) -> None:
    """[MS-MQMP] 3.1.4.14; sends treat it as no transaction."""
    assert client.call("R_QMEnlistInternalTransaction", pUow=XACTUOW(bytes(16))).result == H.MQ_ERROR_INVALID_PARAMETER


def test_a_size_without_its_buffer_is_refused(client: Client, server: Server) -> None:
    """[MS-MQMP] 3.1.5.3."""
    server.world.send("q", "a")
    context = client.open().pdwQMContext
    for member, size in (("ppBody", "ulBodyBufferSizeInBytes"), ("ppTitle", "ulTitleBufferSizeInWCHARs")):
        ptb = receive_buffer(ReceiveAction.RECEIVE, 0)
        setattr(ptb.old, member, None)
        setattr(ptb.old, size, 10)
        if member == "ppBody":
            ptb.old.ulAllocBodyBufferInBytes = 10
        pending = client.start("rpc_ACReceiveMessageEx", hQMContext=context, ptb=ptb)
        server.sync()
        assert pending.response.result == H.MQ_ERROR_INVALID_PARAMETER, member
    assert server.world.labels("q") == ["a"]


def test_a_transactional_receive_checks_parameters_cursor_queue_and_action_in_this_order(
    client: Client, server: Server
) -> None:
    """[MS-MQRR] 3.1.4.13."""
    handle = remote_read.opened(client)
    arguments: dict[str, Any] = {
        "phContext": handle, "LookupId": 0, "hCursor": 99, "ulAction": int(ReceiveAction.PEEK_NEXT), "ulTimeout": 0,
        "dwRequestId": 1, "dwMaxBodySize": 100, "dwMaxCompoundMessageSize": 0,
        "pTransactionId": rr.XACTUOW(b"u" * 16),
    }  # fmt: skip

    def result(**more: Any) -> int:
        response: int = client.call("R_StartTransactionalReceive", **arguments | more).result
        return response

    assert result(LookupId=5) == H.MQ_ERROR_INVALID_PARAMETER
    assert result() == H.STATUS_INVALID_HANDLE
    cursor = client.call("R_CreateCursor", phContext=handle).phCursor
    assert result(hCursor=cursor) == H.MQ_ERROR_TRANSACTION_USAGE
    on_transactional = remote_read.opened(client, "x")
    receive = result(phContext=on_transactional, hCursor=0, ulAction=int(ReceiveAction.RECEIVE))
    assert receive == H.MQ_ERROR_TRANSACTION_SEQUENCE
