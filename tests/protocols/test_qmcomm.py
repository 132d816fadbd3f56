"""qmcomm ([MS-MQMP] 3.1.4): each operation, its success and its errors."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from msrpc.ndr import NULL
from msrpc.rpc.association import NULL_HANDLE
from msrpc.rpc.call import UNAUTHENTICATED, Call
from msrpc.rpc.faults import NCA_S_FAULT_CONTEXT_MISMATCH, RPC_X_BAD_STUB_DATA, Fault
from openmsmq.conversion.propvariants import pack
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces.ms_mqmq import QUEUE_FORMAT, XACTUOW
from openmsmq.interfaces.ms_mqmq import tag_inner_PROPVARIANT as PROPVARIANT
from openmsmq.model.constants import Access, PropId, VarType
from openmsmq.model.errors import HResult, InvalidHandle, QueueNotFound, TransactionSequence
from openmsmq.model.message import Message
from openmsmq.model.names import parse_format_name
from openmsmq.model.security import SecurityDescriptor
from openmsmq.protocols.proxies import HandedOver
from openmsmq.protocols.qmcomm import QmComm
from openmsmq.queueing.machine import MachineLimits
from openmsmq.queueing.unit_of_work import Transaction
from protocols.clients import Client, Connection, Server, object_format, queue_format, text_variant

H = HResult
UOW = XACTUOW(b"u" * 16)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def client(server: Server) -> Client:
    client = server.client()
    assert client.create().result == H.MQ_OK
    return client


def fault(status: int) -> Any:
    return pytest.raises(Fault, check=lambda error: error.status == status)


mismatch = fault(NCA_S_FAULT_CONTEXT_MISMATCH)


# -- encoding --------------------------------------------------------------------------------------------------


def test_operations_not_used_on_the_wire_do_not_exist(server: Server) -> None:
    qmcomm, qmcomm2, qmmgmt, remote_read, qm2qm, _ = server.interfaces
    unused = {0, 5, 13, 21, 24, 25, 29, 30, 32, 33, 34}
    assert {opnum for opnum in range(40) if qmcomm.accepts(opnum)} == set(range(35)) - unused
    assert {opnum for opnum in range(40) if qmcomm2.accepts(opnum)} == set(range(4))
    assert {opnum for opnum in range(40) if qmmgmt.accepts(opnum)} == {0, 1}
    assert {opnum for opnum in range(40) if remote_read.accepts(opnum)} == {0, *range(2, 16)}
    assert {opnum for opnum in range(40) if qm2qm.accepts(opnum)} == set(range(11))


def test_a_stub_that_does_not_decode_is_a_fault(server: Server, client: Client) -> None:
    without_arguments = ("qmcomm1", "RemoteRead0", "qm2qm8")
    for interface in server.interfaces:
        for opnum in range(35):
            if interface.accepts(opnum) and f"{interface.name}{opnum}" not in without_arguments:
                call = Call(Connection(client.association), interface, UNAUTHENTICATED, None, 1, 0, opnum, b"\xff")  # type: ignore[arg-type]
                with fault(RPC_X_BAD_STUB_DATA):
                    interface.call(call)


def test_a_call_that_a_limit_refuses_is_logged_with_the_limit_once_a_minute(
    server: Server, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    registry = server.environment.manager.registry
    for limit in (1, 1, 0):
        registry.machine = replace(registry.machine, limits=MachineLimits(max_queues=limit))
        assert client.create("b").result == H.MQ_ERROR_INSUFFICIENT_RESOURCES
    first, second = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "R_QMCreateObjectInternal of" in first and "there are 1 queues already (max_queues)" in first
    assert "there are 0 queues already" in second


def test_the_port_is_returned_without_authentication(server: Server, client: Client) -> None:
    assert server.interfaces[0].open_opnums == {31}
    assert client.call("R_QMGetRTQMServerPort", fIP=0).result == 2103
    assert client.call("R_QMGetRTQMServerPort", fIP=7).result == 0


def test_a_change_is_answered_when_it_is_durable(server: Server) -> None:
    client = server.client()
    pending = client.start("R_QMCreateObjectInternal", dwObjectType=1, lpwcsPathName=".\\private$\\q", cp=1,
                           aProp=[108], apVar=[text_variant("label")])  # fmt: skip
    assert not pending.over
    server.sync()
    assert pending.response.result == H.MQ_OK
    assert client.start("R_QMGetRTQMServerPort", fIP=0).over


# -- objects ---------------------------------------------------------------------------------------------------

CREATE: dict[str, Any] = {
    "dwObjectType": 1, "lpwcsPathName": ".\\private$\\new", "cp": 1, "aProp": [108], "apVar": [text_variant("l")],
    "SDSize": 0, "pSecurityDescriptor": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({}, H.MQ_OK),
        ({"dwObjectType": 2}, H.MQ_ERROR_INVALID_PARAMETER),
        ({"lpwcsPathName": ".\\private$\\Q"}, H.MQ_ERROR_QUEUE_EXISTS),
        ({"lpwcsPathName": "nonsense"}, H.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
        ({"lpwcsPathName": "there\\private$\\new"}, H.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
        ({"SDSize": 4, "pSecurityDescriptor": b"junk"}, H.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR),
        ({"SDSize": 0, "pSecurityDescriptor": b""}, H.MQ_ERROR_INVALID_PARAMETER),
        ({"aProp": [999]}, H.MQ_ERROR_ILLEGAL_PROPID),
        ({"aProp": [105]}, H.MQ_ERROR_PROPERTY),
        ({"aProp": [109], "apVar": [pack(VarType.VT_I4, 1)]}, H.MQ_ERROR_PROPERTY_NOTALLOWED),
        ({"apVar": [text_variant("x" * 125)]}, H.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        ({"apVar": [pack(VarType.VT_UI4, 1)]}, H.MQ_ERROR_PROPERTY),
    ],
)
def test_create(server: Server, client: Client, change: dict[str, Any], error: HResult) -> None:
    assert client.call("R_QMCreateObjectInternal", **{**CREATE, **change}).result == error
    assert ("new" in server.world.registry.by_name) == (error == H.MQ_OK)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"apVar": [text_variant("x" * 125)]}, H.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        ({"aProp": [103], "apVar": [text_variant(".\\private$\\other")]}, H.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        ({"aProp": [109], "apVar": [pack(VarType.VT_I4, 1)]}, H.MQ_ERROR_PROPERTY_NOTALLOWED),
        ({"SDSize": 4, "pSecurityDescriptor": b"junk"}, H.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR),
        ({"aProp": [103], "apVar": [text_variant(".\\private$\\q")]}, H.MQ_ERROR_QUEUE_EXISTS),
    ],
)
def test_an_invalid_parameter_is_reported_even_if_the_queue_exists(
    client: Client, change: dict[str, Any], error: HResult
) -> None:
    """[MS-MQMP] 3.1.4.5: clients may take MQ_ERROR_QUEUE_EXISTS for success."""
    call = {**CREATE, "lpwcsPathName": ".\\private$\\q"} | change
    assert client.call("R_QMCreateObjectInternal", **call).result == error


def test_delete(server: Server, client: Client) -> None:
    assert client.call("R_QMDeleteObject", pObjectFormat=object_format()).result == H.MQ_OK
    assert not server.world.registry.by_name
    assert client.call("R_QMDeleteObject", pObjectFormat=object_format()).result == H.MQ_ERROR_QUEUE_NOT_FOUND
    assert client.call("R_QMDeleteObject", pObjectFormat=m.OBJECT_FORMAT(1, None)).result == (
        H.MQ_ERROR_INVALID_PARAMETER
    )


def test_properties_are_set_and_got(client: Client) -> None:
    values = {"aProp": [108, 105], "apVar": [text_variant("new"), pack(VarType.VT_UI4, 9)], "cp": 2}
    assert client.call("R_QMSetObjectProperties", pObjectFormat=object_format(), **values).result == H.MQ_OK
    asked = {"aProp": [108, 105, 103], "apVar": [PROPVARIANT(vt=1) for _ in range(3)], "cp": 3}
    got = client.call("R_QMGetObjectProperties", pObjectFormat=object_format(), **asked)
    assert got.result == H.MQ_OK
    assert (got.apVar[0].pwszVal, got.apVar[1].ulVal, got.apVar[2].pwszVal) == ("new", 9, "HERE\\private$\\q")
    for propid, vt, error in ((999, 1, H.MQ_ERROR_ILLEGAL_PROPID), (105, VarType.VT_LPWSTR, H.MQ_ERROR_PROPERTY)):
        bad = client.call("R_QMGetObjectProperties", pObjectFormat=object_format(), cp=1, aProp=[propid],
                          apVar=[PROPVARIANT(vt=vt)])  # fmt: skip
        assert bad.result == error
    refused = client.call("R_QMSetObjectProperties", pObjectFormat=object_format(), cp=1, aProp=[113],
                          apVar=[pack(VarType.VT_UI1, 1)])  # fmt: skip
    assert refused.result == H.MQ_ERROR_PROPERTY_NOTALLOWED
    missing = client.call("R_QMSetObjectProperties", pObjectFormat=object_format(), cp=1, aProp=None, apVar=None)
    assert missing.result == H.MQ_ERROR_INVALID_PARAMETER


def test_security_is_set_and_got(client: Client) -> None:
    new = SecurityDescriptor(owner="S-1-5-7").pack()
    done = client.call("R_QMSetObjectSecurityInternal", pObjectFormat=object_format(), SecurityInformation=1,
                       SDSize=len(new), pSecurityDescriptor=new)  # fmt: skip
    assert done.result == H.MQ_OK
    elses = SecurityDescriptor(owner="S-1-5-18").pack()
    refused = client.call("R_QMSetObjectSecurityInternal", pObjectFormat=object_format(), SecurityInformation=1,
                          SDSize=len(elses), pSecurityDescriptor=elses)  # fmt: skip
    assert refused.result == H.ERROR_INVALID_OWNER
    small = client.call(
        "R_QMGetObjectSecurityInternal", pObjectFormat=object_format(), RequestedInformation=7, nLength=5
    )
    assert small.result == H.MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL
    assert small.pSecurityDescriptor == bytes(5)
    needed = small.lpnLengthNeeded
    for length in (needed, needed + 10):
        got = client.call("R_QMGetObjectSecurityInternal", pObjectFormat=object_format(), RequestedInformation=7,
                          nLength=length)  # fmt: skip
        assert (got.result, got.lpnLengthNeeded, len(got.pSecurityDescriptor)) == (H.MQ_OK, needed, length)
        assert SecurityDescriptor.parse(got.pSecurityDescriptor).owner == "S-1-5-7"
    missing = client.call("R_QMGetObjectSecurityInternal", pObjectFormat=object_format("no"), RequestedInformation=7,
                          nLength=3)  # fmt: skip
    assert (missing.result, missing.pSecurityDescriptor) == (H.MQ_ERROR_QUEUE_NOT_FOUND, bytes(3))
    empty = client.call("R_QMSetObjectSecurityInternal", pObjectFormat=object_format(), SecurityInformation=4,
                        SDSize=0, pSecurityDescriptor=None)  # fmt: skip
    assert empty.result == H.MQ_ERROR_INVALID_PARAMETER


def test_a_path_name_becomes_a_private_format_name(server: Server, client: Client) -> None:
    unknown = m.OBJECT_FORMAT(1, QUEUE_FORMAT(m_qft=0))
    found = client.call("R_QMObjectPathToObjectFormat", lpwcsPathName=".\\private$\\q", pObjectFormat=unknown)
    assert found.result == H.MQ_OK
    value = found.pObjectFormat.pQueueFormat
    assert (value.m_qft, value.m_oPrivateID.Uniquifier) == (2, server.world.queue().number)
    for path, given, error in (
        (".\\private$\\no", unknown, H.MQ_ERROR_QUEUE_NOT_FOUND),
        ("nonsense", unknown, H.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
        (".\\private$\\q", object_format(), H.MQ_ERROR_INVALID_PARAMETER),
        (".\\private$\\q", m.OBJECT_FORMAT(1, None), H.MQ_ERROR_INVALID_PARAMETER),
    ):
        refused = client.call("R_QMObjectPathToObjectFormat", lpwcsPathName=path, pObjectFormat=given)
        assert refused.result == error


# -- open queues -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"access": 0x03}, H.MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
        ({"access": 0}, H.MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
        ({"share": 2}, H.MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
        ({"access": Access.SEND, "share": 1}, H.MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
        ({"name": "missing"}, H.MQ_ERROR_QUEUE_NOT_FOUND),
        ({"name": "DIRECT=IPX:there\\private$\\q", "access": Access.SEND}, H.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE),
        ({"name": "DIRECT=OS:there\\private$\\q", "access": Access.PEEK_ADMIN}, H.MQ_ERROR_QUEUE_NOT_FOUND),
        ({"hRemoteQueue": 5}, H.MQ_ERROR_QUEUE_NOT_FOUND),
        ({"dwpRemoteContext": 5}, H.MQ_ERROR_INVALID_PARAMETER),
    ],
)
def test_invalid_opens_are_refused(server: Server, client: Client, values: dict[str, Any], error: HResult) -> None:
    arguments: dict[str, Any] = {
        "pQueueFormat": queue_format(values.get("name", "q")), "dwDesiredAccess": values.get("access", 1),
        "dwShareMode": values.get("share", 0), "hRemoteQueue": values.get("hRemoteQueue", 0),
        "lplpRemoteQueueName": None, "lpClientName": "", "dwpQueue": 0, "pLicGuid": bytes(16), "dwRemoteProtocol": 0,
        "dwpRemoteContext": values.get("dwpRemoteContext", 0),
    }  # fmt: skip
    opened = client.call("rpc_QMOpenQueueInternal", **arguments)
    assert opened.result == error
    assert opened.phQueue == NULL_HANDLE
    assert not server.world.manager.handles.descriptors


def test_a_queue_of_another_machine_opened_for_reading_answers_with_its_path_name(client: Client) -> None:
    opened = client.open("DIRECT=OS:there\\private$\\q", Access.PEEK)
    assert (opened.result, opened.phQueue, opened.lplpRemoteQueueName) == (H.MQ_OK, NULL_HANDLE, "there\\private$\\q")


def test_open_use_and_close(server: Server, client: Client) -> None:
    opened = client.open()
    assert opened.result == H.MQ_OK and opened.phQueue != NULL_HANDLE
    closed = client.call("rpc_ACCloseHandle", phQueue=opened.phQueue)
    assert (closed.result, closed.phQueue) == (H.MQ_OK, NULL_HANDLE)
    assert not server.world.manager.handles.descriptors
    for handle in (opened.phQueue, NULL_HANDLE):
        with mismatch:
            client.call("rpc_ACCloseHandle", phQueue=handle)


def test_context_handles_of_another_association_are_refused(server: Server, client: Client) -> None:
    handle = client.open().phQueue
    work = client.call("R_QMEnlistInternalTransaction", pUow=UOW).phIntXact
    stranger = server.client()
    calls: list[tuple[str, dict[str, Any]]] = [
        ("rpc_ACCloseHandle", {"phQueue": handle}),
        ("rpc_ACPurgeQueue", {"hQueue": handle}),
        ("rpc_ACCloseCursor", {"hQueue": handle, "hCursor": 5}),
        ("rpc_ACHandleToFormatName", {"hQueue": handle, "dwFormatNameRPCBufferLen": 0, "pdwLength": 0,
                                      "lpwcsFormatName": None}),
        ("R_QMCommitTransaction", {"phIntXact": work}),
        ("R_QMAbortTransaction", {"phIntXact": work}),
    ]  # fmt: skip
    for name, arguments in calls:
        with mismatch:
            stranger.call(name, **arguments)
    with mismatch:
        stranger.send(handle, Message())
    with mismatch:
        client.call("R_QMCommitTransaction", phIntXact=handle)  # a handle of another kind


def test_a_disconnected_clients_queues_are_closed_and_its_work_aborted(server: Server, client: Client) -> None:
    server.world.create("t", TRANSACTION=1)
    opened = client.open("t", Access.SEND)
    client.call("R_QMEnlistInternalTransaction", pUow=UOW)
    assert client.send(opened.phQueue, Message(), UOW.rgb).result == H.MQ_OK
    client.leave()
    assert not server.world.manager.handles.descriptors and not list(server.world.manager.transactions.enlisted())
    assert len(server.world.queue("t")) == 0


def test_the_format_name_of_a_handle(client: Client) -> None:
    handle = client.open().phQueue
    text = "DIRECT=OS:.\\private$\\q"
    for size, error in ((len(text) + 1, H.MQ_OK), (60, H.MQ_OK), (5, H.MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL),
                        (0, H.MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL)):  # fmt: skip
        answer = client.call("rpc_ACHandleToFormatName", hQueue=handle, dwFormatNameRPCBufferLen=size, pdwLength=size,
                             lpwcsFormatName="\0" * size if size else None)  # fmt: skip
        assert (answer.result, answer.pdwLength) == (error, len(text) + 1)
        if size:
            assert answer.lpwcsFormatName == (text[: size - 1] + "\0").ljust(size, "\0")
    empty = client.call(
        "rpc_ACHandleToFormatName", hQueue=handle, dwFormatNameRPCBufferLen=0, pdwLength=0, lpwcsFormatName=""
    )
    assert (empty.result, empty.lpwcsFormatName) == (H.MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL, "")
    for length, buffer in ((4, "\0" * 5), (5, None)):
        answer = client.call("rpc_ACHandleToFormatName", hQueue=handle, dwFormatNameRPCBufferLen=5, pdwLength=length,
                             lpwcsFormatName=buffer)  # fmt: skip
        assert answer.result == H.MQ_ERROR_INVALID_PARAMETER


def test_purge(server: Server, client: Client) -> None:
    server.world.send()
    assert client.call("rpc_ACPurgeQueue", hQueue=client.open(access=Access.PEEK).phQueue).result == (
        H.MQ_ERROR_ACCESS_DENIED
    )
    assert client.call("rpc_ACPurgeQueue", hQueue=client.open().phQueue).result == H.MQ_OK
    assert len(server.world.queue()) == 0


def test_cursors_close_once_and_the_reserved_one_always(client: Client) -> None:
    handle = client.open().phQueue
    created = client.call("rpc_ACCreateCursorEx", hQueue=handle, pcc=m.CACCreateRemoteCursor())
    cursor = created.pcc.hCursor
    assert created.result == H.MQ_OK and cursor
    for number, error in ((cursor, H.MQ_OK), (cursor, H.MQ_ERROR_INVALID_HANDLE), (11, H.MQ_OK), (11, H.MQ_OK)):
        assert client.call("rpc_ACCloseCursor", hQueue=handle, hCursor=number).result == error


@pytest.mark.parametrize("hresult", [H.MQ_OK, H.MQ_ERROR_INVALID_HANDLE])
def test_closing_a_cursor_of_a_remote_queue_returns_the_result_from_there(
    server: Server, client: Client, hresult: HResult
) -> None:
    """[MS-MQMP] 3.1.4.19: the result of RemoteQMCloseCursor."""

    class Session:
        async def create_cursor(self) -> int:
            return 77

        async def close_cursor(self, cursor: int) -> None:
            assert cursor == 77
            if hresult:
                raise InvalidHandle(detail="no cursor 77 at there")

    class Remote:
        async def open(self, machine: str, name: str, access: Access, opened: HandedOver) -> Session:
            return Session()

    async def close_twice() -> list[HResult]:
        opened = await complete(
            client, "rpc_QMOpenQueueInternal", pQueueFormat=queue_format("DIRECT=OS:there\\private$\\q"),
            dwDesiredAccess=1, dwShareMode=0, hRemoteQueue=5, lplpRemoteQueueName=None, lpClientName="", dwpQueue=5,
            pLicGuid=bytes(16), dwpRemoteContext=5, dwRemoteProtocol=0,
        )  # fmt: skip
        created = await complete(client, "rpc_ACCreateCursorEx", hQueue=opened.phQueue, pcc=m.CACCreateRemoteCursor())
        closing = {"hQueue": opened.phQueue, "hCursor": created.pcc.hCursor}
        return [(await complete(client, "rpc_ACCloseCursor", **closing)).result for _ in range(2)]

    server.environment.remote = Remote()  # type: ignore[assignment]
    assert asyncio.run(close_twice()) == [hresult, H.MQ_ERROR_INVALID_HANDLE]


# -- transactions ----------------------------------------------------------------------------------------------


def test_transactions_commit_and_abort(server: Server, client: Client) -> None:
    server.world.create("t", TRANSACTION=1)
    handle = client.open("t", Access.SEND).phQueue
    for end, count in (("R_QMCommitTransaction", 1), ("R_QMAbortTransaction", 1)):
        enlisted = client.call("R_QMEnlistInternalTransaction", pUow=UOW)
        assert enlisted.result == H.MQ_OK
        assert client.call("R_QMEnlistInternalTransaction", pUow=UOW).result == H.MQ_ERROR_TRANSACTION_SEQUENCE
        assert client.send(handle, Message(), UOW.rgb).result == H.MQ_OK
        ended = client.call(end, phIntXact=enlisted.phIntXact)
        assert (ended.result, ended.phIntXact) == (H.MQ_OK, NULL_HANDLE)
        assert len(server.world.queue("t")) == count
        with mismatch:
            client.call(end, phIntXact=enlisted.phIntXact)
    assert client.send(handle, Message(), UOW.rgb).result == H.MQ_ERROR_TRANSACTION_SEQUENCE


@pytest.mark.parametrize(
    ("end", "hresult"),
    [("R_QMCommitTransaction", H.MQ_ERROR_TRANSACTION_SEQUENCE), ("R_QMAbortTransaction", H.MQ_OK)],
)
def test_the_handle_of_a_transaction_that_was_aborted_elsewhere_is_closed(
    server: Server, client: Client, end: str, hresult: int
) -> None:
    """[MS-MQMP] 3.1.4.15 and 3.1.4.16: on return, the handle is NULL."""
    work = client.call("R_QMEnlistInternalTransaction", pUow=UOW).phIntXact
    server.world.manager.transactions.abort(server.world.manager.transactions.find(UOW.rgb))
    ended = client.call(end, phIntXact=work)
    assert (ended.result, ended.phIntXact) == (hresult, NULL_HANDLE)
    with mismatch:
        client.call(end, phIntXact=work)


async def complete(client: Client, name: str, /, **arguments: Any) -> Any:
    """Call an operation that is answered later; returns its response."""
    pending = client.start(name, **arguments)
    if work := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(work, timeout=30)
    client.server.sync()
    return pending.response


def test_a_commit_that_another_queue_manager_refuses_closes_the_handle(server: Server, client: Client) -> None:
    class Refusing:
        def is_distributed(self, transaction: Transaction) -> bool:
            return True

        async def commit(self, transaction: Transaction) -> None:
            raise TransactionSequence(detail="a participant has voted no")

    work = client.call("R_QMEnlistInternalTransaction", pUow=UOW).phIntXact
    server.environment.coordinator = Refusing()  # type: ignore[assignment]

    ended = asyncio.run(complete(client, "R_QMCommitTransaction", phIntXact=work))
    assert (ended.result, ended.phIntXact) == (H.MQ_ERROR_TRANSACTION_SEQUENCE, NULL_HANDLE)


def test_a_commit_that_fails_keeps_its_handle(server: Server, client: Client) -> None:
    server.world.create("t", TRANSACTION=1)
    handle = client.open("t", Access.SEND).phQueue
    work = client.call("R_QMEnlistInternalTransaction", pUow=UOW).phIntXact
    client.send(handle, Message(), UOW.rgb)
    server.world.store.full = True
    failed = client.call("R_QMCommitTransaction", phIntXact=work)
    assert (failed.result, failed.phIntXact) == (H.MQ_ERROR_MESSAGE_STORAGE_FAILED, work)
    server.world.store.full = False
    assert client.call("R_QMCommitTransaction", phIntXact=work).result == H.MQ_OK


def test_distributed_transactions_are_off_until_they_are_switched_on(client: Client) -> None:
    answer = client.call("R_QMGetTmWhereabouts", cbBufSize=4)
    assert (answer.result, answer.pbWhereabouts) == (H.MQ_ERROR_DTC_CONNECT, bytes(4))
    assert client.call("R_QMEnlistTransaction", pUow=UOW, cbCookie=1, pbCookie=b"c").result == H.MQ_ERROR_DTC_CONNECT


def test_whereabouts_fit_or_their_length_is_returned(server: Server, client: Client) -> None:
    server.environment.coordinator.whereabouts = lambda: b"where"  # type: ignore[method-assign]
    for size, error, data in ((5, H.MQ_OK, b"where"), (8, H.MQ_OK, b"where\0\0\0"),
                              (4, H.MQ_ERROR_USER_BUFFER_TOO_SMALL, bytes(4))):  # fmt: skip
        answer = client.call("R_QMGetTmWhereabouts", cbBufSize=size)
        assert (answer.result, answer.pcbWhereabouts, answer.pbWhereabouts) == (error, 5, data)


# -- other operations ------------------------------------------------------------------------------------------


def test_obsolete_operations(client: Client) -> None:
    with fault(H.MQ_ERROR_ILLEGAL_OPERATION):
        client.call("R_QMGetRemoteQueueName", pQueue=1, lplpRemoteQueueName=NULL)
    answer = client.call("rpc_ACSetCursorProperties", hProxy=NULL_HANDLE, hCursor=1, hRemoteCursor=1)
    assert answer.result == H.MQ_ERROR_ILLEGAL_OPERATION


def test_queries(client: Client) -> None:
    texts = {0: "", 1: "345600", 3: "6.3.0", 4: "03020100-0504-0706-0809-0a0b0c0d0e0f"}
    for query, text in texts.items():
        answer = client.call("R_QMQueryQMRegistryInternal", dwQueryType=query)
        assert (answer.result, answer.lplpMQISServer) == (H.MQ_OK, text)
    assert client.call("R_QMQueryQMRegistryInternal", dwQueryType=2).result == H.MQ_ERROR_NO_DS
    assert client.call("R_QMQueryQMRegistryInternal", dwQueryType=5).result == H.MQ_ERROR_INVALID_PARAMETER


REMOTE: dict[str, Any] = {"pQueueFormat": queue_format("q"), "dwCallingProcessID": 1, "dwDesiredAccess": Access.PEEK,
                          "dwShareMode": 0, "pLicGuid": bytes(16), "dwMQS": 0}  # fmt: skip


def test_a_remote_reader_opens_makes_a_cursor_and_closes(server: Server, client: Client) -> None:
    opened = client.call("R_QMOpenRemoteQueue", **REMOTE)
    assert opened.result == H.MQ_OK and opened.dwpQueue == opened.phQueue == opened.pdwContext
    blank = m.CACTransferBufferV1(Send=m.CACTransferBufferV1_Send())
    assert client.call("R_QMCreateRemoteCursor", ptb1=blank, hQueue=opened.phQueue).result == H.MQ_OK
    stranger = server.client()
    # The random handle is sufficient: the queue manager that reads for the client uses another association.
    assert stranger.call("R_QMCreateRemoteCursor", ptb1=blank, hQueue=opened.phQueue).result == H.MQ_OK
    local = client.open().pdwQMContext
    assert stranger.call("R_QMCreateRemoteCursor", ptb1=blank, hQueue=local).result == H.MQ_ERROR_INVALID_HANDLE
    with mismatch:
        stranger.call("R_QMCloseRemoteQueueContext", pphContext=opened.pphContext)
    assert client.call("R_QMCloseRemoteQueueContext", pphContext=opened.pphContext).pphContext == NULL_HANDLE
    assert set(server.world.manager.handles.descriptors) == {local}
    for change, error in (({"dwDesiredAccess": Access.SEND}, H.MQ_ERROR_INVALID_PARAMETER),
                          ({"pQueueFormat": None}, H.MQ_ERROR_INVALID_PARAMETER),
                          ({"dwShareMode": 3}, H.MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
                          ({"pQueueFormat": queue_format("no")}, H.MQ_ERROR_QUEUE_NOT_FOUND)):  # fmt: skip
        assert client.call("R_QMOpenRemoteQueue", **{**REMOTE, **change}).result == error


def test_every_property_that_a_queue_has_can_be_asked_for(client: Client) -> None:
    for propid in PropId:
        answer = client.call("R_QMGetObjectProperties", pObjectFormat=object_format(), cp=1, aProp=[propid],
                             apVar=[PROPVARIANT(vt=1)])  # fmt: skip
        assert answer.result == H.MQ_OK, propid


def test_only_a_queue_of_another_machine_is_returned_for_remote_reading(server: Server) -> None:
    qmcomm = server.interfaces[0]
    assert isinstance(qmcomm, QmComm)
    there = qmcomm._demand_remote_path(parse_format_name("DIRECT=OS:there\\private$\\q"), Access.PEEK)
    assert str(there) == "there\\private$\\q"
    for name, access in (("DIRECT=OS:.\\private$\\q", Access.PEEK), ("DIRECT=OS:there\\private$\\q", Access.SEND)):
        with pytest.raises(QueueNotFound, match="names no queue of another machine"):
            qmcomm._demand_remote_path(parse_format_name(name), access)
